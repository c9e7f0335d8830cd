"""The only writer of a tenant's credit limit and budget."""

from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from billing.ledger import open_accounts, open_book
from billing.models import Account, Book
from billing.requests import CreditTermsRequest
from evenshare_core.domain.instants import to_us
from evenshare_core.money.budgets import BudgetPeriod
from evenshare_core.units import HOUR_US
from tenants.audit import Actor, changed, write_audit
from tenants.input.errors import FieldErrors, invalid
from tenants.models import Budget, Tenant
from tenants.operator_transaction import operation
from tenants.permissions import Action

DAY_US = 24 * HOUR_US
TERMS = (
    *("credit_limit", "period_amount", "period_kind", "period_action"),
    *("period_starts_at", "period_ends_at"),
)


def set_credit_terms(
    *, actor: Actor, tenant: Tenant, book: str, request: CreditTermsRequest
) -> Budget:
    """Set a tenant's credit terms in a book from the next round on; return its budget.

    If the tenant is already beyond the new limit, nothing is taken back. Rounds promise nothing
    more until it is within the limit again.

    Raises:
        InvalidInputError: on a field of the budget, or the book does not exist.
        PermissionDenied: the actor may not manage credit.
    """
    after = _terms(request)
    with operation(actor, Action.KEEP_CREDIT):
        budget = lock_budget(tenant, require_book(book))
        before = {name: getattr(budget, name) for name in TERMS}
        if before == after:
            return budget
        for name, value in after.items():
            setattr(budget, name, value)
        budget.save(update_fields=TERMS)
        budget.refresh_from_db()
        old, new = changed(_plain(before), _plain(after))
        subject = f"credit {tenant.slug} {book}"
        write_audit(actor, "credit.terms", subject, before=old, after=new, reason=request.reason)
    return budget


def require_book(slug: str) -> Book:
    """Return a book.

    Raises:
        InvalidInputError: no book has this name.
    """
    book = Book.objects.filter(slug=slug).first()
    if book is None:
        known = ", ".join(Book.objects.order_by("slug").values_list("slug", flat=True))
        raise invalid(
            "book",
            _("is not a book"),
            _("Choose one of {known}.").format(known=known) if known else "",
            "unknown",
        )
    return book


def lock_budget(tenant: Tenant, book: Book) -> Budget:
    """Open a tenant's account if it has none, and lock account and budget.

    The account is locked first, as for transfers, because the limit is copied to it.
    """
    accounts = open_accounts(open_book(book.slug), [tenant.pk])
    Account.objects.select_for_update().get(pk=accounts[tenant.pk])
    return Budget.objects.select_for_update().get(tenant=tenant, book=book.slug)


def _terms(request: CreditTermsRequest) -> dict[str, Any]:
    """Return the values of the budget's columns; without a budget, other fields get defaults."""
    errors = FieldErrors()
    kind = BudgetPeriod(request.budget_period)
    begins, ends = request.budget_from, request.budget_until
    if request.budget_amount is not None and not request.budget_amount:
        errors.add("budget_amount", _("must be above 0"), _("Leave it empty for no budget."))
    if kind is BudgetPeriod.CUSTOM and request.budget_amount is not None:
        _check_custom(begins, ends, errors)
    else:
        for name, at in (("budget_from", begins), ("budget_until", ends)):
            if at is not None:
                errors.add(name, _("is for a custom period only"), _("Leave it out."))
    errors.raise_any()
    if request.budget_amount is None:
        kind, begins, ends = BudgetPeriod.MONTH, None, None
    return {
        "credit_limit": request.credit_limit,
        "period_amount": request.budget_amount,
        "period_kind": kind.value,
        "period_action": request.budget_action,
        "period_starts_at": begins,
        "period_ends_at": ends,
    }


def _check_custom(begins: datetime | None, ends: datetime | None, errors: FieldErrors) -> None:
    for name, at in (("budget_from", begins), ("budget_until", ends)):
        if at is None:
            errors.add(
                name, _("is required"), _("A custom period has a first day and an end."), "required"
            )
        elif to_us(at) % DAY_US:
            errors.add(name, _("must be midnight UTC"), _("Spending is recorded by day."))
    if begins is not None and ends is not None and ends <= begins:
        errors.add("budget_until", _("must be after its first day"))


def _plain(terms: dict[str, Any]) -> dict[str, str | None]:
    """Return the terms in the form of the audit log."""
    return {
        name: None
        if value is None
        else value.isoformat()
        if isinstance(value, datetime)
        else str(value)
        for name, value in terms.items()
    }
