"""Refusal of jobs that could never run because a budget is used up.

Applies only if the budget's action is `block`, and only to jobs larger than the tenant's quota. A
budget never blocks own quota.

Source: docs/money.md.
"""

from django.utils.translation import gettext as _

from evenshare_core.domain.reasons import Reason
from evenshare_core.money.budgets import BudgetAction
from scheduling.engine.clock import Clocks
from scheduling.requests.jobs import JobRequest
from scheduling.selectors.pools.offers import PoolOffer
from scheduling.services.dry_run import best_answer
from tenants.input.errors import FieldError
from tenants.models import Budget, Tenant
from tenants.selectors.credit import credit_left


def blocking_books(tenant: Tenant, books: set[str]) -> set[str]:
    """Return the books in which a used-up budget of the tenant blocks. A single query."""
    rows = Budget.objects.filter(
        tenant=tenant,
        book__in=books,
        period_amount__isnull=False,
        period_action=BudgetAction.BLOCK.value,
    )
    return set(rows.values_list("book", flat=True))


def budget_error(
    tenant: Tenant, request: JobRequest, offer: PoolOffer, now: Clocks
) -> FieldError | None:
    """Return why a blocking budget refuses a job, or None if the job may be submitted."""
    at = now(offer.id).pool_at
    left = credit_left(offer.book, [tenant.pk], at).get(tenant.pk)
    period = left.period if left is not None else None
    if left is None or period is None or left.micro != period.promisable_micro:
        return None
    answer = best_answer(tenant, request, offer, at)
    if answer.feasible or answer.reason_code != Reason.BUDGET:
        return None
    reason = _("would borrow, but the budget until {last_day} is used up: {detail}").format(
        last_day=period.last_day, detail=answer.detail
    )
    hint = _("Request GPUs within your own quota, or ask for a higher budget.")
    return FieldError("gpus", reason, hint, Reason.BUDGET.value)
