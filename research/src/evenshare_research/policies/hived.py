"""HiveD: quotas as buddy cells; idle cells run spot jobs, which make room for their owners.

Source: HiveD (OSDI 2020), 3 and 4, as both Astraea papers compare with it (LTGF 6.1.5, online 5.1).

They describe it as "a dynamic quota, allowing users to submit spot jobs to other VCs with lower
utilization".

| paper | here |
|---|---|
| virtual private cluster of a tenant | its quota of a GPU type, as `buddy_cells` |
| guaranteed job | a job that fits free cells of its tenant |
| opportunistic (spot) job | every other job that fits the pool |
| preemption of spot jobs by owners | `Decision.preemptions` of the rule `guarantee`, with notice |

1. Expired leases on their tenant's cells are renewed.
2. Waiting jobs get cells of their tenant, in order of submission. If spot jobs hold these GPUs, the
   fewest of their leases end. A job waits for leases that may not end yet (`min_runtime_s`), and
   its cells stay reserved.
3. The remaining GPUs go to spot jobs, in order of submission, including those with an expired
   lease. Jobs that do not fit block no other job.

A lease is on its tenant's own cells if its GPUs are within them. Older leases are counted first.

Departures, each with its test in tests/papers/test_hived.py:

- A cell is bound to a node when it is created, and stays on this node. HiveD binds a cell only
  while jobs use it. So spot jobs are preempted a little more often here.
- Users do not mark spot jobs: a job is a spot job while its tenant's cells are too small for it.
- A job gets its tenant's cells only if the tenant, with this job and its spot jobs, holds no more
  than its quota. If it would hold more, the job is a spot job.
- On each node, a round ends leases for only one gang.
- GPUs of a node are interchangeable, so cells smaller than a node are only numbers of GPUs.

All orders end in (submitted, id).
"""

from collections.abc import Iterable
from operator import itemgetter
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from evenshare_core.domain.cluster import (
    Node,
    Placement,
    capacity_by_type,
    node_sizes,
    placement_gpus,
)
from evenshare_core.domain.decision import Decision, End, Preemption
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason, PreemptionRule
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.placement.consolidated import FreeCapacity
from evenshare_core.policies.options import SPREAD_TEXT, Options, parse_options
from evenshare_core.policies.policy import Policy, Traits
from evenshare_core.policies.quota_promise import (
    PoolLengths,
    QuotaPromise,
    QuotaPromiseKind,
    WaitPart,
)
from evenshare_core.policies.shared.admission import Admission
from evenshare_core.policies.shared.ordered import (
    OrderedPicks,
    QueueCandidates,
    QueuedJob,
    QueueRule,
    by_arrival,
    by_start,
    pool_capacity,
    queued_jobs,
)
from evenshare_core.units import SECOND_US
from evenshare_research.policies.buddy_cells import (
    MEMORY_IDS,
    Cell,
    bind_cells,
    cells_in,
    cells_memory,
)

OWN_CELLS, SPOT = "own_cells", "spot"
CELLS_CONDITION = (
    "The gang fits free cells of its tenant and, with all GPUs that the tenant holds, its quota."
)
NODE_CONDITION = "In a round, leases on a node end for one gang only."


class HivedOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    min_runtime_s: Annotated[
        int,
        Meta(ge=0, le=86_400, description="How long a job runs before it may be preempted."),
    ] = 300
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False

    @property
    def min_runtime_us(self) -> int:
        """Return how long a new lease is protected."""
        return self.min_runtime_s * SECOND_US


