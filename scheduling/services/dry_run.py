"""Says whether a specification could run as quotas, limits and prices stand. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from evenshare_core.domain.reasons import Reason
from evenshare_core.money.fixed_point import to_credits, to_micro, worst_case_micro
from evenshare_core.units import SECOND_US
from scheduling.engine.clock import PoolNow
from scheduling.selectors.offers import pool_offer
from scheduling.selectors.prospects import StartProspect, prospects, spendable
from scheduling.selectors.reasons import why
from scheduling.services.spec import JobSpec, pool_named, read_spec
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
        offer = pool_offer(pool_named(spec), tenant.pk)
        try:
            read = read_spec(spec, offer)
        except InvalidInputError as error:
            if offer is None or any(one.code != "too_large" for one in error.errors):
                raise
            numbers = {"needed": spec["gpus"], "capacity": max(offer.gpus.values(), default=0)}
            return _refusal(Reason.TOO_LARGE, numbers, ZERO, 0, offer.book)
        at = now.pool_at if isinstance(now, PoolNow) else now(read.pool.id).pool_at
        choices = [
            choice
            for choice in prospects(read.pool.id, tenant.pk, at=at)
            if not read.gpu_types or choice.gpu_type in read.gpu_types
        ]
        credit = spendable(tenant.pk, read.pool.book)
    answers = [_answer(read, choice, credit) for choice in choices]
    # The best type: feasible, then nothing to wait for, then the fewest GPUs borrowed.
    return min(answers, key=lambda a: (not a.feasible, bool(a.reason_code), a.borrowed, a.price))


def _answer(spec: JobSpec, choice: StartProspect, credit: Decimal | None) -> DryRun:
    """What one GPU type says. At best the tenant's whole quota is free, so the rest is borrowed."""
    book, price = spec.pool.book, choice.price
    if spec.gpus > spec.pool.gpus.get(choice.gpu_type, 0):
        numbers = {"needed": spec.gpus, "capacity": spec.pool.gpus.get(choice.gpu_type, 0)}
        return _refusal(Reason.TOO_LARGE, numbers, price, 0, book)
    at_best = max(0, spec.gpus - choice.quota)
    own_now = max(0, choice.quota - choice.own_held)
    borrowed = max(at_best, spec.gpus - own_now)
    never = _refused(spec, choice, at_best, 0, credit)
    if never is not None:
        return _refusal(*never, price, at_best, book)
    later = _refused(spec, choice, borrowed, choice.borrowed_held, credit)
    if later is None and spec.gpus > choice.free:
        later = Reason.NO_FREE_GPUS, {"needed": spec.gpus, "free": choice.free}
    if later is not None:
        told = why(later[0].value, later[1], now=True)
        return DryRun(True, later[0].value, f"{told.sentence} {told.next_step}", price, borrowed,
                      book)  # fmt: skip
    detail = f"It fits now: {spec.gpus - borrowed} own GPUs and {borrowed} borrowed."
    return DryRun(True, "", detail, price if borrowed else ZERO, borrowed, book)


def _refused(
    spec: JobSpec, choice: StartProspect, borrowed: int, held: int, credit: Decimal | None
) -> tuple[Reason, dict[str, object]] | None:
    """Why it may not borrow so many GPUs beside the `held` ones; None: it may."""
    if not borrowed:
        return None
    if choice.may_borrow is not None and held + borrowed > choice.may_borrow:
        return Reason.QUOTA_LIMIT, {
            "quota": choice.quota,
            "own": choice.own_held,
            "borrowed": held,
            "may_borrow": choice.may_borrow,
            "needed": spec.gpus,
        }
    if spec.max_price is not None and choice.price > spec.max_price:
        return Reason.PRICE_ABOVE_MAX, {"price": choice.price, "max_price": spec.max_price}
    lease_us = spec.pool.lease_s * SECOND_US
    term = to_credits(worst_case_micro(borrowed, to_micro(choice.price), lease_us))
    if credit is not None and term > credit:
        return Reason.BUDGET, {"needed": term, "spendable": credit}
    return None


def _refusal(
    reason: Reason, numbers: Mapping[str, object], price: Decimal, borrowed: int, book: str
) -> DryRun:
    told = why(reason.value, numbers)
    return DryRun(False, reason.value, f"{told.sentence} {told.next_step}", price, borrowed, book)
