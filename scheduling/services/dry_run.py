"""Dry runs: whether a specification could run with present quotas, limits and prices.

Writes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace as replace_fields
from datetime import datetime
from decimal import Decimal
from time import perf_counter
from typing import Annotated, NamedTuple

import structlog
from django.utils.translation import gettext as _
from msgspec.structs import replace

from evenshare_core.domain.offers import lower_limit
from evenshare_core.domain.reason_texts import LARGER_THAN_POOL
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.utilities import stated_utility
from evenshare_core.money.fixed_point import to_credits, to_micro, worst_case_micro
from evenshare_core.policies.policy import PricedStart
from evenshare_core.policies.registry import POLICIES
from evenshare_core.policies.registry import options as policy_options
from evenshare_core.units import SECOND_US
from scheduling.engine.clock import Clocks, PoolNow
from scheduling.engine.installed import missing_part
from scheduling.models import Round
from scheduling.requests.jobs import JobRequest
from scheduling.requests.sweeps import is_sweep
from scheduling.selectors.jobs.reasons import why, written
from scheduling.selectors.pools.offers import PoolOffer, pool_offer
from scheduling.selectors.sharing.settings import price_limit_of
from scheduling.selectors.tenants.prospects import StartProspect, prospects, spendable
from scheduling.services.asked_round import AskedRound, ask_round
from scheduling.services.deadline_preview import DeadlinePreview, preview_deadline
from scheduling.services.job_requests import deadline_errors, named_pool, read_job_request
from scheduling.services.next_round import NextRound, next_round
from scheduling.services.sweep_jobs import read_first_job
from tenants.answers import Answer, Hidden, about
from tenants.input.errors import InvalidInputError
from tenants.language import number, plural
from tenants.models import Tenant, User
from tenants.scopes import site_scope, tenant_scope

log = structlog.get_logger(__name__)
BUDGET_S = 1.5  # in seconds; a simulation that takes longer has no reliable estimate
ANSWER_S = 2.0  # in seconds, in total: the last round may end after the budget
PLANNED = frozenset({Reason.PLANNED_LATER.value, Reason.NEXT_BATCH.value})
PRICES = frozenset({Reason.PRICE_ABOVE_MAX.value, Reason.PRICE_ABOVE_VALUE.value})
NOTE = "feasibility, not a reservation"
ZERO = Decimal("0.000000")


class DryRun(Answer, frozen=True, rename={"deadline": "deadline_answer"}):
    """Whether a job could run, and the price of a borrowed GPU-hour.

    `price`: the price in credits posted now. `price_after`: the price from the job's first renewal
    on, with the job's GPUs in use, if nothing else changes.
    """

    COMPONENT = "DryRunAnswer"

    feasible: bool  # some round could start it with today's quota, limits and price.
    # The reason if it cannot start, or for its wait; empty if it fits now.
    reason_code: str
    detail: str
    price: Decimal
    price_after: Decimal
    # Own and borrowed GPUs if it started now; 0 if the pool is too small for it.
    own: int
    borrowed: int
    currency: str = ""  # set by the caller, which knows the book
    note: str = NOTE
    deadline: Annotated[
        DeadlinePreview | None,
        about("The next round's answer to the deadline; null: the job has no deadline."),
    ] = None
    # The next round's decision; the fields above agree with it.
    next_round: Annotated[
        NextRound | None,
        about("null: no round was decided, for example because the job is infeasible."),
    ] = None
    book: Hidden[str] = ""
    never: Hidden[bool] = False  # a submission would be refused
    gpu_type: Hidden[str] = ""  # the GPU type of the other fields; empty if the pool is too small
    other_types: Hidden[tuple[str, ...]] = ()  # GPU types on which some round could also start it


def dry_run_job(
    *,
    tenant: Tenant,
    spec: Mapping[str, object],
    now: Clocks,
    user: User | None = None,
    looks_ahead: bool = True,
    timer: Callable[[], float] = perf_counter,
) -> DryRun:
    """Return whether the job of a specification could run, if `user` submitted it.

    With `looks_ahead`, the next round is decided with the job. If it leaves the job waiting, the
    following hours are simulated. The simulation starts no round after `BUDGET_S` of `timer`, and
    no round that would end after `ANSWER_S`.

    If a job is larger than the pool (`too_large`) or than the tenant's limit (`quota_limit`), the
    answer states this. Any other error in the specification is raised.

    Raises:
        InvalidInputError: the specification is wrong.
    """
    began_s = timer()
    answer, request, offer = _dry_run(tenant, spec, now)
    if offer is not None and (absent := missing_part(offer.policy, offer.executor)):
        return replace(
            answer, detail=_("No round of this pool is decided: {absent}.").format(absent=absent)
        )
    if request is None or offer is None or not (looks_ahead or request.deadline):
        return answer
    at = now(offer.id)
    asked, asked_s = None, timer()
    if looks_ahead and answer.feasible and _is_quick(offer):
        asked = _ask(tenant, user, request, offer, at)
    if asked is not None and asked.decision is not None:
        now_s = timer()
        # A simulated round takes about as long as this round took to read and decide.
        end_s = began_s + min(BUDGET_S, ANSWER_S - (now_s - asked_s))
        left_s = end_s - now_s
        answer = _with_next_round(answer, asked, left_s, timer)
    if not request.deadline:
        return answer
    preview = preview_deadline(
        tenant_id=tenant.pk, request=request, offer=offer, now=at, user=user, asked=asked
    )
    return replace(answer, deadline=preview)


def _is_quick(offer: PoolOffer) -> bool:
    with site_scope():
        last = Round.objects.filter(pool_id=offer.id).order_by("-number")
        took_us = last.values_list("snapshot_us", "decide_us").first() or (0, 0)
    return sum(took_us) < BUDGET_S * SECOND_US


def _ask(
    tenant: Tenant, user: User | None, request: JobRequest, offer: PoolOffer, at: PoolNow
) -> AskedRound | None:
    """Return the next round with the job, or None if it cannot be read."""
    try:
        return ask_round(tenant_id=tenant.pk, user=user, request=request, offer=offer, now=at)
    except Exception:
        log.warning("dry_run.round_failed", pool=offer.id, exc_info=True)
        return None


def _with_next_round(
    answer: DryRun, asked: AskedRound, left_s: float, timer: Callable[[], float]
) -> DryRun:
    """Return the answer with the next round's decision; unchanged if the simulation fails."""
    try:
        return _agreeing(answer, next_round(asked, budget_s=left_s, timer=timer))
    except Exception:
        log.warning("dry_run.next_round_failed", pool=asked.snapshot.pool, exc_info=True)
        return answer


