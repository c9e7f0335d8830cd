"""A tenant's quota, use, deserved GPUs, running and waiting jobs in a pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from django.db.models import DurationField, ExpressionWrapper, F, OuterRef, Subquery
from django.db.models.functions import Coalesce

from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.reasons import Reason
from evenshare_core.policies.job_reasons import group_numbers, turns_of
from evenshare_core.units import SECOND_US
from scheduling.models import Job, Lease, LeaseTerm, Node, Round
from scheduling.selectors.jobs.phases import has_begun
from scheduling.selectors.jobs.reasons import ReasonText, why
from scheduling.selectors.jobs.too_large import Sizes, read_sizes, why_too_large
from scheduling.selectors.pools.now import idle_gpus
from scheduling.selectors.rounds.stored import ReplayError, round_values
from scheduling.selectors.sharing.quotas import kept_quotas
from scheduling.selectors.sharing.settings import narrowed, sharing_rules
from tenants.scopes import site_reading
from tenants.selectors.quotas import quotas_in_force

HOLDING = (Lease.State.WAITING, Lease.State.LAUNCHING, Lease.State.RUNNING)


@dataclass(frozen=True, slots=True)
class LastRoundClaim:
    """A tenant's row of the last round for a GPU type; GPU-seconds are since the pool's start.

    `quota` includes trades: `swapped` GPUs of it were bought, or sold if negative.
    """

    gpu_type: str
    quota: int
    demand: int
    received_gpu_s: float
    deserved_gpu_s: float
    rho: float | None
    swapped: int = 0


@dataclass(frozen=True, slots=True)
class LastRound:
    """The last round, as one tenant's dashboard shows it.

    `lenders`: the other tenants that lend, by id, and how many GPUs of their quota each lends.
    `borrowers`: the other tenants that borrow GPU types that this tenant lends, and how many GPUs.
    `lent`: this tenant's part of the borrowed GPUs, in the ratio of lendable idle quota.
    """

    number: int
    at: datetime
    claims: tuple[LastRoundClaim, ...]
    lenders: tuple[tuple[int, int], ...]
    borrowed: int
    idle: int
    borrowers: tuple[tuple[int, int], ...] = ()
    lent: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class WaitingJobs:
    """Jobs that wait for the same reason, with the numbers of the last round."""

    jobs: int
    gpus: int
    gpu_type: str
    why: ReasonText


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A lease of a job that holds GPUs, or will once other leases release them.

    `lasts_s`: the length of its term in pool time. `is_starting`: the job's program has not
    started, in this lease or in the one before a move.
    """

    lease: Lease
    nodes: tuple[str, ...]
    lasts_s: float
    is_starting: bool

    @property
    def hourly(self) -> Decimal:
        """Credits per hour at the term's price."""
        return self.lease.borrowed * self.lease.price


@dataclass(frozen=True, slots=True)
class JobCounts:
    """The numbers of a tenant's waiting and active jobs in a pool.

    `ever`: whether it has ever had a job there.
    """

    pending: int
    active: int
    ever: bool


def last_round(pool_id: int, tenant_id: int) -> LastRound | None:
    """Return the last round's rows for a tenant, or None before the first round. Three queries."""
    row = Round.objects.filter(pool_id=pool_id).order_by("-number").first()
    if row is None:
        return None
    shares: list[dict[str, Any]] = row.shares
    with site_reading():
        kept = kept_quotas(pool_id, row.at)
    lent, borrowers = lent_now(shares, kept, tenant_id)
    return LastRound(
        number=row.number,
        at=row.at,
        claims=tuple(
            LastRoundClaim(
                gpu_type=share["gpu_type"],
                quota=share["quota"] + share.get("swapped", 0),
                demand=share["demand"],
                received_gpu_s=share["alloc_gpu_us"] / SECOND_US,
                deserved_gpu_s=share["fair_gpu_us"] / SECOND_US,
                rho=share["rho_before"],
                swapped=share.get("swapped", 0),
            )
            for share in shares
            if share["tenant"] == tenant_id
        ),
        lenders=_lenders((share for share in shares if share["tenant"] != tenant_id), kept),
        borrowed=sum(share["borrowed"] for share in shares),
        idle=idle_gpus(row.summary),
        borrowers=borrowers,
        lent=lent,
    )


