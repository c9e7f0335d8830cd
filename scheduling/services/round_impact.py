"""Differences between two decisions for one round, per tenant and GPU type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from evenshare_core.domain.decision import Decision, Share
from tenants.answers import Answer


class Standing(Answer, frozen=True):
    """A tenant's figures after a round: GPUs and rho."""

    COMPONENT = "QuotaStanding"

    quota: int = 0
    deserved: int = 0
    got: int = 0  # GPUs of all its leases after the round, own and borrowed
    borrowed: int = 0
    rho: float | None = None  # None if nothing was deserved


@dataclass(frozen=True, slots=True)
class ImpactRow:
    """A tenant and GPU type before and after the change."""

    tenant: int
    gpu_type: str
    before: Standing
    after: Standing

    @property
    def differs(self) -> bool:
        """Whether the change affects it."""
        return self.before != self.after


class QueuedJobs(NamedTuple):
    """The numbers of waiting jobs before and after the change."""

    before: int
    after: int


NONE_QUEUED = QueuedJobs(0, 0)


def share_rows(before: Decision, after: Decision) -> tuple[ImpactRow, ...]:
    """Return all claims of both decisions with their figures, by GPU type and tenant."""
    old = {(row.tenant, row.gpu_type): _standing(row) for row in before.shares}
    new = {(row.tenant, row.gpu_type): _standing(row) for row in after.shares}
    return tuple(
        ImpactRow(key[0], key[1], old.get(key, Standing()), new.get(key, Standing()))
        for key in sorted(set(old) | set(new), key=lambda key: (key[1], key[0]))
    )


def queued_jobs(before: Decision, after: Decision) -> QueuedJobs:
    """Return the numbers of jobs that wait after each of the decisions."""
    return QueuedJobs(queued_in(before), queued_in(after))


def queued_in(decision: Decision) -> int:
    """Return the number of jobs that wait after a round."""
    return sum(len(skip.jobs) for skip in decision.skips)


def _standing(share: Share) -> Standing:
    got = share.own + share.borrowed
    return Standing(share.quota, share.deserved, got, share.borrowed, share.rho_after)
