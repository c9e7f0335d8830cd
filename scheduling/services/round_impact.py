"""What two decisions of one round differ in, per tenant and GPU type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from evenshare_core.domain.decision import Decision, Share
from tenants.answers import Answer


class Standing(Answer, frozen=True):
    """A tenant's figures of a round: GPUs, and rho after it."""

    COMPONENT = "QuotaStanding"

    quota: int = 0
    deserved: int = 0
    got: int = 0  # of all its leases after the round, own and borrowed
    borrowed: int = 0
    rho: float | None = None  # None: nothing was deserved


@dataclass(frozen=True, slots=True)
class ImpactRow:
    """One tenant and GPU type before and after the change."""

    tenant: int
    gpu_type: str
    before: Standing
    after: Standing

    @property
    def differs(self) -> bool:
        """Whether the change does anything to it."""
        return self.before != self.after


class QueuedJobs(NamedTuple):
    """How many jobs wait before the change and after it."""

    before: int
    after: int


NONE_QUEUED = QueuedJobs(0, 0)


def share_rows(before: Decision, after: Decision) -> tuple[ImpactRow, ...]:
    """Return every claim of either decision with its figures of both, by GPU type and tenant."""
    old = {(row.tenant, row.gpu_type): _standing(row) for row in before.shares}
    new = {(row.tenant, row.gpu_type): _standing(row) for row in after.shares}
    return tuple(
        ImpactRow(key[0], key[1], old.get(key, Standing()), new.get(key, Standing()))
        for key in sorted(set(old) | set(new), key=lambda key: (key[1], key[0]))
    )


def queued_jobs(before: Decision, after: Decision) -> QueuedJobs:
    """Return how many jobs wait after each of the decisions."""
    return QueuedJobs(queued_in(before), queued_in(after))


def queued_in(decision: Decision) -> int:
    """Return how many jobs wait after a round."""
    return sum(len(skip.jobs) for skip in decision.skips)


def _standing(share: Share) -> Standing:
    got = share.own + share.borrowed
    return Standing(share.quota, share.deserved, got, share.borrowed, share.rho_after)
