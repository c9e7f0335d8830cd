"""Measures the lines of a round's certificate, only from its snapshot and decision."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from evenshare_core.domain.cluster import placement_gpus
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.reason_texts import NOT_SOLVED, TOO_MANY_TYPES
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness import holds, properties
from evenshare_core.fairness.allocations import Allocation, frame, held_shares, ideal_shares
from evenshare_core.fairness.certificate import (
    MAX_NAMED,
    Basis,
    CertificateItem,
    JobTypeResult,
    Property,
    Verdict,
    figure,
)
from evenshare_core.fairness.guarantee import Guarantee, unserved
from evenshare_core.fairness.job_type_results import job_type_results
from evenshare_core.fairness.job_value import ValueRule, check_value
from evenshare_core.fairness.order import OrderRule, check_order
from evenshare_core.fairness.owners import check_owners
from evenshare_core.fairness.pareto import UnsolvedError, pareto_slack
from evenshare_core.fairness.promised_starts import check_promised_starts
from evenshare_core.fairness.properties import TOLERANCE, Array, Probe
from evenshare_core.fairness.trades import check_trades
from evenshare_core.units import CREDIT_MICRO, SECOND_US

# With more rows, pairs and programs cost more than a round may spend on its certificate.
MAX_MEASURED = 400
STARTS, RATIONALITY = Property.PROMISED_STARTS, Property.INDIVIDUAL_RATIONALITY


class TriedMisreports(NamedTuple):
    """The misreports tried on a row, above and below the truth, and the numbers that exist."""

    over: Sequence[Probe]
    of_over: int
    under: Sequence[Probe]
    of_under: int


@dataclass(eq=False)
class Measured:
    """A round being measured: its promises, its leases, and its ideal and actual allocation.

    `order` is the rule for the order of picks; None if the policy has no such rule. `proofs` names
    theorems by which a promise holds for all misreports, not only for those tried. A lease runs for
    `min_runtime_us` before it may end for other jobs.
    """

    snapshot: Snapshot
    decision: Decision
    promised: frozenset[Property]
    order: OrderRule | None = None
    proofs: Mapping[Property, str] = field(default_factory=dict)
    guarantee: Guarantee | None = None
    owners_first: bool = False
    value_rule: ValueRule | None = None
    min_runtime_us: int = 0
    held: list[holds.HeldLease] = field(init=False)
    got: Allocation = field(init=False)
    judged: Allocation = field(init=False)

    def __post_init__(self) -> None:
        """Recompute the leases after the round, and both allocations."""
        self.held = holds.holds_after(self.snapshot, self.decision)
        rows = frame(self.snapshot)
        self.got = replace(rows, shares=held_shares(rows, self.snapshot, self.held))
        self.judged = self.got
        if self.has_ideals:
            self.judged = replace(rows, shares=ideal_shares(rows, self.decision))

    @property
    def has_ideals(self) -> bool:
        """Whether the policy returned fractional shares."""
        return bool(self.decision.ideals)

    @property
    def basis(self) -> Basis:
        """The data that are compared between rows: ideals, or leases if there are no ideals."""
        return Basis.IDEALS if self.has_ideals else Basis.LEASES

    def verdict(self, name: Property, broken: bool) -> Verdict:
        """Return the verdict on a measurement, given what was promised."""
        if name not in self.promised:
            return Verdict.NOT_PROMISED
        return Verdict.VIOLATED if broken else Verdict.HOLDS

    def _unmeasured(self, name: Property) -> Verdict:
        return Verdict.UNKNOWN if name in self.promised else Verdict.NOT_PROMISED

    def findings(self, tried: TriedMisreports | None, why: str = "") -> tuple[CertificateItem, ...]:
        """Return all lines; if `tried` is None, no misreport was tried, for the reason `why`."""
        untried = why or "no misreport was tried on this round"
        over, under = (tried.over, tried.under) if tried else ((), ())
        of_over, of_under = (tried.of_over, tried.of_under) if tried else (0, 0)
        measures: dict[Property, Callable[[], CertificateItem]] = {
            Property.CAPACITY: self._capacity,
            Property.GANG: self._gang,
            Property.SINGLE_HOLD: self._single_hold,
            Property.LONG_TERM_ORDER: self._order,
            Property.QUOTA_GUARANTEE: self._quota_guarantee,
            **({STARTS: self._starts} if STARTS in self.promised else {}),
            **({Property.TRADES: self._trades} if self._may_trade else {}),
            **({RATIONALITY: self._borrowing} if RATIONALITY in self.promised else {}),
            Property.ENVY_FREE: self._envy,
            Property.SHARING_INCENTIVE: self._incentive,
            Property.EQUAL_THROUGHPUT: self._equal,
            Property.PARETO: self._pareto,
        }
        items = [measure() for measure in measures.values()]
        items += [
            self._probes(Property.OVERSTATING, over, of_over, untried),
            self._probes(Property.UNDERSTATING, under, of_under, untried),
        ]
        return tuple(items)

    # ---- leases ----

    def _line(
        self, name: Property, basis: Basis, checked: int, broken: Sequence[int], **more: Any
    ) -> CertificateItem:
        return CertificateItem(
            name,
            self.verdict(name, bool(broken)),
            basis,
            checked,
            len(broken),
            broken=tuple(broken)[:MAX_NAMED],
            **more,
        )

    def _counted(self, name: Property, count: holds.RuleCount) -> CertificateItem:
        return self._line(name, Basis.LEASES, count.checked, count.broken)

    def _capacity(self) -> CertificateItem:
        """Check each node's leases, and each type's sum of ideals if there are ideals."""
        item = self._counted(Property.CAPACITY, holds.overfull_nodes(self.snapshot, self.held))
        given = sum(placement_gpus(hold.placement) for hold in self.held)
        if not self.has_ideals or not self.judged.gpu_types:
            return structs.replace(item, total=figure(given))
        capacity = self.judged.capacity
        over = properties.capacity_use(self.judged.shares) - capacity
        broken = bool(item.count) or bool((over > TOLERANCE * np.maximum(1, capacity)).any())
        return structs.replace(
            item,
            verdict=self.verdict(Property.CAPACITY, broken),
            worst=figure(over.max()),
            total=figure(given),
            tolerance=TOLERANCE,
        )

    def _gang(self) -> CertificateItem:
        return self._counted(Property.GANG, holds.gangs(self.snapshot, self.held))

    def _single_hold(self) -> CertificateItem:
        return self._counted(Property.SINGLE_HOLD, holds.double_holders(self.held))

    def _order(self) -> CertificateItem:
        """Check the order only if the policy promises it: other policies rank by another key."""
        name = Property.LONG_TERM_ORDER
        if name not in self.promised or self.order is None:
            return CertificateItem(name, Verdict.NOT_PROMISED, Basis.SUMS)
        check = check_order(self.snapshot, self.decision, self.order)
        broken = sorted({*check.early, *check.idle})
        tenant, other = check.passed or (None, None)
        return self._line(
            name,
            Basis.SUMS,
            check.picks,
            broken,
            worst=figure(check.largest) if check.idle else None,
            tenant=tenant,
            other=other,
            total=figure(check.jobs),
        )

    def _quota_guarantee(self) -> CertificateItem:
        name = Property.QUOTA_GUARANTEE
        if name in self.promised and self.owners_first:
            return self._owners(name)
        if name not in self.promised or self.guarantee is None:
            return CertificateItem(name, Verdict.NOT_PROMISED, Basis.LEASES)
        count = unserved(self.snapshot, self.decision, self.held, self.guarantee)
        if not count.checked:
            why = "nobody who is owed GPUs of its quota has a job queued that fits on a node"
            return CertificateItem(name, Verdict.NOT_APPLICABLE, Basis.LEASES, why=why)
        return self._counted(name, count)

    def _owners(self, name: Property) -> CertificateItem:
        """Check that borrowing delays no owner, and that no tenant pays for GPUs of its quota."""
        check = check_owners(self.snapshot, self.decision)
        if not check.owed and not check.borrowed:
            why = "nobody waits for GPUs of its quota, and nothing was borrowed in this round"
            return CertificateItem(name, Verdict.NOT_APPLICABLE, Basis.TERMS, why=why)
        return self._line(
            name,
            Basis.TERMS,
            check.owed,
            check.broken,
            worst=None if check.latest_us is None else figure(check.latest_us / SECOND_US),
            tenant=check.tenant,
            total=figure(check.borrowed),
        )

    def _starts(self) -> CertificateItem:
        check = check_promised_starts(self.snapshot, self.decision, self.held, self.min_runtime_us)
        if not check.checked:
            why = "no start was promised"
            return CertificateItem(STARTS, Verdict.NOT_APPLICABLE, Basis.LEASES, why=why)
        item = self._line(STARTS, Basis.LEASES, check.checked, check.tenants)
        verdict, held = self.verdict(STARTS, bool(check.broken)), figure(check.held)
        return structs.replace(item, verdict=verdict, count=check.broken, total=held)

    def _borrowing(self) -> CertificateItem:
        if self.value_rule is None:
            why = "the policy does not say what a job is worth that does not say it"
            return CertificateItem(RATIONALITY, Verdict.UNKNOWN, Basis.VALUES, why=why)
        check = check_value(self.snapshot, self.decision, self.value_rule)
        least = check.least_micro
        if least is None:
            why = "nothing was borrowed in this round"
            return CertificateItem(RATIONALITY, Verdict.NOT_APPLICABLE, Basis.VALUES, why=why)
        return self._line(
            RATIONALITY,
            Basis.VALUES,
            check.checked,
            check.broken,
            worst=figure(float(least / CREDIT_MICRO)),
            tenant=check.tenant,
            total=figure(check.gpus),
        )

    @property
    def _may_trade(self) -> bool:
        decision = self.decision
        return Property.TRADES in self.promised or bool(decision.trades or decision.swaps)

    def _trades(self) -> CertificateItem:
        name = Property.TRADES
        if not self.decision.trades and not self.decision.swaps:
            why = "nothing was traded in this round, and no trade stands"
            return CertificateItem(name, Verdict.NOT_APPLICABLE, Basis.TRADES, why=why)
        check = check_trades(self.snapshot, self.decision)
        least = check.least
        return self._line(
            name,
            Basis.TRADES,
            check.checked,
            check.broken,
            worst=None if least is None else figure(float(least.gain)),
            tenant=None if least is None else least.tenant,
            other=None if least is None else least.other,
            total=figure(check.swapped),
        )

    # ---- between rows ----

    def _idle(self, name: Property) -> CertificateItem | None:
        """Return a property's line without a comparison, if rows are too few or too many."""
        rows = len(self.judged.rows)
        if rows < 2:
            why = "nobody with quota has jobs" if not rows else "only one has jobs"
            return CertificateItem(name, Verdict.NOT_APPLICABLE, self.basis, checked=rows, why=why)
        if rows > MAX_MEASURED:
            why = TOO_MANY_TYPES.format(count=rows, most=MAX_MEASURED)
            return CertificateItem(name, self._unmeasured(name), self.basis, checked=rows, why=why)
        return None

    def _gain(self, allocation: Allocation) -> tuple[Array, Array]:
        """Return the gain of each pair, and whether it is envy; bounded rows are left out."""
        gain = properties.envy_matrix(
            allocation.speedups, allocation.shares, allocation.weights, allocation.demand
        )
        envy = np.where(self.judged.bounded[:, None] > 0, -np.inf, gain)
        np.fill_diagonal(envy, -np.inf)
        return envy, np.asarray(envy > allocation.noise_against, float)

    def _envy(self) -> CertificateItem:
        name = Property.ENVY_FREE
        if idle := self._idle(name):
            return idle
        envy, over = self._gain(self.judged)
        row, other = np.unravel_index(int(envy.argmax()), envy.shape)
        worst = float(envy[row, other])
        asked = int((self.judged.bounded == 0).sum())
        if not np.isfinite(worst):
            why = "each is bounded by what its jobs can use, and not by its share"
            return CertificateItem(name, self.verdict(name, False), self.basis, why=why)
        whole = self._gain(self.got)[0].max() if self.has_ideals else None
        verdict = self.verdict(name, bool(over[self.judged.promised > 0].any()))
        if verdict is Verdict.HOLDS and over.any():
            verdict = Verdict.NOTED
        return CertificateItem(
            name=name,
            verdict=verdict,
            basis=self.basis,
            checked=asked * (len(self.judged.rows) - 1),
            count=int(over.sum()),
            broken=_tenants(self.judged, over.max(axis=1) > 0),
            worst=figure(worst),
            tenant=self.judged.rows[row][0],
            other=self.judged.rows[other][0],
            in_gpus=figure(whole) if whole is not None and np.isfinite(whole) else None,
            tolerance=figure(self.judged.noise_against[row, other]),
        )

    def _margins(self, allocation: Allocation) -> tuple[Array, Array]:
        """Return each row's ratio to the equal split (inf if capped), and whether it is less."""
        each, alone = properties.sharing_incentive(
            allocation.speedups,
            allocation.shares,
            allocation.capacity,
            allocation.weights,
            allocation.demand,
        )
        ratio = np.divide(each, alone, out=np.full_like(each, np.inf), where=alone > 0)
        ratio = np.where(allocation.capped > 0, np.inf, ratio)
        less = (each < alone - allocation.noise) & (allocation.capped == 0)
        return ratio, np.asarray(less, float)

    def _incentive(self) -> CertificateItem:
        name = Property.SHARING_INCENTIVE
        if idle := self._idle(name):
            return idle
        ratio, less = self._margins(self.judged)
        row = int(ratio.argmin())
        if not np.isfinite(ratio[row]):
            why = "everybody has all GPUs that their jobs can use"
            return CertificateItem(name, self.verdict(name, False), self.basis, why=why)
        whole = float(self._margins(self.got)[0].min()) if self.has_ideals else None
        return CertificateItem(
            name=name,
            verdict=self.verdict(name, bool(less.any())),
            basis=self.basis,
            checked=int(np.isfinite(ratio).sum()),
            count=int(less.sum()),
            broken=_tenants(self.judged, less > 0),
            worst=figure(ratio[row]),
            tenant=self.judged.rows[row][0],
            in_gpus=figure(whole) if whole is not None and np.isfinite(whole) else None,
            tolerance=figure(self.judged.noise[row]),
        )

    def _equal(self) -> CertificateItem:
        """Compare the rows that are not capped, because capped rows cannot use more GPUs."""
        name = Property.EQUAL_THROUGHPUT
        if idle := self._idle(name):
            return idle
        free = self.judged.capped == 0
        spread = _spread(self.judged, free)
        done = properties.throughputs(self.judged.speedups, self.judged.shares)
        noise = (self.judged.noise / np.maximum(done, TOLERANCE)).max(initial=0, where=free)
        unequal = spread > 2 * noise
        whole = _spread(self.got, free) if self.has_ideals else None
        return CertificateItem(
            name=name,
            verdict=self.verdict(name, unequal),
            basis=self.basis,
            checked=int(free.sum()),
            count=int(unequal),
            worst=figure(spread),
            in_gpus=None if whole is None else figure(whole),
            tolerance=figure(2 * noise),
        )

    def _pareto(self) -> CertificateItem:
        name = Property.PARETO
        if idle := self._idle(name):
            return idle
        allocation = self.judged
        try:
            slack = pareto_slack(
                allocation.speedups, allocation.shares, allocation.capacity, allocation.demand
            )
        except UnsolvedError as error:
            why = NOT_SOLVED.format(status=error)
            return CertificateItem(name, self._unmeasured(name), self.basis, why=why)
        total = float(properties.throughputs(allocation.speedups, allocation.shares).sum())
        noise = float(allocation.noise.sum())
        broken = slack > noise
        return CertificateItem(
            name=name,
            verdict=self.verdict(name, broken),
            basis=self.basis,
            checked=len(allocation.rows),
            count=int(broken),
            worst=figure(slack),
            total=figure(total),
            tolerance=figure(noise),
        )

    # ---- misreports ----

    def _probes(
        self, name: Property, tried: Sequence[Probe], of: int, untried: str
    ) -> CertificateItem:
        """Return the best of the tried misreports of one row."""
        if not self.has_ideals:
            why = "this policy does not look at speeds"
            return CertificateItem(name, Verdict.NOT_APPLICABLE, Basis.PROBES, why=why)
        if not tried:
            return CertificateItem(name, self._unmeasured(name), Basis.PROBES, why=untried)
        best = max(tried, key=lambda probe: probe.gain)
        # Both results are rounded to micro-GPUs, and a reported speed to thousandths.
        noise = 2 * self.judged.noise
        gains = [p for p in tried if p.gain > noise[p.row]]
        return CertificateItem(
            name=name,
            verdict=self.verdict(name, bool(gains)),
            basis=Basis.PROBES,
            checked=len(tried),
            count=len(gains),
            broken=tuple(sorted({self.judged.rows[p.row][0] for p in gains}))[:MAX_NAMED],
            worst=figure(best.gain),
            tenant=self.judged.rows[best.row][0],
            total=figure(best.honest),
            tolerance=figure(noise[best.row]),
            of=of,
            gpu_type=best.gpu_type,
            factor=figure(best.factor),
            bound=self.proofs.get(name, "") if name in self.promised else "",
        )

    def rows(self) -> tuple[JobTypeResult, ...]:
        """Return the result of every row, in the order of (tenant, profile)."""
        if len(self.judged.rows) > MAX_MEASURED:
            return ()
        return job_type_results(self.judged, self.got, has_ideals=self.has_ideals)


def _spread(allocation: Allocation, rows: Array) -> float:
    return properties.throughput_spread(
        allocation.speedups[rows], allocation.shares[rows], allocation.weights[rows]
    )


def _tenants(allocation: Allocation, broken: Iterable[bool]) -> tuple[int, ...]:
    named = {tenant for (tenant, _), bad in zip(allocation.rows, broken, strict=True) if bad}
    return tuple(sorted(named))[:MAX_NAMED]
