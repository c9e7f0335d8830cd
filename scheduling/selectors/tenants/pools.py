"""A tenant's quota and use in each of its pools, read at the pool's own time."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from evenshare_core.fairness.rho import rho_of
from scheduling.models import Job
from scheduling.selectors.tenants.dashboard import HOLDING
from tenants.sql import fetch_rows


@dataclass(frozen=True, slots=True)
class PoolUse:
    """A tenant's use of a pool: its quota, GPUs held within and above it, queued jobs, GPU-time."""

    pool_id: int
    quota: int
    own: int
    borrowed: int
    queued: int
    received_gpu_s: float
    deserved_gpu_s: float

    @property
    def rho(self) -> float | None:
        """GPU-time received over GPU-time deserved; None if nothing was deserved."""
        return rho_of(self.received_gpu_s, self.deserved_gpu_s)


_USES = """
SELECT wanted.pool_id,
       coalesce(claim.quota, (
           SELECT sum(gpus) FROM tenants_quota
           WHERE pool_id = wanted.pool_id AND tenant_id = %(tenant)s AND valid_from <= wanted.at
             AND (valid_until IS NULL OR valid_until > wanted.at)
       ), 0),
       held.own, held.borrowed,
       (SELECT count(*) FROM scheduling_job
        WHERE pool_id = wanted.pool_id AND tenant_id = %(tenant)s AND state = %(pending)s),
       coalesce(claim.received, 0), coalesce(claim.deserved, 0)
FROM unnest(%(pools)s::bigint[], %(times)s::timestamptz[]) AS wanted(pool_id, at)
CROSS JOIN LATERAL (
    SELECT coalesce(sum(own), 0) AS own, coalesce(sum(borrowed), 0) AS borrowed
    FROM scheduling_lease
    WHERE pool_id = wanted.pool_id AND tenant_id = %(tenant)s AND state = ANY(%(holding)s)
) held
LEFT JOIN LATERAL (
    SELECT shares FROM scheduling_round
    WHERE pool_id = wanted.pool_id ORDER BY number DESC LIMIT 1
) last ON true
LEFT JOIN LATERAL (
    SELECT sum(s.quota + coalesce(s.swapped, 0)) AS quota, sum(s.alloc_gpu_us) / 1e6 AS received,
           sum(s.fair_gpu_us) / 1e6 AS deserved
    FROM jsonb_to_recordset(last.shares) AS s(
        tenant bigint, quota bigint, swapped bigint, alloc_gpu_us float, fair_gpu_us float
    )
    WHERE s.tenant = %(tenant)s
) claim ON true
ORDER BY wanted.pool_id
"""


def pool_uses(tenant_id: int, times: Mapping[int, datetime]) -> list[PoolUse]:
    """Return a tenant's use of pools (id -> pool time), oldest pool first. A single query.

    The quota is the one in the last round, or the quota in force if that round has no row of the
    tenant.
    """
    given = {
        "tenant": tenant_id,
        "pools": list(times),
        "times": list(times.values()),
        "pending": Job.State.PENDING.value,
        "holding": [state.value for state in HOLDING],
    }
    return [
        PoolUse(pool, int(quota), int(own), int(borrowed), queued, received, deserved)
        for pool, quota, own, borrowed, queued, received, deserved in fetch_rows(_USES, given)
    ]
