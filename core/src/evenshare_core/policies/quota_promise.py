"""What a tenant may expect of its quota in a pool: a guarantee within a time, a target, a weight.

A policy says it (`evenshare_core.policies.policy.Policy.quota_promise`) of its options and the
pool's lengths; pages and the API show what comes out, and know no policy.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class QuotaPromiseKind(StrEnum):
    """How far a quota binds. Names are part of the API."""

    GUARANTEED = "guaranteed"  # within a time, under conditions
    RESERVED = "reserved"  # nobody else holds these GPUs, so that they need not be waited for
    LONG_TERM = "long_term"  # what is received over time comes close to it
    WEIGHT = "weight"  # it says how large the tenant's part of the pool is
    NOT_GUARANTEED = "not_guaranteed"  # it says what is borrowed, and moves no job ahead


class PoolLengths(NamedTuple):
    """What of a pool a promise depends on, in us of pool time.

    `round_us`: between two rounds; 0: they are decided whenever something happens. `notice_us`:
    what a process has to save its state before it is stopped. `lease_us`: the longest that a term
    may last.
    """

    round_us: int
    notice_us: int
    lease_us: int = 0


class WaitPart(NamedTuple):
    """A part of the longest wait: what is waited for, and for how long."""

    text: str
    length_us: int


class QuotaPromise(NamedTuple):
    """What a tenant may expect of its quota.

    `text`: the same in sentences. `parts`: what the longest wait is made of, empty where there is
    none. `conditions`: each a sentence that must be true for the guarantee to hold.
    """

    kind: QuotaPromiseKind
    text: str
    parts: tuple[WaitPart, ...] = ()
    conditions: tuple[str, ...] = ()

    @property
    def within_us(self) -> int | None:
        """The longest wait for GPUs within quota, in us of pool time; None: it has no bound."""
        return sum(part.length_us for part in self.parts) if self.parts else None
