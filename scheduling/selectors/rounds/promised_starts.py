"""Promised starts of waiting jobs, from the state that a pool's last round left."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.domain.reasons import Reason
from evenshare_core.policies.promised_start import latest_start_us
from evenshare_core.policies.registry import promised_starts
from evenshare_core.units import SECOND_US
from scheduling.models import Job
from scheduling.selectors.rounds.stored import unpacked
from tenants.sql import fetch_rows

_LAST_STATES = """
SELECT p.id, p.round_s * c.scale, s.at, s.policy, s.policy_version, s.memory
FROM scheduling_pool p
JOIN scheduling_poolclock c ON c.pool_id = p.id
CROSS JOIN LATERAL (
    SELECT at, policy, policy_version, memory FROM scheduling_roundstate
    WHERE pool_id = p.id ORDER BY number DESC, day DESC LIMIT 1
) s
WHERE p.id = ANY(%s)
"""


@dataclass(frozen=True, slots=True)
class PromisedJob:
    """A waiting job that starts in the round at `starts_at` (pool time), at the latest.

    `held`: free GPUs that are held back for it, by node. `pinned`: the jobs whose leases end by
    then, because it gets their GPUs.
    """

    job: int
    starts_at: datetime
    held: Mapping[int, int]
    pinned: frozenset[int]


def list_promised(pool_ids: Iterable[int]) -> dict[int, list[PromisedJob]]:
    """Return the promised jobs of pools, the first to start first, by pool. A single query.

    They include jobs of all tenants: callers show of other tenants only what the viewer may see. A
    job may have started since, on other GPUs.
    """
    rows = fetch_rows(_LAST_STATES, [sorted(set(pool_ids))])
    return {pool_id: _promised(*state) for pool_id, *state in rows}


def _promised(
    round_s: int, at: datetime, policy: str, version: str, packed: bytes
) -> list[PromisedJob]:
    data = unpacked(bytes(packed))
    memory: dict[str, Any] = {} if data is None else msgspec.json.decode(data)
    return [
        PromisedJob(
            row.job,
            from_us(latest_start_us(row.due_us, to_us(at), round_s * SECOND_US)),
            row.held,
            row.pinned,
        )
        for row in promised_starts(policy, version, memory)
    ]


def read_latest_starts(jobs: Iterable[Job]) -> dict[int, datetime]:
    """Return until when promised jobs start, by job id; other jobs are left out."""
    waiting = [
        job for job in jobs if job.state == Job.State.PENDING and job.reason_code == Reason.PROMISED
    ]
    if not waiting:
        return {}
    rows = list_promised(job.pool_id for job in waiting).values()
    starts = {row.job: row.starts_at for promised in rows for row in promised}
    return {job.pk: starts[job.pk] for job in waiting if job.pk in starts}


def pinned_until(pool_id: int, job_id: int) -> datetime | None:
    """Return when a job's lease ends at the latest, because its GPUs are promised to another job.

    Return None if no GPU of it is promised. A single query.
    """
    promised = list_promised([pool_id]).get(pool_id, [])
    return min((row.starts_at for row in promised if job_id in row.pinned), default=None)