def _lenders(
    shares: Iterable[dict[str, Any]], kept: Mapping[tuple[int, str], Entitlement]
) -> tuple[tuple[int, int], ...]:
    lent = Counter[int]()
    for share in shares:
        lent[share["tenant"]] += _lendable(share, kept)
    return _largest_first(lent)


def lent_now(
    shares: Iterable[dict[str, Any]], kept: Mapping[tuple[int, str], Entitlement], tenant_id: int
) -> tuple[Fraction, tuple[tuple[int, int], ...]]:
    """Return the tenant's part of the GPUs that others borrow, and these others, largest first.

    Lenders' parts are in the ratio of lendable idle quota, as their income (docs/money.md).
    """
    lent, borrowers = Fraction(0), Counter[int]()
    types: dict[str, list[dict[str, Any]]] = {}
    for share in shares:
        types.setdefault(share["gpu_type"], []).append(share)
    for rows in types.values():
        lends = {row["tenant"]: _lendable(row, kept) for row in rows}
        borrows = {row["tenant"]: row["borrowed"] for row in rows if row["tenant"] != tenant_id}
        own, borrowed = lends.get(tenant_id, 0), sum(borrows.values())
        if own and borrowed:
            lent += min(Fraction(own), Fraction(own * borrowed, sum(lends.values())))
            borrowers.update(borrows)
    return lent, _largest_first(borrowers)


def _lendable(share: Mapping[str, Any], kept: Mapping[tuple[int, str], Entitlement]) -> int:
    """Return the idle GPUs of a quota that others may borrow."""
    idle = max(0, share["quota"] + share.get("swapped", 0) - share["own"])
    terms = kept.get((share["tenant"], share["gpu_type"]))
    return terms.lendable(idle) if terms else idle


def _largest_first(gpus: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    rows = (item for item in gpus.items() if item[1])
    return tuple(sorted(rows, key=lambda item: (-item[1], item[0])))


def waiting_jobs(pool_id: int, number: int, tenant_id: int) -> list[WaitingJobs]:
    """Return why a tenant's jobs wait, by the decision of a round, most jobs first.

    The list is empty if the round's bytes are no longer kept. This takes one
    more query if a job is too large.
    """
    round_ = Round.objects.only("pool_id", "number", "decision_sha256")
    row = round_.filter(pool_id=pool_id, number=number).first()
    if row is None:
        return []
    own = [skip for skip in _skips(DecidedRound(row)) if skip.tenant == tenant_id]
    is_too_large = any(skip.reason == Reason.TOO_LARGE for skip in own)
    sizes = read_sizes([pool_id])[pool_id] if is_too_large else {}
    waiting = [
        WaitingJobs(skip.jobs, skip.gpus, skip.numbers.get("gpu_type", ""), _why(skip, sizes))
        for skip in own
    ]
    return sorted(waiting, key=lambda wait: (-wait.jobs, wait.why.code, wait.gpu_type))


def _why(skip: SkipTotals, sizes: Sizes) -> ReasonText:
    """Return why the jobs wait; if several are too large, the text describes the smallest one."""
    if skip.reason != Reason.TOO_LARGE or "needed" not in skip.numbers:
        return why(skip.reason, skip.numbers)
    named = {skip.numbers.get("gpu_type", ""), *skip.numbers.get("other_types", ())}
    return why_too_large(skip.numbers["needed"], named & set(sizes), sizes, skip.numbers)


class DecidedRound:
    """A round as a cache key: equal if the bytes of the decision are equal."""

    def __init__(self, round_: Round) -> None:
        self.round = round_

    def __hash__(self) -> int:
        return hash(self.round.decision_sha256)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DecidedRound)
            and self.round.decision_sha256 == other.round.decision_sha256
        )


