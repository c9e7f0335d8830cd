"""GPU-time received, recomputed from leases, for sums of before holds named their type. Pure.

Until then a hold counted on the type that its job claimed, whatever GPUs it held. What a tenant
deserved by type stays: which type a job claimed while it waited is not known any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from evenshare_core.domain.snapshot import (
    Change,
    ChangeKind,
    ClaimService,
    Service,
    ServiceMark,
)
from evenshare_core.fairness.gpu_time import advance


class PastHold(NamedTuple):
    """What a lease held of one GPU type, from its start until its end (None: it still holds)."""

    tenant: int
    job: int
    gpu_type: str
    gpus: int
    started_us: int
    ended_us: int | None


def sums_of_leases(service: Service, holds: Sequence[PastHold]) -> Service:
    """Return the sums with GPU-time received on the type of each lease, as of their instant.

    Jobs that hold GPUs claim the type of these from now on. Marks of a fairness window follow.
    """
    at_us = service.at_us
    holding = {row.job: row for row in service.jobs if row.held}
    changes = []
    for hold in holds:
        row = holding.get(hold.job)
        # One that began at this very instant is the next round's to count.
        goes_on = hold.started_us < at_us and hold.ended_us is None
        if row is not None and goes_on and row.gpu_type != hold.gpu_type:
            changes += [
                Change(at_us, ChangeKind.RELEASE, row.tenant, row.job),
                Change(at_us, ChangeKind.HOLD, row.tenant, row.job, row.held, (hold.gpu_type,)),
            ]
    moved = advance(service, changes, at_us)
    by_claim: dict[tuple[int, str], list[PastHold]] = {
        (row.tenant, row.gpu_type): [] for row in moved.claims
    }
    for hold in holds:
        by_claim.setdefault((hold.tenant, hold.gpu_type), []).append(hold)
    known = {(row.tenant, row.gpu_type): row for row in moved.claims}
    marks = {(row.tenant, row.gpu_type): row.marks for row in service.claims}
    claims = [
        _received(known.get(key) or ClaimService(*key, at_us), marks.get(key, ()), by_claim[key])
        for key in sorted(by_claim)
    ]
    return replace(moved, claims=tuple(claims))


def _received(
    claim: ClaimService, marks: Sequence[ServiceMark], holds: Sequence[PastHold]
) -> ClaimService:
    counted = tuple(
        ServiceMark(
            mark.at_us,
            # The first mark may stand for all history: it begins with nothing received.
            _held_until(holds, mark.at_us) if any(mark[1:]) else 0,
            mark.fair_gpu_us,
            mark.entitled_gpu_us,
        )
        for mark in marks
    )
    return replace(claim, alloc_gpu_us=_held_until(holds, claim.since_us), marks=counted)


def _held_until(holds: Sequence[PastHold], at_us: int) -> int:
    ends = ((hold, at_us if hold.ended_us is None else min(at_us, hold.ended_us)) for hold in holds)
    return sum(hold.gpus * max(0, end_us - hold.started_us) for hold, end_us in ends)