def _agreeing(answer: DryRun, preview: NextRound) -> DryRun:
    """Return the answer in agreement with the round, which knows more than quotas and free GPUs."""
    if not preview.starts:
        code = preview.reason_code
        if code in {"", Reason.TOO_LARGE.value}:
            return replace(answer, next_round=preview)
        # keep the reason: the plan results from the price
        if code in PLANNED and answer.reason_code in PRICES:
            return replace(answer, next_round=preview, detail=f"{answer.detail} {preview.text}")
        return replace(answer, next_round=preview, reason_code=code, detail=preview.text)
    same = (preview.gpu_type, preview.own, preview.borrowed) == (
        answer.gpu_type,
        answer.own,
        answer.borrowed,
    )
    if same and not answer.reason_code and not preview.preempted.count:
        return replace(answer, next_round=preview)
    types = {answer.gpu_type, *answer.other_types} - {preview.gpu_type}
    return replace(
        answer,
        next_round=preview,
        reason_code="",
        detail=preview.text,
        gpu_type=preview.gpu_type,
        other_types=tuple(sorted(types)),
        own=preview.own,
        borrowed=preview.borrowed,
        price=to_credits(preview.price_micro),
        price_after=to_credits(preview.after_micro),
    )


def _dry_run(
    tenant: Tenant, spec: Mapping[str, object], now: Clocks
) -> tuple[DryRun, JobRequest | None, PoolOffer | None]:
    """Return the answer without its deadline, with the request and the pool.

    The request is None if a submission would refuse it.
    """
    with tenant_scope(tenant.pk):
        offer = pool_offer(named_pool(spec), tenant.pk)
        try:
            request = _reader(spec)(spec, offer)
        except InvalidInputError as error:
            return replace(_refusal(tenant, spec, offer, error, now), never=True), None, offer
        assert offer is not None  # noqa: S101 - else there were errors
        at = now(offer.id).pool_at
        deadline_errors(request, at).raise_any()
        return best_answer(tenant, request, offer, at), request, offer