class SkipTotals(NamedTuple):
    """A tenant's jobs that were skipped for one reason: their number instead of a list."""

    tenant: int
    reason: str
    jobs: int
    gpus: int
    numbers: dict[str, Any]


@lru_cache(maxsize=4)
def _skips(kept: DecidedRound) -> tuple[SkipTotals, ...]:
    """Return the skips of a decision, without their lists of jobs.

    It is cached because every open dashboard requests the same round, and decoding a round with
    10,000 waiting jobs is slow. A few hundred of these rows need little memory.
    """
    try:
        snapshot, decision = round_values(kept.round)
    except ReplayError:
        return ()
    turns = turns_of(snapshot, decision)
    return tuple(
        SkipTotals(
            skip.tenant, skip.reason.value, len(skip.jobs), skip.gpus, group_numbers(skip, turns)
        )
        for skip in decision.skips
    )


def running_jobs(pool_id: int, tenant_id: int) -> list[RunningJob]:
    """Return the tenant's leases that hold GPUs or are about to, largest first. Two queries."""
    leases = list(
        Lease.objects.filter(pool_id=pool_id, tenant_id=tenant_id, state__in=HOLDING)
        .select_related("job", "gpu_type")
        .annotate(lasts=term_length(), has_begun=has_begun("job"))
        .order_by("-gpus", "id")
    )
    names = node_names(place[0] for lease in leases for place in lease.placement)
    return [
        RunningJob(
            lease,
            tuple(sorted(names.get(place[0], "?") for place in lease.placement)),
            lease.lasts.total_seconds(),
            is_starting=not lease.has_begun,
        )
        for lease in leases
    ]


def term_length() -> Coalesce:
    """Return the expression for the length of a lease's current term."""
    lasts = ExpressionWrapper(F("expires_at") - F("starts_at"), output_field=DurationField())
    terms = LeaseTerm.objects.filter(lease=OuterRef("pk"), number=OuterRef("term"))
    first = ExpressionWrapper(F("expires_at") - F("granted_at"), output_field=DurationField())
    return Coalesce(Subquery(terms.values(lasts=lasts)), first)


def node_names(ids: Iterable[int]) -> dict[int, str]:
    """Return names of nodes by id. A single query, none if `ids` is empty."""
    wanted = set(ids)
    if not wanted:
        return {}
    return dict(Node.objects.filter(id__in=wanted).values_list("id", "name"))


def quotas_now(pool_id: int, tenant_id: int, at: datetime) -> list[Entitlement]:
    """Return a tenant's quotas in force at an instant of pool time, limited by its own settings.

    They are not scaled to the GPUs that are up. Two queries.
    """
    rows = (
        quotas_in_force(pool_id, at)
        .filter(tenant_id=tenant_id)
        .order_by("gpu_type__rank", "gpu_type__name")
        .values_list("gpu_type__name", "gpus", "mode", "lend_limit")
    )
    bounds = [
        Entitlement(tenant_id, name, gpus, Mode(mode), lend_limit=lends)
        for name, gpus, mode, lends in rows
    ]
    rules = sharing_rules(pool_id, at, tenants=[tenant_id])
    return list(narrowed(bounds, rules))


def job_counts(pool_id: int, tenant_id: int) -> JobCounts:
    """Return the numbers of a tenant's waiting and active jobs. At most two queries."""
    jobs = Job.objects.filter(tenant_id=tenant_id, pool_id=pool_id)
    states = list(jobs.filter(state__in=Job.ACTIVE_STATES).values_list("state", flat=True))
    return JobCounts(
        pending=states.count(Job.State.PENDING),
        active=len(states),
        ever=bool(states) or jobs.exists(),
    )
