"""Differences between two decisions for one round, per tenant and GPU type."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from evenshare_core.domain.decision import Decision, Share
from tenants.answers import Answer

Named = TypeVar("Named", int, str)


class Standing(Answer, frozen=True):
    """A tenant's figures after a round: GPUs and rho."""

    COMPONENT = "QuotaStanding"

    quota: int = 0
    deserved: int = 0
    got: int = 0  # GPUs of all its leases after the round, own and borrowed
    borrowed: int = 0
    rho: float | None = None  # None if nothing was deserved


class ImpactRow(Answer, Generic[Named], frozen=True):
    """A tenant, by its id or its slug, and a GPU type before and after the change."""

    tenant: Named
    gpu_type: str
    before: Standing
    after: Standing

    @property
    def differs(self) -> bool:
        return self.before != self.after


class RoundCounts(NamedTuple):
    """The numbers of leases of a round by what it does, and of jobs that wait after it."""

    granted: int
    renewed: int
    ended: int
    waiting: int

    @classmethod
    def of(cls, decision: Decision) -> RoundCounts:
        waiting = sum(len(skip.jobs) for skip in decision.skips)
        return cls(len(decision.grants), len(decision.renewals), len(decision.ends), waiting)


NO_COUNTS = RoundCounts(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class RoundImpact:
    """An estimate of the next round with and without a change, not a promise.

    `error` explains why there is no estimate.
    """

    number: int
    at: datetime
    rows: tuple[ImpactRow[int], ...] = ()
    before: RoundCounts = NO_COUNTS
    after: RoundCounts = NO_COUNTS
    error: str = ""


def share_rows(before: Decision, after: Decision) -> tuple[ImpactRow[int], ...]:
    """Return all claims of both decisions with their figures, by GPU type and tenant."""
    old = {(row.tenant, row.gpu_type): _standing(row) for row in before.shares}
    new = {(row.tenant, row.gpu_type): _standing(row) for row in after.shares}
    return tuple(
        ImpactRow(key[0], key[1], old.get(key, Standing()), new.get(key, Standing()))
        for key in sorted(set(old) | set(new), key=lambda key: (key[1], key[0]))
    )


def _standing(share: Share) -> Standing:
    got = share.own + share.borrowed
    return Standing(share.quota, share.deserved, got, share.borrowed, share.rho_after)