def _reader(spec: Mapping[str, object]) -> Callable[[object, PoolOffer | None], JobRequest]:
    """Return the reader of a job's request; of a sweep it reads the first job."""
    return read_first_job if is_sweep(spec) else read_job_request


def _refusal(
    tenant: Tenant,
    spec: Mapping[str, object],
    offer: PoolOffer | None,
    error: InvalidInputError,
    now: Clocks,
) -> DryRun:
    """Return the answer if only the job's size is wrong; otherwise raise `error`."""
    codes = {one.code for one in error.errors}
    if offer is not None and codes == {"too_large"}:
        # Only the size is wrong, so a request for one GPU is valid and gives the accepted types.
        one = _reader(spec)({**spec, "gpus": 1}, replace_fields(offer, at_most={}))
        accepted = one.gpu_types or tuple(sorted(offer.gpus))
        largest = max(accepted, key=lambda name: offer.gpus.get(name, 0), default="")
        return _too_large(spec["gpus"], largest, offer)
    if offer is not None and codes == {"quota_limit"}:
        request = _reader(spec)(spec, replace_fields(offer, at_most={}))
        return best_answer(tenant, request, offer, now(offer.id).pool_at)
    raise error


def best_answer(tenant: Tenant, request: JobRequest, offer: PoolOffer, at: datetime) -> DryRun:
    """Return the best GPU type's answer: feasible, then without a wait, then fewest borrowed."""
    own = None if request.max_price is None else to_micro(request.max_price)
    most = lower_limit(own, price_limit_of(offer.id, tenant.pk))
    max_price = None if most is None else to_credits(most)
    question = _Question(request, offer, spendable(tenant.pk, offer.book, at), max_price)
    answers = [
        _answer(question, choice)
        for choice in prospects(offer.id, tenant.pk, at=at)
        if not request.gpu_types or choice.gpu_type in request.gpu_types
    ]
    best = min(
        answers,
        key=lambda a: (
            not a.feasible,
            a.reason_code == Reason.TOO_LARGE,
            bool(a.reason_code),
            a.borrowed,
            a.price,
        ),
    )
    others = tuple(a.gpu_type for a in answers if a.feasible and a.gpu_type != best.gpu_type)
    return replace(best, other_types=others)


class _Question(NamedTuple):
    """A request with its limits.

    `credit`: the tenant's spendable credit. `max_price`: the highest price that the job pays for a
    GPU-hour, by its own or its tenant's limit. Both are None if there is no limit.
    """

    request: JobRequest
    offer: PoolOffer
    credit: Decimal | None
    max_price: Decimal | None


def _answer(question: _Question, choice: StartProspect) -> DryRun:
    """Return the answer for a GPU type.

    At best the tenant's whole quota is free, and the rest is borrowed.
    """
    request, offer = question.request, question.offer
    if request.gpus > offer.gpus.get(choice.gpu_type, 0):
        return _too_large(request.gpus, choice.gpu_type, offer)
    at_best = max(0, request.gpus - choice.quota)
    own_now = max(0, choice.quota - choice.own_held)
    borrowed = max(at_best, request.gpus - own_now)
    binds = _refused(question, choice, at_best, 0)
    if binds is not None:
        return _priced(question, choice, at_best, binds, feasible=False)
    later = _refused(question, choice, borrowed, choice.borrowed_held)
    if later is None and borrowed:
        later = _price_above_value(question, choice)
    if later is None and request.gpus > choice.free:
        later = Reason.NO_FREE_GPUS, {"needed": request.gpus, "free": choice.free}
    return _priced(question, choice, borrowed, later, feasible=True)