class Hived(Policy):
    name = "hived"
    version = "1"
    title = "Buddy cells"
    promise = "A tenant's quota is a set of cells of nodes, available to it at any time."
    suits = "Quotas as parts of nodes: large gangs start quickly, and idle parts are lent."
    order_text = (
        "Jobs that fit their tenant's cells go first, in the order of submission; then other"
        " jobs, on idle cells."
    )
    quota_text = (
        "A quota is a part of certain nodes. Others may use it while it is idle and return it"
        " within the minimum runtime of their jobs, the time to the next round, and their"
        " notice."
    )
    quota_kind = QuotaPromiseKind.GUARANTEED
    note_texts = MappingProxyType(
        {
            OWN_CELLS: "It runs on its tenant's cells.",
            SPOT: "It runs on idle cells and makes room when their owner needs them.",
        }
    )
    traits = Traits(preempts=True, preempts_running=True)
    memory_ids = MEMORY_IDS
    options_type = HivedOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        options = parse_options(HivedOptions, snapshot.options)
        cells = _cells(snapshot)
        use = CellUse(snapshot, cells, queued_jobs(snapshot), spread=options.spread)
        picks = HivedPicks(snapshot, use, options)
        picks.renew_all(use.renewed)
        for one in use.waiting:
            picks.consider(one)
        decision = picks.decision(snapshot)
        ends = sorted([*decision.ends, *picks.ends], key=lambda end: end.lease)
        return replace(
            decision,
            ends=tuple(ends),
            preemptions=tuple(picks.preemptions),
            memory=cells_memory(cells),
        )

    def queue_order(self, snapshot: Snapshot) -> tuple[int, ...]:
        options = parse_options(HivedOptions, snapshot.options)
        queue = queued_jobs(snapshot)
        use = CellUse(snapshot, _cells(snapshot), queue, spread=options.spread)
        rows = (*sorted(use.renewed, key=by_start), *use.waiting)
        return tuple(one.job.id for one in rows)

    def quota_promise(self, options: Options, lengths: PoolLengths) -> QuotaPromise:
        """Return the guarantee that spot jobs give cells back once they ran long enough."""
        parts = (
            WaitPart("minimum runtime of the jobs that make room", options.min_runtime_us),
            WaitPart("until the next round", lengths.round_us),
            WaitPart("their notice", lengths.notice_us),
        )
        conditions = (CELLS_CONDITION, NODE_CONDITION)
        return QuotaPromise(self.quota_kind, self.quota_text, parts, conditions)


def _cells(snapshot: Snapshot) -> dict[str, list[Cell]]:
    nodes: dict[str, list[Node]] = {}
    for node in snapshot.nodes:
        nodes.setdefault(node.gpu_type, []).append(node)
    held: dict[tuple[int, int], int] = {}
    for lease in snapshot.leases:
        for node_id, gpus in lease.placement:
            held[lease.tenant, node_id] = held.get((lease.tenant, node_id), 0) + gpus
    return {
        name: bind_cells(
            nodes[name],
            [row for row in snapshot.entitlements if row.gpu_type == name],
            cells_in(snapshot.memory, name),
            held,
        )
        for name in sorted(nodes)
    }


