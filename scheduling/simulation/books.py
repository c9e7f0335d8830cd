"""The simulator's records: leases, terms, charges and incomes, and the hash over all of them.

Terms and their lenders come from `billing.revenue.Sweep`, charges from `billing.money`, as in a
live pool; only the rows they end up in are plain values here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from billing.money import charge_micro, to_text
from billing.revenue import ClosedTerm, Event, Sweep, split_charge
from scheduling.domain.cluster import Placement


class LeaseRow(NamedTuple):
    """An unbroken hold that is over. `overhead_us`: of its time, what was no useful work.

    `lease` is the simulator's own number, `number` counts the job's leases.
    """

    lease: int
    job: int
    number: int
    gpu_type: str
    placement: Placement
    start_us: int
    end_us: int
    reason: str
    overhead_us: int


class TermRow(NamedTuple):
    """A term that is over, and what it cost."""

    lease: int
    term: int
    own: int
    borrowed: int
    price_micro: int
    starts_us: int
    ends_us: int
    charge_micro: int


class JobRow(NamedTuple):
    """A job that is over, in whatever way; `start_us` is None when it never ran."""

    job: int
    state: str
    start_us: int | None
    end_us: int
    leases: int
    useful_us: int


@dataclass(slots=True)
class Books:
    """What has happened. `charged` and `earned` are micro-credits by tenant (0: the operator)."""

    leases: list[LeaseRow] = field(default_factory=list)
    terms: list[TermRow] = field(default_factory=list)
    jobs: list[JobRow] = field(default_factory=list)
    charged: dict[int, int] = field(default_factory=dict)
    earned: dict[int, int] = field(default_factory=dict)
    _sweep: Sweep = field(default_factory=Sweep)
    _number: int = 0

    def entitle(
        self, at_us: int, gpu_type: str, capacity: int, quotas: Mapping[int, tuple[int, int | None]]
    ) -> None:
        """Effective quotas of a type from now on: tenant -> (GPUs, lendable at most)."""
        data = {"gpu_type": gpu_type, "capacity": capacity, "quotas": quotas}
        self._feed("entitled", at_us, data)

    def event(self, kind: str, at_us: int, who: tuple[int, int, int, int], data: Any) -> None:
        """Tell of a lease: who = (lease, job, tenant, term)."""
        self._feed(kind, at_us, data, who)

    def rest(self, at_us: int) -> None:
        """Close what is known up to `at_us`: nothing earlier will be told any more."""
        for closed in self._sweep.rest(at_us):
            self._close(closed)

    def _feed(
        self, kind: str, at_us: int, data: Any, who: tuple[int, int, int, int] = (0, 0, 0, 0)
    ) -> None:
        self._number += 1
        event = Event(self._number, kind, at_us, *who, data)
        for closed in self._sweep.feed(event):
            self._close(closed)

    def _close(self, term: ClosedTerm) -> None:
        charge = charge_micro(term.borrowed, term.price_micro, term.held_us)
        starts_us = term.ends_us if term.starts_us is None else term.starts_us
        self.terms.append(
            TermRow(
                term.lease,
                term.term,
                term.own,
                term.borrowed,
                term.price_micro,
                starts_us,
                term.ends_us,
                charge,
            )
        )
        if not charge:
            return
        self.charged[term.tenant] = self.charged.get(term.tenant, 0) + charge
        for share in split_charge(charge, term.borrowed * term.held_us, term.weights):
            self.earned[share.lender] = self.earned.get(share.lender, 0) + share.amount_micro

    def sha256(self) -> str:
        """Hash of every job's end, every lease and every term with its charge, in one order."""
        digest = hashlib.sha256()
        for job in sorted(self.jobs):
            digest.update(repr(tuple(job)).encode())
        for lease in sorted(self.leases):
            digest.update(repr(tuple(lease)).encode())
        for term in sorted(self.terms):
            digest.update(repr(tuple(term)).encode())
        return digest.hexdigest()


def term_data(gpu_type: str, own: int, borrowed: int, price_micro: int) -> dict[str, Any]:
    """A term's figures as lease events carry them."""
    return {"gpu_type": gpu_type, "own": own, "borrowed": borrowed, "price": to_text(price_micro)}
