"""A shortcut that is exact: rounds in which nobody waits.

Then every policy gives the same answer, because there is nothing to choose: each lease that is
due is renewed on its GPUs. So the policy is not asked, and no snapshot is built; GPU-time sums,
own and borrowed GPUs, prices and terms go on by the rules of every round:

- sums: `fairness.gpu_time` advances through the same changes to the same instants, so that even
  what it rounds down is the same;
- own and borrowed: the order of `policies.terms.settle`, (lease start, lease);
- prices: `billing.pricing` on what is held.

It holds where nothing could refuse a renewal: no node comes or goes, no tenant has a limit on
borrowing, no job has a maximum price, and the fairness window is endless.
tests/simulation/test_simulator_shortcuts.py compares it with asking every time.
"""

from __future__ import annotations

from functools import lru_cache

from billing.pricing import posted_price_micro
from scheduling.domain.decision import Key, Renew
from scheduling.domain.entitlements import Mode
from scheduling.domain.snapshot import PoolPrice
from scheduling.fairness.gpu_time import _Sums  # no freezing between rounds: see `Resting`
from scheduling.policies import registry
from scheduling.simulation.world import World

# Whether a policy's memory is empty once nobody waits; other policies are always asked.
FORGETS = {"ltgf": True, "fifo": False, "sjf": False, "srtf": False, "yarn_cs": False}

_price = lru_cache(maxsize=65_536)(posted_price_micro)
_NO_KEY = Key(None, None)


class Resting:
    """Goes on with the sums of a world, unfrozen, for as long as nobody waits."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sums: _Sums | None = None
        self._last_us = 0  # the round that the sums are of
        self._capacity: dict[str, int] = {}
        for node in world.cluster.nodes:
            self._capacity[node.gpu_type] = self._capacity.get(node.gpu_type, 0) + node.gpus

    @staticmethod
    def suits(world: World) -> bool:
        """Whether nothing in this world could refuse a renewal while nobody waits."""
        rules, cluster = world.rules, world.cluster
        options = registry.options(rules.policy, dict(rules.options))
        return (
            rules.policy in FORGETS
            and not cluster.changes
            and not options.fairness_window_us
            and all(job.max_price_micro is None for job in world.sim_jobs.values())
            and all(
                row.mode is Mode.LEND_AND_BORROW
                and row.borrow_limit is None
                and row.lend_limit is None
                for row in cluster.quotas
            )
        )

    def round(self) -> bool:
        """Do the round of the world's instant if nobody waits; else leave the world as it was."""
        world = self._world
        if world.waiting or not world.service.claims:
            self._freeze()
            return False
        if self._sums is None:
            self._sums = _Sums(world.service, self._capacity)
            self._last_us = world.service.at_us
        for change in world.changes_in_order():
            self._sums.apply(change, max(change.at_us, self._last_us))
        for claim in self._sums.claims.values():
            claim.advance(world.at_us)
        self._last_us = world.at_us
        world.go_on(self._renewals(), forget=FORGETS[world.rules.policy])
        world.prices = tuple([self._posted(row) for row in world.prices])
        return True

    def _freeze(self) -> None:
        """Give the world its sums back, as of the last round."""
        if self._sums is not None:
            self._world.service = self._sums.freeze(self._last_us, 0)
            self._sums = None

    def _renewals(self) -> list[Renew]:
        """The leases that are due, own quota filled in the order of their starts."""
        world = self._world
        due = world.due_leases()
        due.sort(key=lambda lease: (lease.started_us, lease.id))
        own_held = dict(world.own_held)
        for lease in due:
            own_held[lease.tenant, lease.gpu_type] -= lease.own
        prices = {row.gpu_type: row.price_micro for row in world.prices}
        rows = []
        for order, lease in enumerate(due, start=1):
            key = (lease.tenant, lease.gpu_type)
            gpus = lease.gpus
            own = min(gpus, max(0, world.quota_of.get(key, 0) - own_held[key]))
            own_held[key] += own
            price = prices[lease.gpu_type] if own < gpus else 0
            rows.append(
                Renew(
                    order, lease.id, lease.job, lease.tenant, lease.gpu_type, gpus, _NO_KEY,
                    own, gpus - own, price,
                )
            )  # fmt: skip
        return rows

    def _posted(self, row: PoolPrice) -> PoolPrice:
        used, capacity = self._world.held.get(row.gpu_type, 0), self._capacity[row.gpu_type]
        price = _price(row.base_micro, row.theta_milli, used, capacity)
        return PoolPrice(row.gpu_type, price, used, capacity, row.base_micro, row.theta_milli)
