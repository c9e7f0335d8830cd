"""The promise of a quota to its tenant: a guarantee within a time, a target, or a weight.

A policy computes this from its options and the pool's durations
(`evenshare_core.policies.policy.Policy.quota_promise`). So pages and the API need no code for
single policies.
"""

from enum import StrEnum
from typing import NamedTuple


class QuotaPromiseKind(StrEnum):
    """The degree to which a quota binds. The names are part of the API."""

    GUARANTEED = "guaranteed"  # the tenant gets its quota within a time, under conditions
    RESERVED = "reserved"  # no other tenant holds these GPUs, so there is no wait
    LONG_TERM = "long_term"  # the received GPU-time approaches the quota in the long term
    WEIGHT = "weight"  # the quota is the tenant's relative part of the pool
    # the quota separates own from borrowed GPUs, and moves no job ahead
    NOT_GUARANTEED = "not_guaranteed"


class PoolLengths(NamedTuple):
    """Durations of a pool on which a promise depends, in us of pool time.

    `round_us`: the time between rounds; 0 if events trigger them. `notice_us`: the time in which a
    process can save its state before it is stopped. `lease_us`: the longest term.
    """

    round_us: int
    notice_us: int
    lease_us: int = 0


class WaitPart(NamedTuple):
    """A part of the longest wait: its cause and its length."""

    text: str
    length_us: int


class QuotaPromise(NamedTuple):
    """A policy's promise to a tenant about its quota.

    `text`: the promise in sentences. `parts`: the parts of the longest wait; empty if the wait has
    no bound. `conditions`: sentences that must all be true for the guarantee to hold.
    """

    kind: QuotaPromiseKind
    text: str
    parts: tuple[WaitPart, ...] = ()
    conditions: tuple[str, ...] = ()

    @property
    def within_us(self) -> int | None:
        """Return the longest wait for GPUs within quota, in us of pool time; None if unbounded."""
        return sum(part.length_us for part in self.parts) if self.parts else None
