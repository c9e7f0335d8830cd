"""A shortcut that is exact: rounds in which nobody waits, or one job that fits where nobody is.

Then every policy gives the same answer, because there is nothing to choose: each lease that is
due is renewed on its GPUs, and the job starts where placement puts it. So the policy is not
asked, and no snapshot is built; GPU-time sums, own and borrowed GPUs, prices and terms go on by
the rules of every round:

- sums: `fairness.gpu_time` advances through the same changes to the same instants, so that even
  what it rounds down is the same;
- own and borrowed: the order of `policies.terms.settle`, (lease start, lease), then the job;
- prices: `billing.pricing` on what is held.

Where there is something to choose, the policy is asked by `decide_round`, but about the jobs that
wait or whose lease is due alone: leases that go on are told as one per tenant, because what they
hold is all that any of these policies looks at. Not while LTGF remembers a gang that it passed
over, because it then asks when each lease ends.

It holds where nothing could refuse a renewal: no node comes or goes, no tenant has a limit on
borrowing, no job has a maximum price or names GPU types, and the fairness window is endless.
tests/simulation/test_simulator_shortcuts.py compares it with asking every time.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from billing.pricing import posted_price_micro
from scheduling.domain.cluster import Placement
from scheduling.domain.decision import Grant, Key, Renew
from scheduling.domain.entitlements import Mode
from scheduling.domain.leases import Lease
from scheduling.domain.snapshot import PoolPrice
from scheduling.fairness.gpu_time import _Sums  # no freezing between rounds: see `Resting`
from scheduling.policies.base import decide_round
from scheduling.policies.baselines.ordered import find_place
from scheduling.simulation.world import World

# Whether a policy's memory is empty once nobody waits; other policies are always asked.
FORGETS = {"ltgf": True, "fifo": False, "sjf": False, "srtf": False, "yarn_cs": False}

# Whether it wants whole nodes by default. One job that waits starts under these policies, and they
# place it first on GPUs that nobody holds, so that it takes no lease its GPUs.
STARTS_ONE = {"ltgf": False, "fifo": True, "sjf": True, "srtf": False}

_price = lru_cache(maxsize=65_536)(posted_price_micro)
_NO_KEY = Key(None, None)


class Resting:
    """Goes on with the sums of a world, unfrozen, for as long as nobody waits."""

    def __init__(self, world: World, *, asks: bool) -> None:
        """`asks`: also decide on candidates alone where a round is not calm."""
        self._world, self._asks = world, asks
        self._sums: _Sums | None = None
        self._last_us = 0  # the round that the sums are of
        self._capacity: dict[str, int] = {}
        for node in world.cluster.nodes:
            self._capacity[node.gpu_type] = self._capacity.get(node.gpu_type, 0) + node.gpus

    @staticmethod
    def suits(world: World) -> bool:
        """Whether nothing in this world could refuse a renewal while nobody waits."""
        rules, cluster = world.rules, world.cluster
        return (
            rules.policy in FORGETS
            and not cluster.changes
            and not rules.options  # some forget, or change whether and where a job starts
            and all(
                job.max_price_micro is None and not job.gpu_types for job in world.sim_jobs.values()
            )
            and all(
                row.mode is Mode.LEND_AND_BORROW
                and row.borrow_limit is None
                and row.lend_limit is None
                for row in cluster.quotas
            )
        )

    def round(self) -> int | None:
        """Do the round of the world's instant if it is calm; return how many jobs it started.

        None: it is not of a kind that is known here, and the world is as it was.
        """
        world = self._world
        is_calm = self._is_calm()
        if not is_calm and not self._may_ask():
            self._freeze()
            return None
        sums = self._advance()
        if not is_calm:
            return self._ask(sums)
        own_held = dict(world.own_held)
        renewals = self._renewals(own_held)
        grants = [self._grant(job, own_held) for job in world.queue]
        world.go_on(renewals, grants, forget=FORGETS[world.rules.policy])
        world.prices = tuple([self._posted(row) for row in world.prices])
        return len(grants)

    def _advance(self) -> _Sums:
        """Bring the sums to this round, as `advance` would, without freezing them."""
        world = self._world
        if self._sums is None:
            self._sums = _Sums(world.service, self._capacity)
            self._last_us = world.service.at_us
        for change in world.changes_in_order():
            self._sums.apply(change, max(change.at_us, self._last_us))
        for claim in self._sums.claims.values():
            claim.advance(world.at_us)
        self._last_us = world.at_us
        return self._sums

    def _may_ask(self) -> bool:
        """Whether the policy remembers nothing that leases which go on could matter to."""
        world = self._world
        remembers = FORGETS[world.rules.policy] and bool(world.memory)
        return self._asks and bool(world.service.claims) and not remembers

    def _ask(self, sums: _Sums) -> int:
        """Decide on the jobs that are candidates alone; leases that go on are only in the way."""
        world = self._world
        due = world.due_leases()
        wanted = sorted({lease.job for lease in due} | world.queue)
        service = sums.freeze(world.at_us, 0)
        decision = decide_round(
            replace(
                world.snapshot(),
                service=replace(service, jobs=tuple([sums.jobs[job] for job in wanted])),
                changes=(),
                jobs=tuple([world.jobs[job] for job in wanted]),
                leases=(*self._others(due), *sorted(due, key=lambda lease: lease.id)),
            )
        )
        world.apply(decision)
        return len(decision.grants)

    def _others(self, due: list[Lease]) -> list[Lease]:
        """One lease per tenant and GPU type for all that go on: what they hold, and own."""
        world = self._world
        ids = {lease.id for lease in due}
        sums: dict[tuple[int, str], tuple[dict[int, int], list[int]]] = {}
        for lease in world.leases.values():
            if lease.id in ids:
                continue
            nodes, split = sums.setdefault((lease.tenant, lease.gpu_type), ({}, [0, 0]))
            for node, gpus in lease.placement:
                nodes[node] = nodes.get(node, 0) + gpus
            split[0] += lease.own
            split[1] += lease.borrowed
        later_us = world.at_us + 1
        return [
            Lease(
                -index, -index, tenant, gpu_type, tuple(nodes.items()), world.at_us, later_us, 1,
                split[0], split[1], 0,
            )
            for index, ((tenant, gpu_type), (nodes, split)) in enumerate(sums.items(), start=1)
        ]  # fmt: skip

    def _is_calm(self) -> bool:
        """Whether nobody waits, or one job that fits where nobody is."""
        world = self._world
        if not world.queue:
            return bool(world.service.claims)
        if len(world.queue) > 1 or not world.service.claims or len(world.free) > 1:
            return False
        policy = world.rules.policy
        if policy not in STARTS_ONE or (FORGETS[policy] and world.memory):
            return False
        return self._place(next(iter(world.queue))) is not None

    def _place(self, job: int) -> Placement | None:
        """Where the only job that waits goes, whatever comes before it: leases keep their GPUs."""
        world = self._world
        ((_, free),) = world.free.items()
        gpus = world.sim_jobs[job].gpus
        return find_place(free, gpus, whole_nodes=STARTS_ONE[world.rules.policy])

    def _grant(self, job: int, own_held: dict[tuple[int, str], int]) -> Grant:
        """Own quota that renewals left, then borrowed GPUs: a new lease comes last."""
        world, placement = self._world, self._place(job)
        (gpu_type,) = world.free
        sim = world.sim_jobs[job]
        key = (sim.tenant, gpu_type)
        own = min(sim.gpus, max(0, world.quota_of.get(key, 0) - own_held.get(key, 0)))
        price = world.prices[0].price_micro if own < sim.gpus else 0
        return Grant(
            1, job, sim.tenant, gpu_type, placement or (), _NO_KEY, own, sim.gpus - own, price
        )

    def _freeze(self) -> None:
        """Give the world its sums back, as of the last round."""
        if self._sums is not None:
            self._world.service = self._sums.freeze(self._last_us, 0)
            self._sums = None

    def _renewals(self, own_held: dict[tuple[int, str], int]) -> list[Renew]:
        """The leases that are due, own quota filled in the order of their starts."""
        world = self._world
        due = world.due_leases()
        due.sort(key=lambda lease: (lease.started_us, lease.id))
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