class CellUse:
    """The owners' use of cells in a round. Spot jobs take the rest.

    `renewed`: jobs with expired leases on own cells. `waiting`: all other jobs, in the order of
    placement. `assigned`: by waiting job, the GPU type and GPUs of own cells. `spot`: running
    leases outside of own cells. `overfull`: nodes that lost GPUs, where an ended lease frees no
    GPUs yet.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        cells: dict[str, list[Cell]],
        queue: Iterable[QueuedJob],
        *,
        spread: bool,
    ) -> None:
        self._spread = spread
        self._rooms: dict[tuple[int, str], dict[int, int]] = {}
        for name, rows in cells.items():
            for cell in rows:
                room = self._rooms.setdefault((cell.tenant, name), {})
                room[cell.node] = room.get(cell.node, 0) + cell.gpus
        self._quotas = {(row.tenant, row.gpu_type): row.gpus for row in snapshot.entitlements}
        self._held: dict[tuple[int, str], int] = {}
        self._sizes = node_sizes(snapshot.nodes)
        # By node, the GPUs that no running lease holds.
        self._free = {node.id: node.gpus for node in snapshot.nodes}
        self.spot: list[Lease] = []
        self._run_on(snapshot)
        self.overfull = {node for node, gpus in self._free.items() if gpus < 0}
        self.renewed: list[QueuedJob] = []
        self.assigned: dict[int, tuple[str, Placement]] = {}
        self.waiting: list[QueuedJob] = []
        self._assign(queue)

    def owns(self, one: QueuedJob) -> bool:
        """Return whether the job is placed before all spot jobs."""
        return one.job.id in self.assigned

    def _run_on(self, snapshot: Snapshot) -> None:
        """Count running leases on their GPUs, and on their tenant's cells with these GPUs."""
        for lease in sorted(snapshot.leases, key=lambda row: (row.started_us, row.id)):
            if lease.ends_by(snapshot.at_us):
                continue
            self._hold(lease.tenant, lease.gpu_type, lease.placement)
            if not self._enter(lease):
                self.spot.append(lease)

    def _enter(self, lease: Lease) -> bool:
        room = self._rooms.get((lease.tenant, lease.gpu_type), {})
        is_own = all(room.get(node, 0) >= gpus for node, gpus in lease.placement)
        if is_own:
            self._take(room, lease.placement)
        return is_own

    def _hold(self, tenant: int, gpu_type: str, placement: Placement) -> None:
        self._take(self._free, placement)
        key = (tenant, gpu_type)
        self._held[key] = self._held.get(key, 0) + placement_gpus(placement)

    @staticmethod
    def _take(room: dict[int, int], placement: Placement) -> None:
        for node, gpus in placement:
            room[node] = room.get(node, 0) - gpus

    def _assign(self, queue: Iterable[QueuedJob]) -> None:
        rest = []
        for one in sorted(queue, key=by_start):
            if one.lease is not None and self._enter(one.lease):
                self._hold(one.lease.tenant, one.lease.gpu_type, one.lease.placement)
                self.renewed.append(one)
            else:
                rest.append(one)
        for one in sorted(rest, key=by_arrival):
            if one.lease is None:
                self._give_cells(one)
        self.waiting = sorted(rest, key=lambda one: (not self.owns(one), *by_arrival(one)))

    def _give_cells(self, one: QueuedJob) -> None:
        """Give a job free cells of its tenant, on the first of its types that has enough."""
        for name in one.gpu_types:
            key = (one.job.tenant, name)
            if self._held.get(key, 0) + one.job.gpus > self._quotas.get(key, 0):
                continue
            room = self._rooms.get(key, {})
            placement = self._find(room, one.job.gpus, self._sizes.get(name, 0))
            if placement:
                self._take(room, placement)
                self._hold(*key, placement)
                self.assigned[one.job.id] = (name, placement)
                return

    def _find(self, room: dict[int, int], gpus: int, size: int) -> Placement:
        """Return cells for a gang on the fewest nodes, on a tie those with the fewest spot GPUs.

        A gang that fits the largest node stays on one node. Return () if the cells are too small.
        """
        fitting = [node for node, count in room.items() if count >= gpus]
        if fitting:
            best = min(fitting, key=lambda node: (self._missing(node, gpus), room[node], node))
            return ((best, gpus),)
        total = sum(count for count in room.values() if count > 0)
        if total < gpus or (gpus <= size and not self._spread):
            return ()
        places, left = [], gpus
        order = sorted(room, key=lambda node: (-room[node], self._missing(node, room[node]), node))
        for node in order:
            count = min(left, room[node])
            if count > 0:
                places.append((node, count))
                left -= count
        return tuple(sorted(places))

    def _missing(self, node: int, gpus: int) -> int:
        """Return the GPUs that spot jobs would have to release."""
        return max(0, gpus - max(0, self._free.get(node, 0)))


