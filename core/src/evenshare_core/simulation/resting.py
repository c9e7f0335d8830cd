"""A shortcut that is exact: rounds in which nobody waits, or one job that fits where nobody is.

Then every policy gives the same answer, because there is nothing to choose: each lease that is
due is renewed on its GPUs, and the job starts where placement puts it. So the policy is not
asked, and no snapshot is built; GPU-time sums, own and borrowed GPUs, prices and terms go on by
the rules of every round:

- sums: `fairness.gpu_time` advances through the same changes to the same instants, so that even
  what it rounds down is the same (`simulation.lazy_sums`);
- own and borrowed: the order of `policies.terms.settle`, (lease start, lease), then the job;
- prices: `evenshare_core.money.pricing` on what is held.

Where there is something to choose, the policy does, but not from a snapshot of everything. LTGF
goes on with its queues and rooms (`simulation.kept_ltgf`). The others are asked by `decide_round`
about the jobs that wait or whose lease is due alone: leases that go on are told as one per tenant,
because what they hold is all that any of these policies looks at.

It holds where nothing could refuse a renewal: no node comes or goes, no tenant has a limit on
borrowing, no job has a maximum price, and the fairness window is endless; under other policies
than LTGF also where no job names GPU types. tests/simulation/test_simulator_shortcuts.py compares
it with asking every time, and tests/simulation/test_kept_ltgf.py round by round.
"""

from __future__ import annotations

from functools import lru_cache, partial

from msgspec.structs import replace

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import Grant, Key
from evenshare_core.domain.entitlements import Mode
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import PoolPrice
from evenshare_core.fairness.gpu_time import Sums
from evenshare_core.money.pricing import posted_price_micro
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.baselines.ordered import find_place
from evenshare_core.simulation.kept_ltgf import Answer, KeptLtgf
from evenshare_core.simulation.lazy_sums import LazyClaim, Rounds
from evenshare_core.simulation.world import World

# Whether a policy's memory is empty once nobody waits; other policies are always asked.
FORGETS = {"ltgf": True, "fifo": False, "sjf": False, "srtf": False, "yarn_cs": False}

# Whether it wants whole nodes by default. One job that waits starts under these policies, and they
# place it first on GPUs that nobody holds, so that it takes no lease its GPUs.
STARTS_ONE = {"ltgf": False, "fifo": True, "sjf": True, "srtf": False}

_posted_price = lru_cache(maxsize=65_536)(posted_price_micro)
_NO_KEY = Key(None, None)

OwnHeld = dict[tuple[int, str], int]  # own GPUs by (tenant, type), while a round is settled


