"""Says whether a specification could run as quotas, limits and prices stand. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from evenshare_core.domain.reasons import Reason
from evenshare_core.money.fixed_point import to_credits, to_micro, worst_case_micro
from evenshare_core.units import SECOND_US
from scheduling.engine.clock import PoolNow
from scheduling.requests.jobs import JobRequest
from scheduling.selectors.offers import PoolOffer, pool_offer
from scheduling.selectors.prospects import StartProspect, prospects, spendable
from scheduling.selectors.reasons import ReasonText, why
from scheduling.services.job_requests import named_pool, read_job_request
from tenants.input.errors import InvalidInputError
from tenants.models import Tenant
from tenants.scopes import tenant_scope

NOTE = "feasibility, not a reservation"
ZERO = Decimal("0.000000")


@dataclass(frozen=True, slots=True)
class DryRun:
    """The answer. `feasible`: some round could start it with today's quota, limits and price.

    `reason_code` and `detail` say why not, or what it would wait for; empty: it fits now. Of
    `gpus`, `borrowed` would be borrowed if it started now, at `price` credits per GPU-hour.
    """

    feasible: bool
    reason_code: str
    detail: str
    price: Decimal
    borrowed: int
    book: str
    note: str = NOTE


def dry_run_job(
    *, tenant: Tenant, spec: Mapping[str, object], now: PoolNow | Callable[[int], PoolNow]
) -> DryRun:
    """Return whether a job could run as `spec` writes it down.

    A job larger than the pool is an answer (`too_large`), everything else that is wrong with a
    specification an error.

    Raises:
        InvalidInputError: the specification is wrong.
    """
    with tenant_scope(tenant.pk):
        offer = pool_offer(named_pool(spec), tenant.pk)
        try:
            request = read_job_request(spec, offer)
        except InvalidInputError as error:
            if offer is None or any(one.code != "too_large" for one in error.errors):
                raise
            numbers = {"needed": spec["gpus"], "capacity": max(offer.gpus.values(), default=0)}
            return _refusal(Reason.TOO_LARGE, numbers, ZERO, 0, offer.book)
        assert offer is not None  # noqa: S101 - else there were errors
        at = now.pool_at if isinstance(now, PoolNow) else now(offer.id).pool_at
        choices = [
            choice
            for choice in prospects(offer.id, tenant.pk, at=at)
            if not request.gpu_types or choice.gpu_type in request.gpu_types
        ]
        question = _Question(request, offer, spendable(tenant.pk, offer.book))
    answers = [_answer(question, choice) for choice in choices]
    # The best type: feasible, then nothing to wait for, then the fewest GPUs borrowed.
    return min(answers, key=lambda a: (not a.feasible, bool(a.reason_code), a.borrowed, a.price))


class _Question(NamedTuple):
    """What is asked about. `credit`: what the tenant may spend (None: without a limit)."""

    request: JobRequest
    offer: PoolOffer
    credit: Decimal | None


def _answer(question: _Question, choice: StartProspect) -> DryRun:
    """What one GPU type says. At best the tenant's whole quota is free, so the rest is borrowed."""
    request, offer, _ = question
    book, price = offer.book, choice.price
    if request.gpus > offer.gpus.get(choice.gpu_type, 0):
        numbers = {"needed": request.gpus, "capacity": offer.gpus.get(choice.gpu_type, 0)}
        return _refusal(Reason.TOO_LARGE, numbers, price, 0, book)
    at_best = max(0, request.gpus - choice.quota)
    own_now = max(0, choice.quota - choice.own_held)
    borrowed = max(at_best, request.gpus - own_now)
    never = _refused(question, choice, at_best, 0)
    if never is not None:
        return _refusal(*never, price, at_best, book)
    later = _refused(question, choice, borrowed, choice.borrowed_held)
    if later is None and request.gpus > choice.free:
        later = Reason.NO_FREE_GPUS, {"needed": request.gpus, "free": choice.free}
    if later is not None:
        detail = _detail(why(later[0].value, later[1], now=True))
        return DryRun(True, later[0].value, detail, price, borrowed, book)
    detail = f"It fits now: {request.gpus - borrowed} own GPUs and {borrowed} borrowed."
    return DryRun(True, "", detail, price if borrowed else ZERO, borrowed, book)


def _refused(
    question: _Question, choice: StartProspect, borrowed: int, held: int
) -> tuple[Reason, dict[str, object]] | None:
    """Why it may not borrow so many GPUs beside the `held` ones; None: it may."""
    request, offer, credit = question
    if not borrowed:
        return None
    if choice.may_borrow is not None and held + borrowed > choice.may_borrow:
        return Reason.QUOTA_LIMIT, {
            "quota": choice.quota,
            "own": choice.own_held,
            "borrowed": held,
            "may_borrow": choice.may_borrow,
            "needed": request.gpus,
        }
    if request.max_price is not None and choice.price > request.max_price:
        return Reason.PRICE_ABOVE_MAX, {"price": choice.price, "max_price": request.max_price}
    lease_us = offer.lease_s * SECOND_US
    term = to_credits(worst_case_micro(borrowed, to_micro(choice.price), lease_us))
    if credit is not None and term > credit:
        return Reason.BUDGET, {"needed": term, "spendable": credit}
    return None


def _refusal(
    reason: Reason, numbers: Mapping[str, object], price: Decimal, borrowed: int, book: str
) -> DryRun:
    detail = _detail(why(reason.value, numbers))
    return DryRun(False, reason.value, detail, price, borrowed, book)


def _detail(reason: ReasonText) -> str:
    return f"{reason.sentence} {reason.next_step}"
