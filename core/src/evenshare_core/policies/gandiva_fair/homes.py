"""Homes of jobs: Algorithm 2 for new jobs, moves for balance and between GPU types.

Source: Gandiva_fair (EuroSys 2020), 3.2, 3.4, 3.5.

- A job's home is on the type with the largest speed x share of a GPU that its tenant's jobs would
  have there. On a tie, types on which part of the tenant's share is unused come first, then the
  fastest type. A job without a profile therefore goes to the fastest type on which part of its
  tenant's share is unused.
- Its nodes are the best fit among nodes that still have room after all jobs at home there. So small
  jobs are packed, and whole nodes stay free for large ones. If no node has room, the nodes with the
  least ticket load per GPU, (2), are used.
- Moves happen once a quantum. For balance, a waiting job moves from the most to the least loaded
  node of a type. The jobs of the most loaded node must share its GPUs in turns, and the difference
  of loads must exceed a threshold. Between types, the job with the largest gain, of all (tenant,
  from, to), moves if the gain exceeds a threshold.
"""

from collections.abc import Iterable, Mapping, Set
from heapq import heapify, heappop, heappush
from math import fsum
from operator import itemgetter

from evenshare_core.domain.cluster import Node, Placement
from evenshare_core.placement.consolidated import FreeGpus
from evenshare_core.policies.gandiva_fair.loads import LoadOrder
from evenshare_core.policies.gandiva_fair.memory import Memory, StrideJob, nodes_of
from evenshare_core.policies.gandiva_fair.rates import UNIT
from evenshare_core.policies.gandiva_fair.tickets import Claim, GpuTypes, TenantTypes


