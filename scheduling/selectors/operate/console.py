"""Reads for the operator's console: problems that need an operator, and the health of rounds."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, F, Max, Q, Sum

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
from scheduling.selectors.rounds.sealing import RoundFindings
from tenants.models import Budget
from tenants.selectors.quotas import quotas_in_force

# If an intent is open for more rounds than this, it does not reach its executor.
STUCK_ROUNDS = 3
LISTED = 20
HEALTH_ROUNDS = 20


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


def all_pools() -> list[PoolFacts]:
    """Return every pool with its last round and clock, oldest first."""
    ids = Pool.objects.order_by("id").values_list("id", flat=True)
    pools = (pool_facts(pool_id) for pool_id in ids)
    return [facts for facts in pools if facts is not None]


def damaged_rounds() -> list[RoundFindings]:
    """Return pools with damaged stored rounds. A single query."""
    rows = RoundScrub.objects.exclude(damaged=[]).order_by("pool_id")
    return [RoundFindings.of(*row) for row in rows.values_list("pool__name", "damaged")]


def pool_failures() -> list[RoundFailure]:
    """Return the failures of pools whose rounds fail. A single query."""
    return list(RoundFailure.objects.select_related("pool").order_by("pool_id"))


def quarantined_jobs(pool_id: int | None = None) -> list[Job]:
    """Return jobs in quarantine, oldest first; at most `LISTED`. A single query."""
    rows = Job.objects.exclude(quarantine="").filter(state=Job.State.PENDING).order_by("id")
    if pool_id is not None:
        rows = rows.filter(pool_id=pool_id)
    return list(rows.select_related("tenant", "pool")[:LISTED])


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


def failing_executors() -> list[ExecutorHealth]:
    """Return executors with an open breaker, or whose leases vanished at the same time."""
    rows = ExecutorHealth.objects.filter(
        Q(open_until__isnull=False) | Q(frozen_since__isnull=False)
    )
    return list(rows.select_related("pool").order_by("pool_id"))


def spent_budgets() -> list[Budget]:
    """Return budgets that reached their limit: running jobs continue, no new term may borrow."""
    left = F("spendable") + F("credit_limit") - F("reserved")
    rows = Budget.objects.filter(credit_limit__isnull=False).alias(left=left).filter(left__lte=0)
    return list(rows.select_related("tenant").order_by("tenant__slug", "book"))


def last_rounds(pool_id: int, limit: int = HEALTH_ROUNDS) -> list[Round]:
    """Return a pool's last rounds, newest first, without their shares and certificates."""
    rows = Round.objects.filter(pool_id=pool_id).order_by("-number")
    return list(rows.defer("shares", "superseded", "certificate")[:limit])
