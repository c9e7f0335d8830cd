"""Throughput of a mixed pool by round: GPUs times speed, where the job's slowest type is 1."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from scheduling.models import Round
from scheduling.selectors.visibility import Visibility, VisibleTenant
from tenants.sql import fetch_rows

# The number of rounds that are read; a chart shows about POINTS of them.
ROUNDS, POINTS = 2000, 200


@dataclass(frozen=True, slots=True)
class ThroughputPoint:
    """A round's throughput, and the policy with options that decided the round."""

    number: int
    at: datetime
    milli: int
    policy: str


@dataclass(frozen=True, slots=True)
class PolicyPeriod:
    """Consecutive rounds of one policy; `mean_milli` is the mean of their throughputs."""

    policy: str
    first: int
    since: datetime
    until: datetime
    rounds: int
    mean_milli: int


@dataclass(frozen=True, slots=True)
class TenantSpeed:
    """A tenant after the last round; `tenant` is None for the sum of all hidden tenants."""

    tenant: VisibleTenant | None
    gpus: int
    milli: int

    @property
    def each_milli(self) -> int | None:
        """The mean speed of its GPUs; None if it holds none."""
        return self.milli // self.gpus if self.gpus else None


@dataclass(frozen=True, slots=True)
class Throughput:
    """A pool's throughput now and over its last rounds, oldest first."""

    moments: tuple[ThroughputPoint, ...]
    policy_periods: tuple[PolicyPeriod, ...]
    tenants: tuple[TenantSpeed, ...]

    @property
    def last(self) -> ThroughputPoint:
        return self.moments[-1]


_MOMENTS = """
SELECT * FROM (
    SELECT number, at, (summary->>'throughput_milli')::bigint, summary->>'policy'
    FROM scheduling_round
    WHERE pool_id = %s AND at >= %s AND summary ? 'throughput_milli'
    ORDER BY number DESC LIMIT %s
) last ORDER BY number
"""


def read_throughput(pool_id: int, visibility: Visibility, *, since: datetime) -> Throughput | None:
    """Return a pool's throughput since an instant; None if no round recorded any. Two queries."""
    moments = _moments(pool_id, since)
    if not moments:
        return None
    shares = Round.objects.filter(pool_id=pool_id, number=moments[-1].number)
    rows = shares.values_list("shares", flat=True).get()
    return Throughput(thin(moments), policy_periods(moments), _tenants(rows, visibility))


def _moments(pool_id: int, since: datetime) -> list[ThroughputPoint]:
    return [ThroughputPoint(*row) for row in fetch_rows(_MOMENTS, [pool_id, since, ROUNDS])]


def policy_periods(moments: Sequence[ThroughputPoint]) -> tuple[PolicyPeriod, ...]:
    """Group consecutive rounds that the same policy decided."""
    runs: list[list[ThroughputPoint]] = []
    for moment in moments:
        if not runs or runs[-1][-1].policy != moment.policy:
            runs.append([])
        runs[-1].append(moment)
    return tuple(
        PolicyPeriod(
            rows[0].policy,
            rows[0].number,
            rows[0].at,
            rows[-1].at,
            len(rows),
            sum(row.milli for row in rows) // len(rows),
        )
        for rows in runs
    )


def thin(moments: Sequence[ThroughputPoint]) -> tuple[ThroughputPoint, ...]:
    """Return about POINTS of the rounds, evenly spaced, including the last."""
    step = -(-len(moments) // POINTS)
    return tuple(moments[(len(moments) - 1) % step :: step])


def _tenants(shares: Iterable[dict[str, Any]], visibility: Visibility) -> tuple[TenantSpeed, ...]:
    # The key None is the sum of the hidden tenants, and comes last.
    gpus, milli = Counter[int | None](), Counter[int | None]()
    for share in shares:
        tenant = share["tenant"] if visibility.of(share["tenant"]) else None
        gpus[tenant] += share["own"] + share["borrowed"]
        milli[tenant] += share.get("throughput_milli", 0)
    shown = [
        TenantSpeed(seen, gpus[tenant], milli[tenant])
        for tenant in gpus
        if tenant is not None and (seen := visibility.of(tenant))
    ]
    shown.sort(key=lambda row: row.tenant.number if row.tenant else 0)
    if gpus[None]:
        shown.append(TenantSpeed(None, gpus[None], milli[None]))
    return tuple(shown)


_OWN = """
SELECT r.number, r.at, x.milli, r.summary->>'policy'
FROM (
    SELECT number, at, summary, shares FROM scheduling_round
    WHERE pool_id = %s AND at >= %s AND summary ? 'throughput_milli'
    ORDER BY number DESC LIMIT %s
) r
CROSS JOIN LATERAL (
    SELECT coalesce(sum((share->>'throughput_milli')::bigint), 0)::bigint AS milli
    FROM jsonb_array_elements(r.shares) share WHERE (share->>'tenant')::bigint = %s
) x
ORDER BY r.number
"""


def tenant_throughput(
    pool_id: int, tenant_id: int, *, since: datetime
) -> tuple[ThroughputPoint, ...]:
    """Return a tenant's throughput over the last POINTS rounds since an instant. A single query.

    The result is empty for pools without profiles.
    """
    return tuple(
        ThroughputPoint(*row) for row in fetch_rows(_OWN, [pool_id, since, POINTS, tenant_id])
    )