class HivedPicks(OrderedPicks):
    """The grants of the round so far. `ends` and `preemptions` are those of spot leases."""

    def __init__(self, snapshot: Snapshot, use: CellUse, options: HivedOptions) -> None:
        rule = QueueRule(
            order=by_arrival,
            preempts=True,
            spread=options.spread,
            note=self._note,
        )
        super().__init__(rule, pool_capacity(snapshot, rule), Admission.of(snapshot))
        self._use = use
        self._own = {one.job.id for one in use.renewed}
        self._jobs = {job.id: job for job in snapshot.jobs}
        self._sums = {row.job: row for row in snapshot.service.jobs}
        self._quotas = {(row.tenant, row.gpu_type): row.gpus for row in snapshot.entitlements}
        self._candidates = QueueCandidates(capacity_by_type(snapshot.nodes))
        began_us = snapshot.at_us - options.min_runtime_us
        self._may_end: dict[int, list[Lease]] = {}  # spot leases by node
        for lease in use.spot:
            nodes = [node for node, _ in lease.placement]
            if (
                lease.may_be_preempted(snapshot.at_us)
                and lease.started_us <= began_us
                and lease.job in self._jobs
                and not use.overfull.intersection(nodes)
            ):
                for node in nodes:
                    self._may_end.setdefault(node, []).append(lease)
        self._cleared: set[int] = set()  # nodes on which this round already ends leases for a gang
        self.ends: list[End] = []
        self.preemptions: list[Preemption] = []

    def _note(self, one: QueuedJob) -> str:
        return OWN_CELLS if one.job.id in self._own else SPOT

    def in_turn(self, candidate: QueuedJob) -> list[QueuedJob]:
        """Return a candidate on each of its types, starting with the type of its assigned cells."""
        tries = super().in_turn(candidate)
        first = self._use.assigned.get(candidate.job.id, ("", ()))[0]
        return sorted(tries, key=lambda one: one.gpu_type != first)

    def place(self, one: QueuedJob, free_capacity: FreeCapacity) -> Placement | None:
        """Place a job on its cells, ending spot leases if needed, or else on idle GPUs."""
        name, placement = self._use.assigned.get(one.job.id, ("", ()))
        if name != one.gpu_type:
            return super().place(one, free_capacity)
        if not free_capacity.available.has(placement):
            victims = self._victims(placement, free_capacity)
            if not victims:
                free_capacity.hold_back(placement)
                return None
            for lease in victims:
                self._end(lease, one.job, free_capacity)
            self._cleared |= {node for node, _ in placement}
        free_capacity.put(placement)
        self._own.add(one.job.id)
        return placement

    def _victims(self, placement: Placement, free_capacity: FreeCapacity) -> list[Lease]:
        """Return the leases to end so that these GPUs become free, or [] if they cannot.

        On each node, take the smallest lease that frees enough, or else the largest, and repeat. On
        a tie, take the youngest lease. Leases that turn out to be unnecessary continue.
        """
        free = free_capacity.available.free
        missing = {node: gpus - free.get(node, 0) for node, gpus in placement}
        victims: list[Lease] = []
        for node in missing:
            rows = [lease for lease in self._may_end.get(node, ()) if self._is_apart(lease)]
            while (short := _short(missing, victims, node)) > 0:
                there = [
                    (_victim_order(gpus, row, short), row)
                    for row in rows
                    for place, gpus in row.placement
                    if place == node and row not in victims
                ]
                if not there:
                    return []
                victims.append(min(there, key=itemgetter(0))[1])
        for lease in list(victims):
            rest = [row for row in victims if row is not lease]
            if all(_short(missing, rest, node) <= 0 for node in missing):
                victims = rest
        return victims

    def _is_apart(self, lease: Lease) -> bool:
        """Return whether this round has ended no leases on the lease's nodes."""
        return not any(node in self._cleared for node, _ in lease.placement)

    def _end(self, lease: Lease, job: Job, free_capacity: FreeCapacity) -> None:
        """End a spot lease before its expiry. Its job then waits."""
        numbers = {
            "held": self.admission.held(job.tenant, lease.gpu_type),
            "quota": self._quotas.get((job.tenant, lease.gpu_type), 0),
        }
        self.ends.append(End(lease.id, lease.job, lease.tenant, EndReason.PREEMPTED))
        self.preemptions.append(
            Preemption(
                lease.id, lease.job, lease.tenant, PreemptionRule.GUARANTEE, job.id, job.tenant,
                numbers,
            )
        )  # fmt: skip # rows of what belongs together
        for node, _ in lease.placement:
            self._may_end[node].remove(lease)
        self._cleared |= {node for node, _ in lease.placement}
        free_capacity.clear(lease.placement)
        self.admission.let_go(lease)
        self.wait(self._candidates.of(self._jobs[lease.job], self._sums[lease.job], None))


def _short(missing: dict[int, int], victims: Iterable[Lease], node: int) -> int:
    """Return how many GPUs a node still lacks once these leases have ended."""
    freed = sum(gpus for lease in victims for place, gpus in lease.placement if place == node)
    return missing[node] - freed


def _victim_order(gpus: int, lease: Lease, short: int) -> tuple[bool, int, int, int]:
    """Return the sort key of a lease with `gpus` on a node that lacks `short` GPUs."""
    is_enough = gpus >= short
    return (not is_enough, gpus if is_enough else -gpus, -lease.started_us, -lease.id)


POLICY = Hived()
