"""Limits that refuse GPUs to a job in a round: quota modes, prices and credit, from stored data.

The limits are recomputed from the snapshot and the round's terms, without the admission code of
policies. During a round they only get stricter: a job that they allow at the end was allowed
throughout. So the limits of the job's own tenant are checked only at the end. Idle quota that other
tenants do not lend is tracked from pick to pick, because it depends on the GPUs that they take.

Source: docs/fairness.md; ADR 0200.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from evenshare_core.domain.decision import Decision, Grant, Renew
from evenshare_core.domain.entitlements import ClaimKey, Entitlement
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.room import PickedTerm
from evenshare_core.money.fixed_point import worst_case_micro


class _Use:
    """A tenant's use of one GPU type: its idle quota, and the GPUs held above its quota."""

    __slots__ = ("borrowed", "idle", "row")

    def __init__(self, row: Entitlement) -> None:
        self.row, self.idle, self.borrowed = row, row.gpus, 0

    @property
    def kept(self) -> int:
        """The part of the idle quota that others may not use."""
        return self.idle - self.row.lendable(self.idle)


class RoundLimits:
    """The remaining quota, credit and lendable GPUs, updated with each pick of a round."""

    def __init__(
        self,
        snapshot: Snapshot,
        decision: Decision,
        kept: Iterable[Lease],
        unused: Mapping[str, int],
    ) -> None:
        """Start before the first pick, with the leases `kept` and the `unused` GPUs by type."""
        self._lease_us = snapshot.lease_us
        self._lengths = {row.job: row.lease_us for row in decision.lengths}
        self._rows = {(row.tenant, row.gpu_type): row for row in snapshot.entitlements}
        self._uses: dict[ClaimKey, _Use] = {}
        own: dict[ClaimKey, int] = {}
        for lease in kept:
            key = (lease.tenant, lease.gpu_type)
            own[key] = own.get(key, 0) + lease.own
            if lease.borrowed:
                self.use(*key).borrowed += lease.borrowed
        for key, gpus in own.items():
            use = self.use(*key)
            use.idle = max(0, use.row.gpus - gpus)
        self._prices = {row.gpu_type: row.price_micro for row in snapshot.prices}
        self._spendable = {
            row.id: row.spendable_micro
            for row in snapshot.tenants
            if row.spendable_micro is not None
        }
        self._settled = _settled(self._spendable, decision, self._lengths, self._lease_us)
        self._kept: dict[str, int] = {}
        for key, row in self._rows.items():
            if row.lendable(row.gpus) != row.gpus:
                self._kept[key[1]] = self._kept.get(key[1], 0) + self.use(*key).kept
        # GPUs neither held nor reserved, with one entry before each pick of the type and one at the
        # end.
        self._open = {name: [unused.get(name, 0) - kept] for name, kept in self._kept.items()}

    def use(self, tenant: int, gpu_type: str) -> _Use:
        key = (tenant, gpu_type)
        use = self._uses.get(key)
        if use is None:
            row = self._rows.get(key) or Entitlement(*key, gpus=0)
            use = self._uses[key] = _Use(row)
        return use

    def take(self, terms: Iterable[PickedTerm]) -> None:
        for term in terms:
            self._take(term.tenant, term.gpu_type, term.gpus, self._lengths.get(term.job))

    def withdraw(self, tenant: int, gpu_type: str, gpus: int) -> None:
        """Apply a pick that a limit withdrew; it is unknown from when on it held its GPUs."""
        self._take(tenant, gpu_type, gpus, None)
        if gpu_type in self._open:
            self._open[gpu_type] = [left - gpus for left in self._open[gpu_type][:-1]]

    def _take(self, tenant: int, gpu_type: str, gpus: int, lease_us: int | None) -> None:
        use = self.use(tenant, gpu_type)
        kept = use.kept
        own = min(gpus, use.idle)
        use.idle -= own
        use.borrowed += gpus - own
        if gpu_type in self._open:
            left = self._open[gpu_type]
            left.append(left[-1] - gpus + kept - use.kept)
        if gpus > own and tenant in self._spendable:
            price = self._prices.get(gpu_type, 0)
            cost = worst_case_micro(gpus - own, price, lease_us or self._lease_us)
            self._spendable[tenant] -= cost

    def is_own(self, tenant: int, gpu_type: str, gpus: int) -> bool:
        """Return whether a gang still fits into its tenant's quota."""
        return gpus <= self.use(tenant, gpu_type).idle

    def refuses(
        self, tenant: int, gpu_type: str, gpus: int, max_price_micro: int | None,
        *, settled: bool = False,
    ) -> bool:  # fmt: skip # rows of what belongs together
        """Return whether the limits of the tenant or of the job refuse these GPUs to a gang now.

        With `settled`, the credit is the amount left after the round's final terms.
        """
        use = self.use(tenant, gpu_type)
        borrowed = gpus - use.idle
        if borrowed <= 0:
            return False
        may_borrow = use.row.may_borrow
        if may_borrow is not None and use.borrowed + borrowed > may_borrow:
            return True
        price = self._prices.get(gpu_type, 0)
        if max_price_micro is not None and price > max_price_micro:
            return True
        left = (self._settled if settled else self._spendable).get(tenant)
        return left is not None and worst_case_micro(borrowed, price, self._lease_us) > left

    def open_until(self, tenant: int, gpu_type: str, gpus: int, end: int) -> int:
        """Return the last moment at which the quota that others reserve leaves room for a gang.

        Moments are those of `evenshare_core.fairness.room`; `end` is the last.
        """
        left = self._open.get(gpu_type)
        use = self.use(tenant, gpu_type)
        if left is None or gpus <= use.idle:
            return end
        # A tenant may use the quota that it reserved itself.
        return min(end, _falling_until(left, gpus - use.kept))


def _falling_until(left: Sequence[int], least: int) -> int:
    """Return how many of the descending numbers are at least `least`."""
    return bisect_right(left, -least, key=lambda count: -count)


def _settled(
    spendable: Mapping[int, int], decision: Decision, lengths: Mapping[int, int], lease_us: int
) -> dict[int, int]:
    """Return each tenant's credit after the round's terms, by the decision's borrowed GPUs."""
    left = dict(spendable)
    terms: list[Grant | Renew] = [*decision.renewals, *decision.grants]
    for term in terms if left else ():
        if term.borrowed and term.tenant in left:
            lasts_us = lengths.get(term.job, lease_us)
            left[term.tenant] -= worst_case_micro(term.borrowed, term.price_micro, lasts_us)
    return left
