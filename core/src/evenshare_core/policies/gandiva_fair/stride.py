"""Turns of jobs by split, gang-aware stride; GPUs that no turn uses go to waiting jobs.

Source: Gandiva_fair (EuroSys 2020), 3.1 and Algorithm 1.

1. *On a node*, the jobs at home there take turns by pass; the least pass is first. A job that does
   not fit is skipped and keeps its pass. The pass of a job that runs grows by size x term / rate.
2. *Over nodes*: if a type has jobs over several nodes, these jobs and an aggregate per node take
   turns by pass in the same way. An aggregate's rate is the sum of its jobs' rates. It is charged
   for all GPUs of its node. If a job over several nodes uses some of them, it is charged only for
   those that its own jobs use.
3. *Unexpired leases* keep their GPUs. If they block the job with the least pass for a whole
   quantum, the free GPUs of its nodes are kept for it. Other jobs then get these GPUs only for
   terms that end before the job needs them.
4. *Idle GPUs*: a waiting job moves to another node of its type that has room left. After that, a
   job may run as a guest on another type without changing its home.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop

from msgspec.structs import replace

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import Grant, Key, Renew
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.placement.consolidated import FreeGpus
from evenshare_core.policies.gandiva_fair.homes import TypeHomes, least_pass_us, least_passes
from evenshare_core.policies.gandiva_fair.memory import NEVER, Memory, Pass, StrideJob
from evenshare_core.policies.gandiva_fair.rates import UNIT
from evenshare_core.policies.gandiva_fair.tickets import GpuTypes
from evenshare_core.policies.shared.admission import Admission, Refusal

# The waiting jobs of a node, each preceded by the fields that order its turn.
Queue = list[tuple[float, int, int, int, StrideJob]]
TURN, IDLE, GUEST = "", "idle", "guest"
KEYS = {note: Key(None, None, note) for note in (TURN, IDLE, GUEST)}


class Turns:
    """The picks of the round so far. `held`: by node, the GPUs that are kept free for a job."""

    def __init__(
        self, snapshot: Snapshot, memory: Memory, types: GpuTypes, term_us: int, quantum_us: int
    ) -> None:
        self.at_us, self.term_us, self.quantum_us = snapshot.at_us, term_us, quantum_us
        self.memory, self.types = memory, types
        self.admission = Admission.of(replace(snapshot, lease_us=term_us))
        self.grants: list[Grant] = []
        self.renewals: list[Renew] = []
        self.given: set[int] = set()
        self.refused: dict[int, Refusal] = {}
        self.held: dict[int, int] = {}
        self._blocked: dict[int, int] = {}
        self._free = {node.id: node.gpus for node in snapshot.nodes}
        self._frees_us: dict[int, int] = {}  # by node, when its last continuing lease may end
        self._spanned: set[int] = set()  # nodes on which jobs over several nodes hold GPUs
        for lease in snapshot.leases:
            if not lease.ends_by(self.at_us):
                end_us = max(lease.expires_us, lease.protected_until_us)
                for node, gpus in lease.placement:
                    if node in self._free:
                        self._free[node] = max(0, self._free[node] - gpus)
                        self._frees_us[node] = max(end_us, self._frees_us.get(node, 0))
                    if len(lease.placement) > 1:
                        self._spanned.add(node)

    def run(self, homes: Mapping[str, TypeHomes], jobs: Iterable[StrideJob]) -> None:
        """Run the turns of every GPU type, then give away idle GPUs."""
        jobs = list(jobs)
        waiting = [one for one in jobs if one.home and not one.runs]
        rates, queues = self._read_queues(jobs)
        nodes: set[int] = set()
        for _, row in sorted(homes.items()):
            nodes |= self._run_type(row, rates, queues)
        for node in self.memory.nodes.keys() - nodes:
            del self.memory.nodes[node]
        for _, row in sorted(homes.items()):
            self._fill_idle(row, waiting, jobs)
        if len(homes) > 1:
            for name in reversed(self.types.names):
                self._invite(homes[name], waiting)
        self.memory.blocked.clear()
        self.memory.blocked.update(self._blocked)

    def is_kept_from(self, one: StrideJob) -> bool:
        """Return whether the job could have started if no GPUs were kept for another job."""
        return one.job.id not in self._blocked and any(
            one.job.gpus <= self._free[node] for node, _ in one.home if node in self.held
        )

    # ---- turns ----

    def _read_queues(self, jobs: Iterable[StrideJob]) -> tuple[dict[int, int], dict[int, Queue]]:
        """Return the total rate of each node's jobs, and the waiting jobs of nodes with free GPUs.

        Only jobs whose home is one node are included. Because of memory locality, a loop over all
        jobs is several times as fast as a loop over nodes.
        """
        free = self._free
        rates = dict.fromkeys(free, 0)
        queues: dict[int, Queue] = {node: [] for node, gpus in free.items() if gpus}
        for one in jobs:
            if len(one.home) == 1:
                node, passes = one.home[0][0], one.passes
                rate = passes.rate
                rates[node] += rate
                if not one.runs and free[node]:
                    job, value = one.job, NEVER
                    if rate:  # `Pass.value`, inlined for speed
                        value = (passes.base_us * rate + passes.served_gpu_us * UNIT) / rate
                    queues[node].append((value, job.gpus, job.submitted_us, job.id, one))
        return rates, queues

    def _run_type(
        self, row: TypeHomes, rates: Mapping[int, int], queues: Mapping[int, Queue]
    ) -> set[int]:
        """Apply rules 1 and 2; return the nodes with an aggregate pass."""
        spanning = row.spanning
        if not spanning:
            for node in row.gpus:
                self._run_node(row, node, queues.get(node, []))
            return set()
        self._join_aggregates(row, rates)
        entries: list[tuple[tuple[float, int, int, int], StrideJob | None, int]] = [
            (one.turn, one, 0) for one in spanning.values() if not one.runs
        ]
        for node, gpus in row.gpus.items():
            if self._free[node] and queues[node]:
                entries.append(((self.memory.nodes[node].value, gpus, -1, node), None, node))
        is_first = True
        for _, one, node in sorted(entries, key=lambda entry: entry[0]):
            if one is None:
                self._run_aggregate(row, node, queues[node])
                is_first = False
            elif self._fits(one):
                outcome = self._give(one, row.gpu_type, one.home, TURN)
                if outcome:
                    self._spanned.update(home for home, _ in one.home)
                    is_first = False
            elif is_first:
                self._keep_out(one)
                is_first = False
        return {node for node in row.gpus if node in self.memory.nodes}

    def _fits(self, one: StrideJob) -> bool:
        return all(self._free[node] >= gpus and self._ends_in_time(node) for node, gpus in one.home)

    def _ends_in_time(self, node: int) -> bool:
        """Return whether a term from now ends before the job that the node is kept for needs it."""
        return node not in self.held or self.at_us + self.term_us <= self._frees_us.get(node, 0)

    def _keep_out(self, one: StrideJob) -> None:
        """Apply rule 3 to the job with the least pass, which continuing leases block."""
        if not any(node in self._frees_us for node, _ in one.home):
            return
        since_us = self.memory.blocked.get(one.job.id, self.at_us)
        self._blocked[one.job.id] = since_us
        if self.at_us - since_us >= self.quantum_us:
            until_us = max(self._frees_us.get(node, 0) for node, _ in one.home)
            for node, gpus in one.home:
                self.held[node] = min(gpus, self._free[node])
                self._frees_us[node] = until_us

    def _run_node(self, row: TypeHomes, node: int, queue: Queue) -> int:
        """Apply rule 1; return how many GPUs were given."""
        free = before = self._free[node]
        if not free:
            return 0
        queue.sort()
        is_first = node not in self._spanned
        for *_, one in queue:
            if one.job.gpus <= free:
                if self._ends_in_time(node) and self._give(one, row.gpu_type, one.home, TURN):
                    free = self._free[node]
                    is_first = False
            elif is_first:
                self._keep_out(one)
                is_first = False
            if not free:
                break
        return before - free

    def _run_aggregate(self, row: TypeHomes, node: int, queue: Queue) -> None:
        gpus = self._run_node(row, node, queue)
        if node not in self._spanned and gpus:
            is_whole = self._free[node] + gpus == row.gpus[node]
            gpus = row.gpus[node] if is_whole else gpus
        self.memory.nodes[node].served_gpu_us += gpus * self.term_us

    def _join_aggregates(self, row: TypeHomes, rates: Mapping[int, int]) -> None:
        """Update each node's aggregate pass. A new one starts at the least pass of its rivals."""
        known, spanning = self.memory.nodes, row.spanning.values()
        passes = [known[node].floor_us for node in row.gpus if node in known]
        passes += [one.passes.floor_us for one in spanning if not one.is_new]
        least_us = min(passes, default=0)
        for one in spanning:
            if one.is_new:
                one.passes.raise_to(least_us)
        for node in row.gpus:
            if node not in known:
                known[node] = Pass(least_us)
            known[node].set_rate(rates[node])

    # ---- idle GPUs ----

    def _fill_idle(
        self, row: TypeHomes, waiting: Iterable[StrideJob], jobs: Iterable[StrideJob]
    ) -> None:
        """Move the type's waiting jobs to nodes with idle GPUs (rule 4)."""
        idle = self._idle(row)
        if not idle.total:
            return
        largest, total, size = idle.largest_free(), idle.total, row.size
        name, given, refused = row.gpu_type, self.given, self.refused
        mine = [
            one
            for one in waiting
            if (one.job.gpus <= largest or size < one.job.gpus <= total)
            and one.gpu_type == name
            and one.job.id not in given
            and one.job.id not in refused
        ]
        for one in _furthest_behind_first(mine, jobs):
            gpus = one.job.gpus
            if gpus > (largest if gpus <= size else idle.total):
                continue
            placement = idle.find(gpus)
            if placement is None:
                continue
            behind_us = max(0, one.passes.floor_us - least_pass_us(row, one))
            if self._give(one, row.gpu_type, placement, IDLE):
                row.leave(one)
                row.put(one, placement)
                idle.take(placement)
                one.passes.base_us = least_pass_us(row, one) + behind_us
                one.passes.served_gpu_us = gpus * self.term_us
                largest = idle.largest_free()
                if not largest:
                    break

    def _idle(self, row: TypeHomes) -> FreeGpus:
        free, held = self._free, self.held
        return FreeGpus({node: free[node] for node in row.gpus if node not in held}, row.size)

    def _invite(self, row: TypeHomes, waiting: Iterable[StrideJob]) -> None:
        """Give this type's idle GPUs for one term to jobs whose home is another type (rule 4)."""
        idle = self._idle(row)
        if not idle.total:
            return
        guests = [
            one
            for one in waiting
            if one.job.id not in self.given
            and one.job.gpus <= idle.total
            and one.gpu_type != row.gpu_type
            and row.gpu_type in one.usable
        ]
        guests.sort(key=lambda one: (not _is_at(one, row), one.job.submitted_us, one.job.id))
        for one in guests:
            lease = one.lease
            placement = idle.find(one.job.gpus)
            if lease is not None and _is_at(one, row) and idle.has(lease.placement):
                placement = lease.placement
            if placement is not None and self._give(one, row.gpu_type, placement, GUEST):
                idle.take(placement)

    # ---- terms ----

    def _give(self, one: StrideJob, gpu_type: str, placement: Placement, note: str) -> bool:
        job, lease = one.job, one.lease
        refusal = self.admission.check(job, gpu_type)
        if refusal is not None:
            if note != GUEST:
                self.refused[job.id] = refusal
            return False
        order, key = len(self.given) + 1, KEYS[note]
        if lease is not None and lease.placement == placement:
            self.renewals.append(Renew.of(lease, order, key))
        else:
            self.grants.append(Grant(order, job.id, job.tenant, gpu_type, placement, key))
        self.given.add(job.id)
        self.admission.take(job.tenant, gpu_type, job.gpus)
        for node, gpus in placement:
            self._free[node] -= gpus
        if note != GUEST:
            one.passes.served_gpu_us += job.gpus * self.term_us
        return True


def _furthest_behind_first(
    some: Sequence[StrideJob], jobs: Iterable[StrideJob]
) -> Iterator[StrideJob]:
    """Yield jobs by their pass minus the least pass on their nodes, the lowest difference first.

    Sorting is lazy, because few idle GPUs are left when most jobs wait.
    """
    if len(some) < 2:
        yield from some
        return
    least = least_passes(jobs, {node for one in some for node, _ in one.home})
    heap = []
    for one in some:
        passes, home, job = one.passes, one.home, one.job
        lag_us: float = NEVER
        if passes.rate:
            last = least[home[0][0]] if len(home) == 1 else min(least[node] for node, _ in home)
            lag_us = passes.base_us + passes.served_gpu_us * UNIT // passes.rate - last
        heap.append((lag_us, job.gpus, job.submitted_us, job.id, one))
    heapify(heap)
    while heap:
        yield heappop(heap)[-1]


def _is_at(one: StrideJob, row: TypeHomes) -> bool:
    return one.lease is not None and one.lease.placement[0][0] in row.gpus
