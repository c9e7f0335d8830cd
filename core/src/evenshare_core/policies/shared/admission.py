"""Limits on taking GPUs: quota modes, borrowing, maximum price and spendable credit.

The same code has two callers. A policy checks limits when it picks, so that it does not pick a job
that a limit refuses afterwards. `terms.settle` sets own and borrowed GPUs. Within a round, each
term that is taken only makes limits stricter, so a refused job stays refused. Only `let_go`, which
ends a lease before its expiry, loosens limits.

Source: architecture, "Own and borrowed", "Credit loop". The charge is the same under every policy,
see docs/money.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from evenshare_core.domain.cluster import Node, gpus_by_node
from evenshare_core.domain.entitlements import Entitlement, Tenant
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.money.fixed_point import worst_case_micro

Claim = tuple[int, str]  # (tenant, GPU type)
# own GPUs, borrowed GPUs, and the price of the borrowed GPUs, of a term
Split = tuple[int, int, int]


class Limits:
    """The limits that may refuse a job.

    They are built once for each change of quotas or credit. `keepers`: the entitlements, by
    (tenant, GPU type), that are not fully lent.
    """

    __slots__ = ("are_none", "by_key", "keepers", "spendable_micro")

    def __init__(self, entitlements: Iterable[Entitlement], tenants: Iterable[Tenant]) -> None:
        self.by_key = {(row.tenant, row.gpu_type): row for row in entitlements}
        self.keepers = [
            key for key, row in self.by_key.items() if row.lendable(row.gpus) != row.gpus
        ]
        self.spendable_micro = {
            tenant.id: tenant.spendable_micro
            for tenant in tenants
            if tenant.spendable_micro is not None
        }
        self.are_none = not (
            self.keepers
            or self.spendable_micro
            or any(row.may_borrow is not None for row in self.by_key.values())
        )


class _Account:
    """A tenant's use of one GPU type, in GPUs."""

    __slots__ = (
        "borrowed", "entitlement", "kept", "left", "lends_all", "may_borrow", "own", "quota",
    )  # fmt: skip # a table

    def __init__(self, entitlement: Entitlement) -> None:
        self.entitlement = entitlement
        self.quota = self.left = entitlement.gpus  # `left`: quota that no term uses yet
        self.may_borrow = entitlement.may_borrow
        self.lends_all = entitlement.lendable(entitlement.gpus) == entitlement.gpus
        self.own = self.borrowed = 0
        self.kept = 0  # GPUs of idle quota that are not lent

    def hold(self, own: int, borrowed: int) -> None:
        """Add to the held GPUs; negative numbers are subtracted."""
        self.own += own
        self.borrowed += borrowed
        self.left = self.quota - self.own if self.own < self.quota else 0

    def take(self, gpus: int) -> int:
        """Take GPUs for a term, own quota first. Return the number of own GPUs."""
        own = gpus if gpus < self.left else self.left  # noqa: FURB136 - twice as fast, per term
        self.left -= own
        self.own += own
        self.borrowed += gpus - own
        return own

    def keep(self) -> int:
        """Recompute `kept`, and return by how much it grew."""
        before = self.kept
        self.kept = 0 if self.lends_all else self.left - self.entitlement.lendable(self.left)
        return self.kept - before


class Refusal:
    """The reason why a job may not take GPUs, with its numbers."""

    __slots__ = ("numbers", "reason")

    def __init__(self, reason: Reason, **numbers: Any) -> None:
        self.reason = reason
        self.numbers = numbers