class Resting:
    """Goes on with the sums of a world, unfrozen, from round to round."""

    def __init__(self, world: World, *, asks: bool) -> None:
        """`asks`: also decide on candidates alone where a round is not calm."""
        self._world, self._asks = world, asks
        self._sums: Sums | None = None
        self._posted: tuple[PoolPrice, ...] = ()  # by this object; the world may have newer ones
        self._rounds = Rounds(0)  # up to the one that the sums are of
        self._ltgf = KeptLtgf(world) if asks and world.rules.policy == "ltgf" else None
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
                job.max_price_micro is None and (not job.gpu_types or rules.policy == "ltgf")
                for job in world.sim_jobs.values()
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
        if not is_calm and not (self._asks and world.service.claims):
            self.give_back()
            return None
        sums = self._advance()
        due = world.due_leases()
        if not is_calm and self._ltgf is None:
            return self._ask(sums, due)
        own_held = dict(world.own_held)
        for lease in due:
            own_held[lease.tenant, lease.gpu_type] -= lease.own
        if not is_calm and self._ltgf is not None:
            return self._do(self._ltgf.decide(sums, due), own_held)
        return self._go_on(due, own_held)

    def _go_on(self, due: list[Lease], own_held: OwnHeld) -> int:
        """Renew whatever is due, and start the job that waits."""
        world = self._world
        if FORGETS[world.rules.policy]:
            world.memory = {}
        grants = [(job, self._place(job)) for job in world.queue]
        world.begin_round()
        self._renew(due, own_held)
        for job, placement in grants:
            (gpu_type,) = world.free
            self._grant(job, gpu_type, placement or (), own_held)
        self._post()
        return len(grants)

    def _do(self, answer: Answer, own_held: OwnHeld) -> int:
        """Do what LTGF decided on kept queues."""
        world, leases = self._world, self._world.leases
        world.memory = answer.memory
        world.begin_round()
        self._renew([leases[row.lease] for row in answer.renewals], own_held)
        for end in answer.ends:
            world.end(leases[end.lease], end.reason)
        for row in answer.grants:
            self._grant(row.job, row.gpu_type, row.placement, own_held)
        self._post()
        return len(answer.grants)

    def _advance(self) -> Sums:
        """Bring the sums to this round, as `advance` would, without freezing them."""
        world, rounds = self._world, self._rounds
        if self._sums is None:
            rounds = self._rounds = Rounds(world.service.at_us)
            self._sums = Sums(world.service, self._capacity, partial(LazyClaim, rounds=rounds))
        for change in world.changes_in_order():
            self._sums.apply(change, max(change.at_us, rounds.last_us))
        rounds.add(world.at_us)
        return self._sums

    def _ask(self, sums: Sums, due: list[Lease]) -> int:
        """Decide on the jobs that are candidates alone; leases that go on are only in the way."""
        world = self._world
        wanted = sorted({lease.job for lease in due} | world.queue)
        service = sums.freeze(world.at_us, 0)
        snapshot = world.snapshot()  # jobs are asked for after it: it counts their terms
        decision = decide_round(
            replace(
                snapshot,
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
        (job,), (gpu_type,) = world.queue, world.free
        accepted = world.sim_jobs[job].gpu_types
        return (not accepted or gpu_type in accepted) and self._place(job) is not None

    def _place(self, job: int) -> Placement | None:
        """Where the only job that waits goes, whatever comes before it: leases keep their GPUs."""
        world = self._world
        ((_, free),) = world.free.items()
        gpus = world.sim_jobs[job].gpus
        return find_place(free, gpus, whole_nodes=STARTS_ONE[world.rules.policy])

    def _grant(self, job: int, gpu_type: str, placement: Placement, own_held: OwnHeld) -> None:
        """Own quota that renewals left, then borrowed GPUs: new leases come last."""
        world = self._world
        sim = world.sim_jobs[job]
        own = self._own(sim.tenant, gpu_type, sim.gpus, own_held)
        price = self._price(gpu_type) if own < sim.gpus else 0
        world.grant(
            Grant(1, job, sim.tenant, gpu_type, placement, _NO_KEY, own, sim.gpus - own, price)
        )

    def _renew(self, leases: list[Lease], own_held: OwnHeld) -> None:
        """Give leases that are due one more term, own quota in the order of their starts."""
        world = self._world
        if len(leases) > 1:
            leases = sorted(leases, key=_by_start)
        for lease in leases:
            gpus = lease.own + lease.borrowed
            own = self._own(lease.tenant, lease.gpu_type, gpus, own_held)
            world.renew(lease, own, gpus - own, self._price(lease.gpu_type) if own < gpus else 0)

    def _price(self, gpu_type: str) -> int:
        for row in self._world.prices:
            if row.gpu_type == gpu_type:
                return row.price_micro
        return 0

    def _own(self, tenant: int, gpu_type: str, gpus: int, own_held: OwnHeld) -> int:
        key = (tenant, gpu_type)
        held = own_held.get(key, 0)
        own = min(gpus, max(0, self._world.quota_of.get(key, 0) - held))
        own_held[key] = held + own
        return own

    def give_back(self) -> None:
        """Let the world have its sums, as of the last round; the next one begins with them."""
        if self._sums is not None:
            self._world.service = self._sums.freeze(self._rounds.last_us, 0)
            self._sums = None

    def _post(self) -> None:
        """The prices of the next round, from what is held now."""
        world, held = self._world, self._world.held
        rows = world.prices
        if rows is not self._posted or any(row.used != held.get(row.gpu_type, 0) for row in rows):
            world.prices = self._posted = tuple([self._price_row(row) for row in rows])

    def _price_row(self, row: PoolPrice) -> PoolPrice:
        used, capacity = self._world.held.get(row.gpu_type, 0), self._capacity[row.gpu_type]
        price = _posted_price(row.base_micro, row.theta_milli, used, capacity)
        return PoolPrice(row.gpu_type, price, used, capacity, row.base_micro, row.theta_milli)


def _by_start(lease: Lease) -> tuple[int, int]:
    return (lease.started_us, lease.id)
