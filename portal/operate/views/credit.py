"""Credit of tenants: limits, budgets, allowances, and requested transfers."""

from decimal import Decimal
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.requests import AllowanceRequest, CreditTermsRequest
from billing.selectors.clock import book_now
from billing.selectors.credit import (
    CreditRow,
    all_credit_books,
    credit_states,
    transfer_wishes,
)
from billing.services.allowances import give_allowance
from billing.services.terms import set_credit_terms
from billing.services.transfers import approve_transfer, refuse_transfer
from portal.charts.figures import thousands
from portal.common.credit_text import (
    ACTIONS,
    PERIODS,
    account_context,
    action_text,
    run_out_text,
)
from portal.common.forms import day_typed, request_inputs, text, typed_request
from portal.operate.views.console import actor_of, credit_console, may_keep, no_such_button, page
from tenants.input.errors import InvalidInputError
from tenants.models import Tenant
from tenants.scopes import site_scope
from tenants.selectors.tenants import find_tenant

DECISIONS = {"approve": approve_transfer, "refuse": refuse_transfer}
DONE = {
    "approve": gettext_noop("Moved {amount} credits to {tenant}."),
    "refuse": gettext_noop("Refused: {amount} credits to {tenant}."),
}
TERM_FIELDS = (
    *("credit_limit", "budget_amount", "budget_period", "budget_action"),
    *("budget_from", "budget_until", "reason"),
)


@credit_console
def accounts(request: HttpRequest) -> HttpResponse:
    """Show every account with its limit and budget, and the requested transfers."""
    trouble = ""
    if request.method == "POST":
        try:
            messages.success(request, _decide(request))
        except InvalidInputError as error:
            trouble = " ".join(error.by_field.values())
        else:
            return redirect("operate-credit")
    with site_scope():
        books = [
            {"name": book, "rows": list(map(account_context, credit_states(book, book_now(book))))}
            for book in all_credit_books()
        ]
        wishes = transfer_wishes(None)[0]
    context = {
        "books": books,
        "wishes": wishes,
        "waiting": sum(wish.state == "asked" for wish in wishes),
        "trouble": trouble,
        "may_keep": may_keep(request),
        "viewer_name": actor_of(request).user.get_username(),
    }
    return page(request, "credit.html", context, key="credit", status=422 if trouble else 200)


def _decide(request: HttpRequest) -> str:
    """Approve or refuse the button's transfer; return the result."""
    do = text(request.POST, "do")
    change = DECISIONS.get(do)
    uid = _uid(text(request.POST, "uid"))
    if change is None or uid is None:
        return no_such_button()
    decided = change(actor=actor_of(request), uid=uid, answer=text(request.POST, "answer"))
    return _(DONE[do]).format(amount=thousands(decided.amount), tenant=decided.receiver.name)


def _uid(typed: str) -> UUID | None:
    try:
        return UUID(typed)
    except ValueError:
        return None


@credit_console
def terms(request: HttpRequest, slug: str, book: str) -> HttpResponse:
    """Show a tenant's limit, budget and allowances in a book."""
    with site_scope():
        tenant = find_tenant(slug)
        if tenant is None or book not in all_credit_books():
            raise Http404
    errors: dict[str, str] = {}
    do = text(request.POST, "do") if request.method == "POST" else ""
    if request.method == "POST":
        try:
            messages.success(request, _change(request, tenant, book, do))
        except InvalidInputError as error:
            errors = error.by_field
        else:
            return redirect("operate-credit-terms", slug, book)
    context = _terms_context(request, tenant, book, do, errors)
    status = 422 if errors else 200
    return page(request, "credit_terms.html", context, key="credit", status=status)


def _change(request: HttpRequest, tenant: Tenant, book: str, do: str) -> str:
    actor = actor_of(request)
    if do == "terms":
        posted = request.POST.copy()
        for name in ("budget_from", "budget_until"):
            posted[name] = day_typed(posted.get(name))
        set_credit_terms(
            actor=actor,
            tenant=tenant,
            book=book,
            request=typed_request(CreditTermsRequest, posted),
        )
        saved = _("Saved the terms of {tenant}. They are valid from the next round on.")
        return saved.format(tenant=tenant.name)
    if do == "allowance":
        wanted = typed_request(AllowanceRequest, request.POST, tenant=tenant.slug, book=book)
        given = give_allowance(actor=actor, request=wanted)
        if given.is_replay:
            known = _("The allowance {name} was already posted. Nothing was changed.")
            return known.format(name=wanted.name)
        done = _("Posted {amount} credits to {tenant}.")
        return done.format(amount=thousands(wanted.amount), tenant=tenant.name)
    return no_such_button()


def _terms_context(
    request: HttpRequest, tenant: Tenant, book: str, do: str, errors: dict[str, str]
) -> dict[str, Any]:
    with site_scope():
        state = next(iter(credit_states(book, book_now(book), tenants=[tenant.pk])), None)
        said = run_out_text(state) if state else ""
    of_terms, of_allowance = do == "terms", do == "allowance"
    return {
        "tenant": tenant,
        "book": book,
        "balance": state.balance if state else Decimal(0),
        "reserved": state.reserved if state else Decimal(0),
        **(account_context(state) if state else {"left": None, "budget": None}),
        "run_out": said,
        "may_keep": may_keep(request),
        "trouble": errors.get("", "") or errors.get("do", "") or errors.get("book", ""),
        "terms": request_inputs(
            CreditTermsRequest,
            TERM_FIELDS,
            request.POST if of_terms else {},
            errors if of_terms else {},
            defaults=_present(state) if not of_terms else {},
            choices=_choices(),
        ),
        "allowance": request_inputs(
            AllowanceRequest,
            ("amount", "name", "reason"),
            request.POST if of_allowance else {},
            errors if of_allowance else {},
        ),
    }


def _choices() -> dict[str, tuple[tuple[str, str], ...]]:
    return {
        "budget_period": tuple((kind.value, _(said)) for kind, said in PERIODS.items()),
        "budget_action": tuple((action.value, action_text(action)) for action in ACTIONS),
    }


def _present(state: CreditRow | None) -> dict[str, str]:
    """Return the form's fields with the stored values."""
    if state is None:
        return {}
    budget = state.terms
    begins, ends = budget.period_starts_at, budget.period_ends_at
    return {
        "credit_limit": _plain(budget.credit_limit),
        "budget_amount": _plain(budget.period_amount),
        "budget_period": budget.period_kind,
        "budget_action": budget.period_action,
        "budget_from": f"{begins:%Y-%m-%d}" if begins else "",
        "budget_until": f"{ends:%Y-%m-%d}" if ends else "",
    }


def _plain(amount: Decimal | None) -> str:
    return "" if amount is None else f"{amount.normalize():f}"
