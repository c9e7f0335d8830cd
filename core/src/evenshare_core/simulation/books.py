"""The simulator's records: leases, terms, charges, incomes, and a hash over all of them.

Idle quota and the lenders' shares come from `evenshare_core.money.revenue`. Charges come from
`evenshare_core.money.fixed_point`, as in a live pool. The tests in tests/simulation/test_books.py
compare them with the live sweep over lease events.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import Swap, swapped
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.leases import Lease
from evenshare_core.money.fixed_point import term_charge
from evenshare_core.money.revenue.idle import IdleSums, Mark, split_amount, weights_between


class LeaseRecord(NamedTuple):
    """A lease that has ended.

    `overhead_us` is the part of its time without useful work. `lease` is the simulator's own number
    of the lease. `number` is 1 for the job's first lease.
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
    """A closed term with its charge."""

    lease: int
    term: int
    own: int
    borrowed: int
    price_micro: int
    starts_us: int
    ends_us: int
    charge_micro: int


class JobRecord(NamedTuple):
    """A job that has ended, in any state; `start_us` is None if it never ran."""

    job: int
    state: str
    start_us: int | None
    end_us: int
    leases: int
    useful_us: int


@dataclass(slots=True)
class Books:
    """The records of a run, filled in time order.

    `charged` and `earned` are micro-credits by tenant (0: the operator). `incomes` splits `earned`
    by GPU type and tenant. A term is charged when it closes. The result equals that of
    `evenshare_core.money.revenue.terms.Sweep` without late events.
    """

    leases: list[LeaseRecord] = field(default_factory=list)
    terms: list[TermRecord] = field(default_factory=list)
    jobs: list[JobRecord] = field(default_factory=list)
    charged: dict[int, int] = field(default_factory=dict)
    incomes: dict[str, dict[int, int]] = field(default_factory=dict)
    _idle: dict[str, IdleSums] = field(default_factory=dict)
    # Swaps of current trades, by type.
    _swaps: dict[str, tuple[Swap, ...]] = field(default_factory=dict)
    # Open terms by lease: start, idle quota at the start if a charge will follow, and the remainder
    # carried from earlier terms.
    _begun: dict[int, tuple[int, Mark | None, int]] = field(default_factory=dict)
    _marks: dict[str, tuple[int, Mark]] = field(default_factory=dict)  # (time, latest mark) by type
    _borrowed: dict[str, int] = field(default_factory=dict)  # GPUs borrowed now, by type
    # idle quota at the start of the current borrowing, by type
    _lent_since: dict[str, Mark] = field(default_factory=dict)
    # idle quota contributed in earlier borrowings, by (type, lender)
    _lent: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def earned(self) -> dict[int, int]:
        """Return the income by tenant, over all GPU types."""
        totals: dict[int, int] = {}
        for incomes in self.incomes.values():
            for tenant, amount in incomes.items():
                totals[tenant] = totals.get(tenant, 0) + amount
        return totals

    def entitle(
        self, at_us: int, gpu_type: str, capacity: int, quotas: Mapping[int, tuple[int, int | None]]
    ) -> None:
        """Set the effective quotas of a type: tenant -> (GPUs, lendable limit)."""
        self._swaps.pop(gpu_type, None)
        self._idle.setdefault(gpu_type, IdleSums()).entitle(at_us, capacity, quotas)

    def swap(self, at_us: int, quotas: Iterable[Entitlement], swaps: tuple[Swap, ...]) -> None:
        """Move effective quotas by trades; their new holder lends the idle part."""
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
        """Open a lease and its first term."""
        costs = lease.borrowed and lease.price_micro
        self._begun[lease.id] = (at_us, self._mark(at_us, lease.gpu_type) if costs else None, 0)
        self._idle[lease.gpu_type].use(at_us, lease.tenant, lease.own)
        self._borrow(at_us, lease.gpu_type, lease.borrowed)

    def renewed(self, at_us: int, old: Lease, new: Lease) -> None:
        """Close a lease's term and open the next."""
        rest = self._close(at_us, old)
        costs = new.borrowed and new.price_micro
        self._begun[new.id] = (at_us, self._mark(at_us, new.gpu_type) if costs else None, rest)
        if new.own != old.own:
            self._idle[old.gpu_type].use(at_us, old.tenant, new.own - old.own)
            self._borrow(at_us, old.gpu_type, new.borrowed - old.borrowed)

    def ended(self, at_us: int, lease: Lease) -> None:
        """Close a lease and its last term."""
        self._close(at_us, lease)
        del self._begun[lease.id]
        self._idle[lease.gpu_type].use(at_us, lease.tenant, -lease.own)
        self._borrow(at_us, lease.gpu_type, -lease.borrowed)

    def contributed(self) -> dict[tuple[str, int], int]:
        """Return quota that was idle while its type was borrowed, in GPU-us by (type, lender)."""
        contributed = dict(self._lent)
        for gpu_type, before in self._lent_since.items():
            idle = self._idle[gpu_type]
            _add(contributed, gpu_type, weights_between(before, idle.integrals(idle.now_us)))
        return contributed

    def _borrow(self, at_us: int, gpu_type: str, more: int) -> None:
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
        """Record the lease's open term; return the remainder for the next term."""
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
        """Charge a term's tenant, and pay the tenants whose quota was idle."""
        if charge:
            tenant, gpu_type = lease.tenant, lease.gpu_type
            self.charged[tenant] = self.charged.get(tenant, 0) + charge
            incomes = self.incomes.setdefault(gpu_type, {})
            weights = weights_between(before, self._mark(at_us, gpu_type))
            for lender, amount in split_amount(charge, weights):
                incomes[lender] = incomes.get(lender, 0) + amount

    def _mark(self, at_us: int, gpu_type: str) -> Mark:
        """Return idle quota by lender up to now; a repeated call at the same time is cached."""
        known = self._marks.get(gpu_type)
        if known is None or known[0] != at_us:
            known = self._marks[gpu_type] = (at_us, self._idle[gpu_type].mark(at_us))
        return known[1]

    def sha256(self) -> str:
        """Return a hash over all jobs, leases and terms, each sorted."""
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