class Admission:
    """The quota, credit and lendable GPUs that are left while a round is decided.

    The object may be kept between rounds. Before a round, leases that end by the round are
    released. GPUs that the round takes are held from then on.
    """

    def __init__(self, limits: Limits, lease_us: int) -> None:
        self._limits, self._lease_us = limits, lease_us
        self._accounts: dict[Claim, _Account] = {}
        self._prices: Mapping[str, int] = {}
        self._unused: dict[str, int] = {}
        self._spendable: dict[int, int] = {}
        self._kept: dict[str, int] = {}

    @classmethod
    def of(cls, snapshot: Snapshot, *, without: Collection[int] = ()) -> Admission:
        """Return the admission of a round before any grant.

        `without`: ids of leases that end in the round before their expiry.
        """
        at_us = snapshot.at_us
        kept = [row for row in snapshot.leases if not row.ends_by(at_us) and row.id not in without]
        new = cls(Limits(snapshot.entitlements, snapshot.tenants), snapshot.lease_us)
        for lease in kept:
            new.hold(lease)
        prices = {price.gpu_type: price.price_micro for price in snapshot.prices}
        new.begin(prices, _unused(snapshot.nodes, kept))
        return new

    def copy(self, limits: Limits) -> Admission:
        """Return a copy with these limits, in which the same GPUs are held, such as for a trial."""
        new = Admission(limits, self._lease_us)
        for key, account in self._accounts.items():
            new._account(*key).hold(account.own, account.borrowed)
        return new

    def hold(self, lease: Lease) -> None:
        self._account(lease.tenant, lease.gpu_type).hold(lease.own, lease.borrowed)

    def release(self, leases: Iterable[Lease]) -> None:
        """Count the GPUs of leases as free, because they have ended or end by the next round."""
        for lease in leases:
            account = self._account(lease.tenant, lease.gpu_type)
            account.hold(-lease.own, -lease.borrowed)

    def let_go(self, lease: Lease) -> None:
        """Count the GPUs of a running lease as free, because the round ends it early.

        A job that was refused before may then be admitted, so callers must check it again.
        """
        self._change(lease, -1)

    def hold_again(self, lease: Lease) -> None:
        """Undo `let_go`."""
        self._change(lease, 1)

    def _change(self, lease: Lease, sign: int) -> None:
        account = self._account(lease.tenant, lease.gpu_type)
        account.hold(sign * lease.own, sign * lease.borrowed)
        if self._limits.keepers:
            self._unused[lease.gpu_type] = self._unused.get(lease.gpu_type, 0) - sign * lease.gpus
        if not self._limits.are_none and not account.lends_all:
            self._kept[lease.gpu_type] += account.keep()

    def held(self, tenant: int, gpu_type: str) -> int:
        account = self._account(tenant, gpu_type)
        return account.own + account.borrowed

    def use(self, tenant: int, gpu_type: str) -> tuple[int, int]:
        """Return the own and borrowed GPUs that are held now."""
        account = self._account(tenant, gpu_type)
        return account.own, account.borrowed

    def spendable(self, tenant: int) -> int | None:
        """Return the micro-credits that a tenant may still commit, or None if unlimited."""
        return self._spendable.get(tenant)

    def begin(self, prices: Mapping[str, int], unused: dict[str, int]) -> None:
        """Start a round.

        `prices`: by GPU type. `unused`: by type, the GPUs that no continuing lease holds. It is
        required if a tenant does not lend all of its quota.
        """
        self._prices, self._unused = prices, unused
        limits = self._limits
        if limits.are_none:
            return
        self._spendable, self._kept = dict(limits.spendable_micro), {}
        for key in limits.keepers:
            account = self._account(*key)
            account.keep()
            self._kept[key[1]] = self._kept.get(key[1], 0) + account.kept

    def _account(self, tenant: int, gpu_type: str) -> _Account:
        key = (tenant, gpu_type)
        account = self._accounts.get(key)
        if account is None:
            entitlement = self._limits.by_key.get(key)
            if entitlement is None:
                entitlement = Entitlement(tenant=tenant, gpu_type=gpu_type, gpus=0)
            account = self._accounts[key] = _Account(entitlement)
        return account

    def most(self, tenant: int, gpu_type: str) -> int | None:
        """Return the maximum GPUs that a tenant may hold at any price, or None if unlimited."""
        if self._limits.are_none:
            return None
        entitlement = self._limits.by_key.get((tenant, gpu_type))
        return entitlement.most if entitlement is not None else None

    def may_refuse(self, job: Job) -> bool:
        """Return whether any limit could refuse the job, whatever its tenant holds."""
        return not self._limits.are_none or job.max_price_micro is not None

    def price_may_refuse(self, most_micro: int, gpu_types: Collection[str]) -> bool:
        """Return whether a posted price of these types (all if empty) is above `most_micro`."""
        prices = self._prices
        return any(prices.get(name, 0) > most_micro for name in gpu_types or prices)

    def check(self, job: Job, gpu_type: str, lease_us: int | None = None) -> Refusal | None:
        """Return why the job may not take its gang of this type now, or None if it may.

        `lease_us`: the length of the term, or None for the pool's lease length.
        """
        if self._limits.are_none and job.max_price_micro is None:  # `may_refuse`, inlined for speed
            return None
        account = self._account(job.tenant, gpu_type)
        borrowed = job.gpus - account.left
        return (
            None
            if borrowed <= 0
            else self._limit(job, gpu_type, account, borrowed, lease_us or self._lease_us)
        )

    def is_own(self, job: Job, gpu_type: str) -> bool:
        """Return whether the tenant's unused quota of this type has room for the whole gang."""
        return job.gpus <= self._account(job.tenant, gpu_type).left

    def keeps(self, gpu_type: str) -> bool:
        """Return whether a tenant does not lend all of its quota of this type."""
        return any(name == gpu_type for _, name in self._limits.keepers)

    def _limit(
        self, job: Job, gpu_type: str, account: _Account, borrowed: int, lease_us: int
    ) -> Refusal | None:
        may_borrow = account.may_borrow
        if may_borrow is not None and account.borrowed + borrowed > may_borrow:
            return Refusal(
                Reason.QUOTA_LIMIT, quota=account.entitlement.gpus, own=account.own,
                borrowed=account.borrowed, may_borrow=may_borrow, needed=job.gpus,
            )  # fmt: skip # rows of what belongs together
        # Idle quota that this tenant does not lend does not restrict the tenant itself.
        kept = self._kept.get(gpu_type, 0) - account.kept
        unused = self._unused.get(gpu_type, 0)
        if unused - kept < job.gpus <= unused:
            return Refusal(Reason.RESERVED_QUOTA, unused=unused, kept=kept, needed=job.gpus)
        price = self._prices.get(gpu_type, 0)
        if job.max_price_micro is not None and price > job.max_price_micro:
            return Refusal(
                Reason.PRICE_ABOVE_MAX, price_micro=price, max_price_micro=job.max_price_micro
            )
        spendable = self._spendable.get(job.tenant)
        if spendable is not None:
            cost = worst_case_micro(borrowed, price, lease_us)
            if cost > spendable:
                return Refusal(Reason.BUDGET, needed_micro=cost, spendable_micro=spendable)
        return None

    def enter(
        self, job: Job, tenant: int, gpu_type: str, lease_us: int | None = None
    ) -> Refusal | Split:
        """Check a term of `lease_us` for the job's gang. Take its GPUs, or return the refusal."""
        if self._limits.are_none and job.max_price_micro is None:
            own = self._account(tenant, gpu_type).take(job.gpus)
            borrowed = job.gpus - own
        else:
            refusal = self.check(job, gpu_type, lease_us)
            if refusal is not None:
                return refusal
            own, borrowed = self.take(tenant, gpu_type, job.gpus, lease_us)
        return own, borrowed, self._prices.get(gpu_type, 0) if borrowed else 0

    def take(
        self, tenant: int, gpu_type: str, gpus: int, lease_us: int | None = None
    ) -> tuple[int, int]:
        """Take GPUs for one term, own quota first. Return (own, borrowed)."""
        account = self._account(tenant, gpu_type)
        own = account.take(gpus)
        borrowed = gpus - own
        if self._limits.are_none:
            return own, borrowed
        if self._limits.keepers:
            self._unused[gpu_type] = self._unused.get(gpu_type, 0) - gpus
        if not account.lends_all:
            self._kept[gpu_type] += account.keep()
        if borrowed and tenant in self._spendable:
            price = self._prices.get(gpu_type, 0)
            lasts_us = lease_us or self._lease_us
            self._spendable[tenant] -= worst_case_micro(borrowed, price, lasts_us)
        return own, borrowed


def _unused(nodes: Iterable[Node], kept: Iterable[Lease]) -> dict[str, int]:
    """Return, by type, the GPUs that no continuing lease uses."""
    load = gpus_by_node(lease.placement for lease in kept)
    unused: dict[str, int] = {}
    for node in nodes:
        count = max(0, node.gpus - load.get(node.id, 0))
        unused[node.gpu_type] = unused.get(node.gpu_type, 0) + count
    return unused
