"""The simulator's records: leases, terms, charges and incomes, and the hash over all of them.

Idle quota and lenders' parts come from `evenshare_core.money.revenue`, charges from
`evenshare_core.money.fixed_point`, as in a live pool (tests/simulation/test_books.py: equal to its
sweep over lease events).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import Swap, swapped
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.leases import Lease
from evenshare_core.money.fixed_point import term_charge
from evenshare_core.money.revenue import IdleSums, Mark, split_amount, weights_between


class LeaseRecord(NamedTuple):
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


class TermRecord(NamedTuple):
    """A term that is over, and what it cost."""

    lease: int
    term: int
    own: int
    borrowed: int
    price_micro: int
    starts_us: int
    ends_us: int
    charge_micro: int


class JobRecord(NamedTuple):
    """A job that is over, in whatever way; `start_us` is None when it never ran."""

    job: int
    state: str
    start_us: int | None
    end_us: int
    leases: int
    useful_us: int


@dataclass(slots=True)
class Books:
    """What has happened. `charged` and `earned` are micro-credits by tenant (0: the operator).

    `incomes` tells `earned` by GPU type and tenant.

    Everything is told in time order, so that a term is charged when it closes: what
    `evenshare_core.money.revenue.Sweep` gives where no event is late.
    """

    leases: list[LeaseRecord] = field(default_factory=list)
    terms: list[TermRecord] = field(default_factory=list)
    jobs: list[JobRecord] = field(default_factory=list)
    charged: dict[int, int] = field(default_factory=dict)
    incomes: dict[str, dict[int, int]] = field(default_factory=dict)
    _idle: dict[str, IdleSums] = field(default_factory=dict)
    _swaps: dict[str, tuple[Swap, ...]] = field(default_factory=dict)  # by type, as of its quotas
    # Present terms by lease: their start, idle quota then where a charge is to come, and the
    # remainder that they carry.
    _begun: dict[int, tuple[int, Mark | None, int]] = field(default_factory=dict)
    _marks: dict[str, tuple[int, Mark]] = field(default_factory=dict)  # the latest of each type
    _borrowed: dict[str, int] = field(default_factory=dict)  # GPUs now, by type
    _lent_since: dict[str, Mark] = field(default_factory=dict)  # while any are
    _lent: dict[tuple[str, int], int] = field(default_factory=dict)  # until then

    @property
    def earned(self) -> dict[int, int]:
        """Income by tenant, over all GPU types."""
        totals: dict[int, int] = {}
        for incomes in self.incomes.values():
            for tenant, amount in incomes.items():
                totals[tenant] = totals.get(tenant, 0) + amount
        return totals

    def entitle(
        self, at_us: int, gpu_type: str, capacity: int, quotas: Mapping[int, tuple[int, int | None]]
    ) -> None:
        """Effective quotas of a type from now on: tenant -> (GPUs, lendable at most)."""
        self._swaps.pop(gpu_type, None)
        self._idle.setdefault(gpu_type, IdleSums()).entitle(at_us, capacity, quotas)

    def swap(self, at_us: int, quotas: Iterable[Entitlement], swaps: tuple[Swap, ...]) -> None:
        """Count effective quotas as trades have made them: who has them now lends what is idle."""
        if not swaps and not self._swaps:
            return
        rows = tuple(quotas)
        for gpu_type in sorted({row.gpu_type for row in swaps} | self._swaps.keys()):
            of_type = tuple(row for row in swaps if row.gpu_type == gpu_type)
            if of_type == self._swaps.get(gpu_type, ()):
                continue
            self._swaps[gpu_type] = of_type
            now = swapped([row for row in rows if row.gpu_type == gpu_type], of_type)
            idle = self._idle[gpu_type]
            lendable = {row.tenant: (row.gpus, row.lends_most) for row in now}
            idle.entitle(at_us, idle.capacity, lendable)

    def granted(self, at_us: int, lease: Lease) -> None:
        """A lease began, and with it its first term."""
        costs = lease.borrowed and lease.price_micro
        self._begun[lease.id] = (at_us, self._mark(at_us, lease.gpu_type) if costs else None, 0)
        self._idle[lease.gpu_type].use(at_us, lease.tenant, lease.own)
        self._borrow(at_us, lease.gpu_type, lease.borrowed)

    def renewed(self, at_us: int, old: Lease, new: Lease) -> None:
        """One term closed and the next began."""
        rest = self._close(at_us, old)
        costs = new.borrowed and new.price_micro
        self._begun[new.id] = (at_us, self._mark(at_us, new.gpu_type) if costs else None, rest)
        if new.own != old.own:
            self._idle[old.gpu_type].use(at_us, old.tenant, new.own - old.own)
            self._borrow(at_us, old.gpu_type, new.borrowed - old.borrowed)

    def ended(self, at_us: int, lease: Lease) -> None:
        """A lease is over, and its last term."""
        self._close(at_us, lease)
        del self._begun[lease.id]
        self._idle[lease.gpu_type].use(at_us, lease.tenant, -lease.own)
        self._borrow(at_us, lease.gpu_type, -lease.borrowed)

    def contributed(self) -> dict[tuple[str, int], int]:
        """Idle quota while GPUs of its type were borrowed, by (GPU type, lender), in GPU-us."""
        contributed = dict(self._lent)
        for gpu_type, before in self._lent_since.items():
            idle = self._idle[gpu_type]
            _add(contributed, gpu_type, weights_between(before, idle.integrals(idle.now_us)))
        return contributed

    def _borrow(self, at_us: int, gpu_type: str, more: int) -> None:
        """Note when the first GPU of a type is borrowed, and when the last one no more."""
        if not more:
            return
        before = self._borrowed.get(gpu_type, 0)
        self._borrowed[gpu_type] = before + more
        if not before:
            self._lent_since[gpu_type] = self._idle[gpu_type].integrals(at_us)
        elif before + more == 0:
            since = self._lent_since.pop(gpu_type)
            until = self._idle[gpu_type].integrals(at_us)
            _add(self._lent, gpu_type, weights_between(since, until))

    def _close(self, at_us: int, lease: Lease) -> int:
        """Note the lease's present term; return the remainder that it leaves to the next."""
        starts_us, before, rest = self._begun[lease.id]
        charge = 0
        if before is not None:
            held_us = at_us - starts_us
            charge, rest = term_charge(lease.borrowed, lease.price_micro, held_us, rest)
            self._pay(at_us, lease, charge, before)
        self.terms.append(
            TermRecord(
                lease.id, lease.term, lease.own, lease.borrowed, lease.price_micro, starts_us,
                at_us, charge,
            )
        )  # fmt: skip # rows of what belongs together
        return rest

    def _pay(self, at_us: int, lease: Lease, charge: int, before: Mark) -> None:
        """Charge a term's tenant, and pay those whose quota was idle."""
        if charge:
            tenant, gpu_type = lease.tenant, lease.gpu_type
            self.charged[tenant] = self.charged.get(tenant, 0) + charge
            incomes = self.incomes.setdefault(gpu_type, {})
            weights = weights_between(before, self._mark(at_us, gpu_type))
            for lender, amount in split_amount(charge, weights):
                incomes[lender] = incomes.get(lender, 0) + amount

    def _mark(self, at_us: int, gpu_type: str) -> Mark:
        """Idle quota by lender up to now; changes of this very instant do not move it."""
        known = self._marks.get(gpu_type)
        if known is None or known[0] != at_us:
            known = self._marks[gpu_type] = (at_us, self._idle[gpu_type].mark(at_us))
        return known[1]

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


def _add(sums: dict[tuple[str, int], int], gpu_type: str, parts: Mapping[int, int]) -> None:
    for lender, part in parts.items():
        sums[gpu_type, lender] = sums.get((gpu_type, lender), 0) + part