def _priced(
    question: _Question,
    choice: StartProspect,
    borrowed: int,
    binds: tuple[Reason, Mapping[str, object]] | None,
    *,
    feasible: bool,
) -> DryRun:
    """Return the answer with its numbers; `binds`: why the job cannot start, now or at all."""
    gpus = question.request.gpus
    own = gpus - borrowed
    if binds is None:
        fits = _("It fits now: {own} and {borrowed} borrowed.")
        code, detail = "", fits.format(own=plural(own, "own GPU"), borrowed=number(borrowed))
    else:
        reason = why(binds[0].value, binds[1], now=feasible)
        code, detail = binds[0].value, f"{reason.sentence} {reason.next_step}"
    price = choice.price if borrowed or binds is not None else ZERO
    after = choice.price_with(gpus) if borrowed else price
    return DryRun(
        feasible, code, detail, price, after, own, borrowed,
        book=question.offer.book, gpu_type=choice.gpu_type,
    )  # fmt: skip # rows of what belongs together


def _refused(
    question: _Question, choice: StartProspect, borrowed: int, held: int
) -> tuple[Reason, dict[str, object]] | None:
    """Return why the job may not borrow these GPUs on top of the `held` ones, or None if it may."""
    request, offer, credit, max_price = question
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
    if max_price is not None and choice.price > max_price:
        return Reason.PRICE_ABOVE_MAX, {"price": choice.price, "max_price": max_price}
    lease_us = offer.lease_s * SECOND_US
    term = to_credits(worst_case_micro(borrowed, to_micro(choice.price), lease_us))
    if credit is not None and term > credit:
        return Reason.BUDGET, {"needed": term, "spendable": credit}
    return None


def _price_above_value(
    question: _Question, choice: StartProspect
) -> tuple[Reason, dict[str, object]] | None:
    """Return why the pool's policy refuses the present price for the job, or None."""
    request, offer = question.request, question.offer
    if offer.policy not in POLICIES:
        return None
    most = question.max_price
    start = PricedStart(
        gpus=request.gpus,
        utility=stated_utility(0, request.utility),
        max_price_micro=None if most is None else to_micro(most),
        base_micro=to_micro(choice.base),
        price_micro=to_micro(choice.price),
        after_micro=to_micro(choice.price_with(request.gpus)),
        lease_us=offer.usual_lease_s * SECOND_US,
    )
    options = policy_options(offer.policy, dict(offer.options))
    compared = POLICIES[offer.policy].value_and_price(options, start)
    if compared is None or compared[0] >= compared[1]:
        return None
    value, price = map(to_credits, compared)
    if value == most:
        return Reason.PRICE_ABOVE_MAX, {"price": price, "max_price": most}
    return Reason.PRICE_ABOVE_VALUE, {"gpu_type": choice.gpu_type, "value": value, "price": price}


def _too_large(gpus: object, gpu_type: str, offer: PoolOffer) -> DryRun:
    """Return the answer for a job larger than the pool: it gets no GPUs.

    `gpu_type`: the accepted type with the most GPUs; empty in a pool without nodes.
    """
    code = Reason.TOO_LARGE.value
    capacity = offer.gpus.get(gpu_type, 0)
    numbers = {"needed": gpus, "capacity": capacity, "gpu_type": gpu_type}
    reason = written(code, LARGER_THAN_POOL, numbers if gpu_type else {}, now=True)
    detail = f"{reason.sentence} {reason.next_step}"
    return DryRun(False, code, detail, ZERO, ZERO, 0, 0, book=offer.book)