class TypeHomes:
    """The nodes of one GPU type, with the jobs that are at home there.

    `asked`: GPUs that jobs request, by node. `load`: tickets per GPU, (2), by node. `touched`:
    nodes whose jobs have changed since their rates were computed. `spanning`: jobs at home on
    several nodes, by id. `is_as_read`: whether no job has come or left since the memory was read.
    """

    def __init__(self, gpu_type: str, nodes: Iterable[Node]) -> None:
        self.gpu_type = gpu_type
        self.gpus = {node.id: node.gpus for node in nodes if node.gpus}
        self.size = max(self.gpus.values(), default=0)
        self.jobs: dict[int, list[StrideJob]] = {node: [] for node in self.gpus}
        self.asked = dict.fromkeys(self.gpus, 0)
        self.load = dict.fromkeys(self.gpus, 0.0)
        self.touched: set[int] = set()
        self.spanning: dict[int, StrideJob] = {}
        self.is_as_read = True
        self._room: FreeGpus | None = None
        self._heap: list[tuple[float, int]] = []

    def read(self, one: StrideJob) -> None:
        """Add a job whose home was here before the round."""
        one.gpu_type, home = self.gpu_type, one.home
        if len(home) > 1:
            self.spanning[one.job.id] = one
        if one.is_new:
            self.touched.update([node for node, _ in home])
        for node, gpus in home:
            self.jobs[node].append(one)
            self.asked[node] += gpus

    def put(self, one: StrideJob, home: Placement, per_gpu: float = 0.0) -> None:
        """Set the home of a job; `per_gpu`: its tickets per GPU."""
        one.home, one.gpu_type = home, self.gpu_type
        if len(home) > 1:
            self.spanning[one.job.id] = one
        for node, gpus in home:
            self.jobs[node].append(one)
            self._change(node, gpus, per_gpu)

    def leave(self, one: StrideJob, per_gpu: float = 0.0) -> None:
        for node, gpus in one.home:
            self.jobs[node].remove(one)
            self._change(node, -gpus, per_gpu)
        self.spanning.pop(one.job.id, None)
        one.home, one.gpu_type = (), ""

    def _change(self, node: int, gpus: int, per_gpu: float) -> None:
        self.touched.add(node)
        self.is_as_read = False
        self.asked[node] += gpus
        self.load[node] += gpus * per_gpu / self.gpus[node]
        if self._room is not None:
            self._room.set(node, max(0, self.gpus[node] - self.asked[node]))
            heappush(self._heap, (self.load[node], node))

    def forget_order(self) -> None:
        """Drop the cached order of nodes after loads were recomputed."""
        self._room = None

    def find(self, gpus: int) -> Placement:
        """Return a home for a new job, not reserved; empty if the type has too few GPUs."""
        if self._room is None:
            rooms = {node: max(0, count - self.asked[node]) for node, count in self.gpus.items()}
            self._room = FreeGpus(rooms, self.size)
            self._heap = [(load, node) for node, load in self.load.items()]
            heapify(self._heap)
        fewest = -(-gpus // self.size) if self.size else 0
        home = self._room.find(gpus)
        if home is not None and len(home) == fewest:
            return home
        return self._least_loaded(gpus)

    def _least_loaded(self, gpus: int) -> Placement:
        """Return as few nodes as possible: the least loaded of the nodes that are large enough."""
        kept, chosen, left, seen = [], [], gpus, set[int]()
        while self._heap and left:
            load, node = heappop(self._heap)
            if load != self.load[node] or node in seen:
                continue  # the entry is stale or a duplicate
            seen.add(node)
            kept.append((load, node))
            if self.gpus[node] >= min(left, self.size):
                part = min(left, self.gpus[node])
                chosen.append((node, part))
                left -= part
        for entry in kept:
            heappush(self._heap, entry)
        if not left:
            return tuple(sorted(chosen))
        return self._largest_first(gpus)

    def _largest_first(self, gpus: int) -> Placement:
        """Return nodes of several sizes: the largest first, and the least loaded first on a tie."""
        chosen = []
        for node in sorted(self.gpus, key=lambda node: (-self.gpus[node], self.load[node], node)):
            part = min(gpus, self.gpus[node])
            chosen.append((node, part))
            gpus -= part
            if not gpus:
                return tuple(sorted(chosen))
        return ()


def read_homes(
    jobs: Iterable[StrideJob], nodes: Iterable[Node], types: GpuTypes, memory: Memory
) -> dict[str, TypeHomes]:
    """Return the jobs' homes by GPU type. A home is dropped if its job cannot use the type."""
    by_type: dict[str, list[Node]] = {name: [] for name in types.names}
    for node in sorted(nodes, key=lambda node: node.id):
        if node.gpu_type in by_type:
            by_type[node.gpu_type].append(node)
    homes = {name: TypeHomes(name, rows) for name, rows in by_type.items()}
    row_of = {node: row for row in homes.values() for node in row.gpus}
    active = set()
    for one in jobs:
        home = one.home
        if not home:
            continue
        row = row_of.get(home[0][0])
        if row is None or not (one.runs or row.gpu_type in one.usable):
            one.home = ()
            continue
        row.read(one)
        active.add(one.job.id)
    gone = [node for job in memory.jobs.keys() - active for node in nodes_of(memory.jobs[job])]
    for node_id in (*gone, *memory.stale):
        if node_id in row_of:
            row_of[node_id].touched.add(node_id)
    return homes


class Placer:
    """The part of a round that finds homes for jobs by their tenants' shares, and moves jobs."""

    def __init__(
        self,
        homes: Mapping[str, TypeHomes],
        types: GpuTypes,
        tenants: TenantTypes,
        jobs: Iterable[StrideJob],
    ) -> None:
        self.homes, self.types, self.tenants, self.jobs = homes, types, tenants, jobs
        placed = tenants.placed
        for one in jobs:
            if one.home:
                key = (one.job.tenant, one.gpu_type)
                placed[key] = placed.get(key, 0) + one.job.gpus

    def set_loads(self) -> None:
        """Compute the ticket load of each node, (2).

        Float sums depend on the order, so a node's tickets are always added in the order of its
        jobs. If no job came or left, a single loop over all jobs has this order and is faster.
        """
        per_gpu: dict[Claim, float] = {}
        tickets = {node: 0.0 for row in self.homes.values() for node in row.gpus}
        if all(row.is_as_read for row in self.homes.values()):
            for one in self.jobs:
                self._add_tickets(one, one.home, per_gpu, tickets)
        else:
            for row in self.homes.values():
                for node, jobs in row.jobs.items():
                    for one in jobs:
                        home = one.home
                        if len(home) > 1:
                            home = tuple(part for part in home if part[0] == node)
                        self._add_tickets(one, home, per_gpu, tickets)
        for row in self.homes.values():
            for node, gpus in row.gpus.items():
                row.load[node] = tickets[node] / gpus
            row.forget_order()

    def _add_tickets(
        self,
        one: StrideJob,
        home: Placement,
        per_gpu: dict[Claim, float],
        tickets: dict[int, float],
    ) -> None:
        for node, gpus in home:
            key = (one.job.tenant, one.gpu_type)
            load = per_gpu.get(key)
            if load is None:
                load = per_gpu[key] = self.tenants.load(*key)
            tickets[node] += load * gpus

    def settle_new(self, jobs: Iterable[StrideJob]) -> None:
        """Find homes for jobs that have none and can run (Algorithm 2).

        The tenant with the fewest GPUs relative to its share has the next turn. Its jobs are
        ordered by weight, then by submission.
        """
        new = [one for one in jobs if not one.home and one.usable]
        chosen: list[tuple[StrideJob, str]] = []
        for one in sorted(new, key=_queue_order):
            gpu_type = self._choose(one, one.usable)
            self._count(one, gpu_type, 1)
            chosen.append((one, gpu_type))
        if not chosen:
            return
        self.set_loads()
        for one, gpu_type in _by_turns(chosen, self.tenants):
            row = self.homes[gpu_type]
            row.put(one, row.find(one.job.gpus), self.tenants.load(one.job.tenant, gpu_type))
            one.passes.raise_to(least_pass_us(row, one))

    def _count(self, one: StrideJob, gpu_type: str, sign: int) -> None:
        key = (one.job.tenant, gpu_type)
        self.tenants.placed[key] = self.tenants.placed.get(key, 0) + sign * one.job.gpus

    def _choose(self, one: StrideJob, usable: tuple[str, ...]) -> str:
        """Return the type with the largest speed x tickets per GPU (Algorithm 2, line 5)."""
        if len(usable) == 1:
            return usable[0]
        job, tenants = one.job, self.tenants

        def rank(name: str) -> tuple[float, bool, int]:
            part = tenants.per_gpu(job.tenant, name, job.gpus)
            return (-self.types.speed_milli(job, name) * part, part < 1, -self.types.rank[name])

        return min(usable, key=rank)

    # ---- moves ----

    def balance(self, budget: int, percent: int) -> int:
        """Move waiting jobs from the most to the least loaded nodes.

        Return how many moves are left.
        """
        for _, row in sorted(self.homes.items()):
            # `fsum`, because `sum` rounds floats differently from Python 3.12 on.
            tickets = fsum(row.load[node] * gpus for node, gpus in row.gpus.items())
            average = tickets / max(1, sum(row.gpus.values()))
            if average:
                order = LoadOrder(row.load, row.asked, row.gpus)
                while budget and self._balance_one(row, order, average * percent / 100):
                    budget -= 1
        return budget

    def _balance_one(self, row: TypeHomes, order: LoadOrder, threshold: float) -> bool:
        least = order.least()
        for most in order.most_shared():
            gap = row.load[most] - row.load[least]
            if gap <= threshold:
                return False
            if self._move_between(row, most, least, gap):
                order.changed(most, least)
                return True
        return False

    def _move_between(self, row: TypeHomes, most: int, least: int, gap: float) -> bool:
        """Move the job that brings the loads of two nodes closest together, if one does."""
        best: tuple[float, bool, tuple[int, int, int]] | None = None
        moved = None
        for one in row.jobs[most]:
            if one.runs or len(one.home) > 1 or one.job.gpus > row.gpus[least]:
                continue
            tickets = self.tenants.load(one.job.tenant, row.gpu_type) * one.job.gpus
            left = gap - tickets / row.gpus[most] - tickets / row.gpus[least]
            rank = (abs(left), one.lease is not None, one.order)
            if tickets and abs(left) < gap and (best is None or rank < best):
                best, moved = rank, one
        if moved is None:
            return False
        self._move(moved, row, row, ((least, moved.job.gpus),))
        return True

    def _move(self, one: StrideJob, source: TypeHomes, target: TypeHomes, home: Placement) -> None:
        behind_us = one.passes.floor_us - least_pass_us(source, one)
        tenant = one.job.tenant
        source.leave(one, self.tenants.load(tenant, source.gpu_type))
        target.put(one, home, self.tenants.load(tenant, target.gpu_type))
        one.passes.base_us = least_pass_us(target, one) + max(0, behind_us)
        one.passes.served_gpu_us = 0

    def change_types(self, jobs: Iterable[StrideJob], budget: int, percent: int) -> int:
        """Move jobs to types on which they run faster. Return how many moves are left."""
        if len(self.types.names) < 2:
            return budget
        by_claim: dict[tuple[int, str], list[StrideJob]] = {}
        for one in jobs:
            if one.home and not one.runs and len(one.usable) > 1:
                by_claim.setdefault((one.job.tenant, one.gpu_type), []).append(one)
        for rows in by_claim.values():
            rows.sort(key=lambda one: (one.lease is not None, -one.job.submitted_us, -one.job.id))
        best = {claim: self._best_change(claim, rows, percent) for claim, rows in by_claim.items()}
        while budget:
            # On a tie, the first (tenant, from) wins.
            gains = [(-row[0], claim, *row[1:]) for claim, row in best.items() if row is not None]
            if not gains:
                break
            _, claim, target, one = min(gains, key=itemgetter(0, 1))
            source = claim[1]
            by_claim[claim].remove(one)
            self._count(one, source, -1)
            self._count(one, target, 1)
            home = self.homes[target].find(one.job.gpus)
            self._move(one, self.homes[source], self.homes[target], home)
            budget -= 1
            # A tenant's gain depends only on its own jobs.
            for other, rows in by_claim.items():
                if other[0] == claim[0]:
                    best[other] = self._best_change(other, rows, percent)
        return budget

    def _best_change(
        self, claim: Claim, rows: Iterable[StrideJob], percent: int
    ) -> tuple[float, str, StrideJob] | None:
        """Return the largest gain of a tenant's jobs on a type, the target type, and the job.

        On a tie, the first job of `rows` is chosen: the latest job, and one without a lease if
        possible.
        """
        best = None
        tried = set()
        for one in rows:
            kind = (one.job.profile, one.job.gpus, one.job.gpu_types)
            if kind in tried:
                continue
            tried.add(kind)
            gain = self._gain(one, claim[1])
            if gain and gain[0] > 1 + percent / 100 and (best is None or gain[0] > best[0]):
                best = (gain[0], gain[1], one)
        return best

    def _gain(self, one: StrideJob, source: str) -> tuple[float, str] | None:
        job, tenants = one.job, self.tenants
        here = self.types.speed_milli(job, source) * tenants.per_gpu(job.tenant, source)
        there = [
            (self.types.speed_milli(job, name) * tenants.per_gpu(job.tenant, name, job.gpus), name)
            for name in one.usable
            if name != source
        ]
        best = max(there, key=lambda row: (row[0], self.types.rank[row[1]]))
        if not here:
            return (float("inf"), best[1]) if best[0] else None
        return (best[0] / here, best[1])


def least_pass_us(row: TypeHomes, one: StrideJob) -> int:
    """Return the least pass of the other jobs on a job's nodes, or its own pass without them."""
    others = [
        other.passes.floor_us
        for node, _ in one.home
        for other in row.jobs[node]
        if other is not one and other.passes.rate
    ]
    return min(others, default=one.passes.floor_us)


def least_passes(jobs: Iterable[StrideJob], nodes: Set[int]) -> dict[int, int]:
    """Return for each of these nodes the least pass of its jobs with tickets, or 0 if none."""
    least: dict[int, int] = {}
    for one in jobs:
        passes = one.passes
        if not passes.rate:
            continue
        for node, _ in one.home:
            if node in nodes:
                # `Pass.floor_us`, inlined for speed
                floor_us = passes.base_us + passes.served_gpu_us * UNIT // passes.rate
                before = least.get(node)
                if before is None or floor_us < before:
                    least[node] = floor_us
    return least if len(least) == len(nodes) else {node: least.get(node, 0) for node in nodes}


def _queue_order(one: StrideJob) -> tuple[int, int, int]:
    return (-one.job.weight, one.job.submitted_us, one.job.id)


def _by_turns(
    chosen: list[tuple[StrideJob, str]], tenants: TenantTypes
) -> list[tuple[StrideJob, str]]:
    """Order jobs by turns; the tenant with the fewest GPUs for its share is next (line 2)."""
    shares: dict[int, int] = {}
    for (tenant, _), micro in tenants.shares.items():
        shares[tenant] = shares.get(tenant, 0) + micro
    queues: dict[int, list[tuple[StrideJob, str]]] = {}
    for row in reversed(chosen):
        queues.setdefault(row[0].job.tenant, []).append(row)
    placed = dict.fromkeys(queues, 0)
    for (tenant, _), gpus in tenants.placed.items():
        if tenant in placed:
            placed[tenant] += gpus
    for tenant, rows in queues.items():
        placed[tenant] -= sum(one.job.gpus for one, _ in rows)

    def entry(tenant: int) -> tuple[float, int]:
        share = shares.get(tenant, 0)
        return (placed[tenant] / share if share else float("inf"), tenant)

    heap = [entry(tenant) for tenant in queues]
    heapify(heap)
    order = []
    while heap:
        _, tenant = heappop(heap)
        row = queues[tenant].pop()
        order.append(row)
        placed[tenant] += row[0].job.gpus
        if queues[tenant]:
            heappush(heap, entry(tenant))
    return order
