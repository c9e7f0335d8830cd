"""Reasons of the jobs that may not start yet (`evenshare_core.domain.held_jobs`).

Policies never see these jobs; `evenshare_core.policies.base` adds their skips.
"""

from collections.abc import Mapping
from types import MappingProxyType

from evenshare_core.domain.decision import Skip
from evenshare_core.domain.held_jobs import HeldJob, HoldCode
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot

REASONS: Mapping[HoldCode, Reason] = MappingProxyType(
    {
        HoldCode.OPERATOR: Reason.HELD_BY_OPERATOR,
        HoldCode.TENANT: Reason.HELD_BY_TENANT,
        HoldCode.IDLE: Reason.HELD_IDLE,
        HoldCode.DEPENDENCY: Reason.HELD_FOR_JOB,
        HoldCode.SWEEP: Reason.HELD_FOR_SWEEP,
        HoldCode.NOT_BEFORE: Reason.NOT_BEFORE,
    }
)

HELD = frozenset(REASONS.values())


def held_skips(snapshot: Snapshot) -> tuple[Skip, ...]:
    """Return a skip for the held jobs of each tenant, code and earliest start, by the first job."""
    groups: dict[tuple[int, HoldCode, int], list[HeldJob]] = {}
    for row in snapshot.holds:
        groups.setdefault((row.tenant, row.code, row.until_us), []).append(row)
    return tuple(
        Skip(
            REASONS[code],
            tenant,
            tuple(row.job for row in rows),
            sum(row.gpus for row in rows),
            {"until_us": until_us} if until_us else {},
        )
        for (tenant, code, until_us), rows in groups.items()
    )
