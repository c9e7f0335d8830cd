"""Reads for the operator's console: problems that need an operator, and the health of rounds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db.models import Count, F, Max, Q, Sum

from evenshare_core.units import MILLISECOND_US
from scheduling.models import (
    ExecutorHealth,
    Intent,
    Job,
    Node,
    Pool,
    Round,
    RoundFailure,
    RoundScrub,
)
from scheduling.selectors.pools.lines import PoolFacts, pool_facts
from tenants.models import Budget
from tenants.selectors.quotas import quotas_in_force

# If an intent is open for more rounds than this, it does not reach its executor.
STUCK_ROUNDS = 3
LISTED = 20
HEALTH_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class PoolFailure:
    """A pool whose rounds fail: first and last failure (wall time), their number, last error."""

    pool: str
    first_at: datetime
    at: datetime
    count: int
    error: str


@dataclass(frozen=True, slots=True)
class QuarantinedJob:
    """A job in quarantine, and why."""

    uid: UUID
    name: str
    tenant: str
    pool: str
    why: str


@dataclass(frozen=True, slots=True)
class DamagedRounds:
    """A pool with stored rounds whose bytes changed: their number, and the first of them."""

    pool: str
    count: int
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class QuotaExcess:
    """A pool and GPU type whose quotas exceed the GPUs of the nodes that are up."""

    pool: str
    gpu_type: str
    quota: int
    capacity: int


@dataclass(frozen=True, slots=True)
class StuckIntents:
    """Intents of a pool that the executor has not carried out for several rounds."""

    pool: str
    count: int
    oldest: datetime
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class FailingExecutor:
    """An executor whose breaker is open: failed calls in a row, and since when (wall time)."""

    pool: str
    failures: int
    since: datetime
    error: str


@dataclass(frozen=True, slots=True)
class FrozenLosses:
    """Leases of a pool that vanished at the same time.

    `missing` of `launched` leases are not listed since `since` (wall time). `accepted`: an operator
    confirmed that all of them are gone, and the next round ends them.
    """

    pool: str
    missing: int
    launched: int
    since: datetime
    accepted: bool


@dataclass(frozen=True, slots=True)
class SpentBudget:
    """A budget without spendable credit."""

    tenant: str
    book: str
    left: Decimal
    limit: Decimal


def all_pools() -> list[PoolFacts]:
    """Return every pool with its last round and clock, oldest first.

    Runs one query, plus those of `pool_facts` for each pool.
    """
    ids = Pool.objects.order_by("id").values_list("id", flat=True)
    pools = (pool_facts(pool_id) for pool_id in ids)
    return [facts for facts in pools if facts is not None]


def damaged_rounds() -> list[DamagedRounds]:
    """Return pools with damaged stored rounds. A single query."""
    rows = RoundScrub.objects.exclude(damaged=[]).order_by("pool_id")
    return [
        DamagedRounds(
            pool,
            len({row["number"] for row in damaged}),
            damaged[0]["number"],
            damaged[0]["text"],
        )
        for pool, damaged in rows.values_list("pool__name", "damaged")
    ]


def pool_failures() -> list[PoolFailure]:
    """Return pools whose rounds fail."""
    rows = RoundFailure.objects.order_by("pool_id")
    return [
        PoolFailure(*row)
        for row in rows.values_list("pool__name", "first_at", "at", "count", "error")
    ]


def quarantined_jobs(pool_id: int | None = None) -> list[QuarantinedJob]:
    """Return jobs in quarantine, oldest first; at most `LISTED`."""
    rows = Job.objects.exclude(quarantine="").filter(state=Job.State.PENDING).order_by("id")
    if pool_id is not None:
        rows = rows.filter(pool_id=pool_id)
    wanted = rows.values_list("uid", "name", "tenant__name", "pool__name", "quarantine")
    return [QuarantinedJob(*row) for row in wanted[:LISTED]]


def quotas_above_capacity(now: dict[int, datetime]) -> list[QuotaExcess]:
    """Return the pools and GPU types whose present quotas exceed the GPUs of nodes that are up.

    `now`: pool time by pool id.
    """
    capacity = {
        (row["pool"], row["gpu_type"]): row["all"]
        for row in Node.objects.filter(effective_state=Node.State.UP)
        .values("pool", "gpu_type")
        .annotate(all=Sum("gpus"))
    }
    excesses = []
    for pool_id, at in now.items():
        sums = (
            quotas_in_force(pool_id, at)
            .values("gpu_type", "gpu_type__name", "pool__name")
            .annotate(all=Sum("gpus"))
            .order_by("gpu_type")
        )
        for row in sums:
            there = capacity.get((pool_id, row["gpu_type"]), 0)
            if row["all"] > there:
                excess = QuotaExcess(row["pool__name"], row["gpu_type__name"], row["all"], there)
                excesses.append(excess)
    return excesses


def stuck_intents(pools: list[PoolFacts], now: dict[int, datetime]) -> list[StuckIntents]:
    """Return pools with intents that are open for more than `STUCK_ROUNDS` rounds."""
    stuck = []
    for facts in pools:
        step = timedelta(seconds=facts.round_s * facts.clock.scale)
        late = now[facts.id] - STUCK_ROUNDS * step
        rows = Intent.objects.filter(pool_id=facts.id, state=Intent.State.OPEN, at__lt=late)
        first = rows.order_by("at", "id").first()
        if first is not None:
            sums = rows.aggregate(count=Count("id"), attempts=Max("attempts"))
            stuck.append(
                StuckIntents(
                    facts.name, sums["count"], first.at, sums["attempts"], first.last_error
                )
            )
    return stuck


def executor_problems() -> tuple[list[FailingExecutor], list[FrozenLosses]]:
    """Return executors with an open breaker, and pools whose leases vanished at the same time.

    A single query.
    """
    down, frozen = [], []
    rows = ExecutorHealth.objects.filter(
        Q(open_until__isnull=False) | Q(frozen_since__isnull=False)
    )
    for row in rows.select_related("pool").order_by("pool_id"):
        name = row.pool.name
        if row.open_until is not None:
            since = row.failing_since or row.open_until
            down.append(FailingExecutor(name, row.failures, since, row.error))
        if row.frozen_since is not None:
            missing, accepted = len(row.missing), set(row.missing) <= set(row.accepted)
            frozen.append(FrozenLosses(name, missing, row.launched, row.frozen_since, accepted))
    return down, frozen


def spent_budgets() -> list[SpentBudget]:
    """Return budgets that reached their limit: running jobs continue, no new term may borrow."""
    rows = (
        Budget.objects.filter(credit_limit__isnull=False)
        .annotate(left=F("spendable") + F("credit_limit") - F("reserved"))
        .filter(left__lte=0)
        .order_by("tenant__slug", "book")
    )
    budgets = rows.values_list("tenant__slug", "book", "left", "credit_limit")
    return [
        SpentBudget(slug, book, left, limit or Decimal(0)) for slug, book, left, limit in budgets
    ]


@dataclass(frozen=True, slots=True)
class RoundStats:
    """A past round: its instant on both clocks, its counts and its durations in milliseconds."""

    number: int
    at: datetime
    wall_at: datetime
    scale: int
    granted: int
    renewed: int
    ended: int
    waiting: int
    snapshot_ms: int
    decide_ms: int
    fallback: str


def last_rounds(pool_id: int) -> list[RoundStats]:
    """Return a pool's last rounds, newest first."""
    rows = Round.objects.filter(pool_id=pool_id).order_by("-number")[:HEALTH_ROUNDS]
    return [
        RoundStats(
            number=row.number,
            at=row.at,
            wall_at=row.wall_at,
            scale=row.scale,
            granted=row.summary.get("granted", 0),
            renewed=row.summary.get("renewed", 0),
            ended=row.summary.get("ended", 0),
            waiting=row.summary.get("waiting", 0),
            snapshot_ms=row.snapshot_us // MILLISECOND_US,
            decide_ms=row.decide_us // MILLISECOND_US,
            fallback=row.fallback,
        )
        for row in rows
    ]
