"""Room for a job that does not fit: rule 6 moves small jobs, rule 5 and the guarantee end leases.

For gangs over several nodes, see `gangs`.
"""

from collections.abc import Callable, Collection, Iterable

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import PreemptionRule
from evenshare_core.fairness.gpu_time import job_received
from evenshare_core.placement.consolidated import FreeCapacity
from evenshare_core.placement.defragmentation import MOVABLE_GPUS, make_room
from evenshare_core.policies.evenshare.gangs import GangRoom
from evenshare_core.policies.evenshare.options import RESTART_US
from evenshare_core.policies.evenshare.progress import NOTE_OF, RoundProgress
from evenshare_core.policies.evenshare.queues import LONG_GPU_US, EvenCandidate, remaining_us
from evenshare_core.policies.shared.preemption import (
    ClearedNode,
    LeaseIndex,
    VictimRule,
    VictimSearch,
    fewest_victims,
    overfull_nodes,
    preemptible,
)


class RoomMaker:
    """The part of a round that makes room for jobs. Failed searches are not repeated."""

    def __init__(self, progress: RoundProgress, spared: Callable[[], Collection[int]]) -> None:
        """`spared`: returns the jobs whose leases no rule here may end."""
        self._progress, self._options, self._spared = progress, progress.options, spared
        self._indices: dict[str, LeaseIndex] | None = None
        self._gangs = self._moves = 0
        # The smallest gang for which a rule failed, by (rule, type). For rule 5, the key also
        # has the tenant.
        self._failed: dict[tuple[object, ...], int] = {}
        self._searches: dict[tuple[str, int, int, float], VictimSearch] = {}
        self._failed_needs: dict[tuple[int, str, int], float] = {}
        self._gang_room = GangRoom(progress, self._owed, self._index, self._clear)

    def may_differ(self, one: EvenCandidate) -> bool:
        """Return whether, although this job failed, other jobs of its kind may still get room."""
        return self._options.estimates == "given" and self._may_pay(one)

    def make(self, one: EvenCandidate, gpu_types: Iterable[str]) -> bool:
        """Clear room for the job's gang and grant it; return whether that was possible."""
        gpus = one.job.gpus
        for gpu_type in gpu_types:
            free = self._progress.free_by_type[gpu_type]
            if gpus > free.available.size:
                if self._gang_room.make(one, gpu_type, free):
                    return True
            elif (
                self._defragment(one, gpu_type, free)
                or self._guarantee(one, gpu_type, free)
                or self._pays(one, gpu_type, free)
            ):
                return True
        return False

    def _may_pay(self, one: EvenCandidate) -> bool:
        sums = one.sums
        is_new = one.lease is None and not sums.alloc_gpu_us and not sums.held
        return is_new and self._options.pays and not self._options.is_tight

    # The guarantee, of the first edition.

    def _guarantee(self, one: EvenCandidate, gpu_type: str, free: FreeCapacity) -> bool:
        job = one.job
        numbers = self._owed(job, gpu_type)
        memo = ("guarantee", gpu_type)
        if numbers is None or self._is_hopeless(memo, job.gpus):
            return False
        choice = self._search(gpu_type, free, job.gpus, free.available.size, float("-inf")).best()
        if choice is None:
            return self._fails(memo, job.gpus)
        return self._take(one, gpu_type, choice[1], PreemptionRule.GUARANTEE, numbers)

    def _owed(self, job: Job, gpu_type: str) -> dict[str, int] | None:
        """Return numbers that show that the tenant is owed the job's GPUs, else None."""
        if not self._options.has_guarantee:
            return None
        mine = self._progress.standings[job.tenant, gpu_type]
        if mine.held + job.gpus > mine.quota:
            return None
        if not (self._options.is_tight or mine.is_owed()):
            return None
        return {
            "held": mine.held,
            "quota": mine.quota,
            "received_gpu_us": mine.received,
            "deserved_gpu_us": mine.deserved,
        }

    # Rule 5, preemption that pays.

    def _pays(self, one: EvenCandidate, gpu_type: str, free: FreeCapacity) -> bool:
        job = one.job
        if not self._may_pay(one):
            return False
        memo = ("pays", gpu_type, job.tenant)
        need_us = remaining_us(job, 0.0)
        with_estimates = self._options.estimates == "given"
        if with_estimates:
            least = self._failed_needs.get((job.tenant, gpu_type, job.gpus))
            if least is not None and need_us >= least:
                return False
        elif self._is_hopeless(memo, job.gpus):
            return False
        longest_us = 2 * (need_us + RESTART_US) if with_estimates else float(LONG_GPU_US)
        choice = self._cheapest(job, gpu_type, free, longest_us)
        if choice is None:
            if with_estimates:
                self._failed_needs[job.tenant, gpu_type, job.gpus] = need_us
                return False
            return self._fails(memo, job.gpus)
        unit = "us" if with_estimates else "gpu_us"
        numbers = {f"threshold_{unit}": int(longest_us)}
        return self._take(one, gpu_type, choice, PreemptionRule.PAYS, numbers)

    def _cheapest(
        self, job: Job, gpu_type: str, free: FreeCapacity, above: float
    ) -> ClearedNode | None:
        """Search for victims among the job's own tenant and the tenants that keep min(D, Q)."""
        index = self._index(gpu_type)
        rule = self._rule(gpu_type, job.gpus, 2 * job.gpus, above)
        general = self._search(gpu_type, free, job.gpus, 2 * job.gpus, above).best()

        def spare(tenant: int) -> int | None:
            return None if tenant == job.tenant else rule.spare(tenant)

        nodes = index.nodes([job.tenant])
        own_rule = rule._replace(spare=spare)
        choice = fewest_victims(nodes, free.available.free, index, own_rule, general)
        return choice[1] if choice is not None else None

    def _search(
        self, gpu_type: str, free: FreeCapacity, gpus: int, most_gpus: int, above: float
    ) -> VictimSearch:
        key = (gpu_type, gpus, most_gpus, above)
        search = self._searches.get(key)
        if search is None:
            rule = self._rule(gpu_type, gpus, most_gpus, above)
            search = VictimSearch(free.available.free, self._index(gpu_type), rule)
            self._searches[key] = search
        return search

    def _rule(self, gpu_type: str, gpus: int, most_gpus: int, above: float) -> VictimRule:
        """Return the rule for victims, by which every tenant keeps min(D, Q)."""
        standings = self._progress.standings

        def spare(tenant: int) -> int | None:
            return max(0, standings[tenant, gpu_type].spare)

        return VictimRule(gpus, spare, self._rank, most_gpus, above)

    # Rule 6, defragmentation.

    def _defragment(self, one: EvenCandidate, gpu_type: str, free: FreeCapacity) -> bool:
        job, options = one.job, self._options
        most = min(job.gpus, options.moves_per_round - self._moves)
        if job.gpus < 2 or self._gangs >= options.gangs_per_round or most <= 0:
            return False
        memo = ("defragment", gpu_type)
        if free.unheld.total < job.gpus or self._is_hopeless(memo, job.gpus):
            return False
        movable = self._movable(gpu_type, free, job.gpus)
        room = make_room(job.gpus, free.available.free, free.unheld.free, movable, most)
        if room is None:
            return self._fails(memo, job.gpus)
        rows = {row.id: row for row in movable[room.node]}
        numbers = {"needed": job.gpus, "free": free.unheld.total}
        moved = tuple(rows[move.lease] for move in room.moves)
        rule = PreemptionRule.DEFRAGMENT
        self._clear(one, gpu_type, ClearedNode(room.node, moved), rule, numbers)
        for move, row in zip(room.moves, moved, strict=True):
            free.put(((move.to_node, move.gpus),))
            self._progress.move(row, move.to_node)
        self._gangs += 1
        self._moves += len(moved)
        return self._settle(one, gpu_type, room.node, sum(row.gpus for row in moved), rule)

    def _movable(self, gpu_type: str, free: FreeCapacity, gpus: int) -> dict[int, list[Lease]]:
        """Return movable leases by node, for nodes with room if all preemptible leases left."""
        index, available = self._index(gpu_type), free.available.free
        movable = {}
        for node, rows in index.by_node.items():
            if 0 < gpus - available.get(node, 0) <= index.gpus[node]:
                small = [row for row in rows if self._may_move(row)]
                if small:
                    movable[node] = small
        return movable

    def _may_move(self, lease: Lease) -> bool:
        """Return whether the lease is small, and its job's limits allow another term."""
        if lease.placement[0][1] > MOVABLE_GPUS:
            return False
        progress = self._progress
        job, admission = progress.pool.jobs[lease.job], progress.admission
        if not admission.may_refuse(job):
            return True
        admission.let_go(lease)
        refusal = admission.check(job, lease.gpu_type)
        admission.hold_again(lease)
        return refusal is None

    # Common to these rules.

    def _take(
        self, one: EvenCandidate, gpu_type: str, cleared: ClearedNode, rule: PreemptionRule,
        numbers: dict[str, int],
    ) -> bool:  # fmt: skip # rows of what belongs together
        self._clear(one, gpu_type, cleared, rule, numbers)
        taken = sum(row.gpus for row in cleared.victims)
        return self._settle(one, gpu_type, cleared.node, taken, rule)

    def _clear(
        self, one: EvenCandidate, gpu_type: str, cleared: ClearedNode, rule: PreemptionRule,
        numbers: dict[str, int],
    ) -> None:  # fmt: skip # rows of what belongs together
        progress = self._progress
        self._index(gpu_type).remove(cleared.victims)
        for lease in cleared.victims:
            progress.free_by_type[gpu_type].clear(lease.placement)
            progress.admission.let_go(lease)
            more = {} if not progress.pool.explains else self._rank_number(lease, rule)
            progress.end(lease, rule, one.job, {**numbers, **more})

    def _rank_number(self, lease: Lease, rule: PreemptionRule) -> dict[str, int]:
        if rule is PreemptionRule.PAYS:
            name = "remaining_us" if self._options.estimates == "given" else "attained_gpu_us"
            return {name: int(self._rank(lease))}
        if rule is PreemptionRule.GANG:
            pool = self._progress.pool
            return {"attained_gpu_us": job_received(pool.sums[lease.job], pool.at_us)}
        return {}

    def _settle(
        self, one: EvenCandidate, gpu_type: str, node: int, taken: int, rule: PreemptionRule
    ) -> bool:
        """Grant the gang on the node.

        Other GPUs of the ended leases stay unassigned in this round, so that the leases can
        continue if a limit withdraws the grant (`terms.settle_exchanges`).
        """
        progress, job = self._progress, one.job
        free = progress.free_by_type[gpu_type]
        free.put(((node, job.gpus),))
        if taken > job.gpus:
            free.put(((node, taken - job.gpus),))
        # At most one exchange per node, because an exchange needs all of its ended leases.
        self._index(gpu_type).leave_out(node)
        progress.give(job, gpu_type, ((node, job.gpus),), NOTE_OF[rule])
        return True

    def _is_hopeless(self, memo: tuple[object, ...], gpus: int) -> bool:
        failed = self._failed.get(memo)
        return failed is not None and gpus >= failed

    def _fails(self, memo: tuple[object, ...], gpus: int) -> bool:
        self._failed[memo] = min(gpus, self._failed.get(memo, gpus))
        return False

    def _index(self, gpu_type: str) -> LeaseIndex:
        if self._indices is None:
            self._indices = self._make_indices()
        index = self._indices.get(gpu_type)
        if index is None:
            index = self._indices[gpu_type] = LeaseIndex()
        return index

    def _make_indices(self) -> dict[str, LeaseIndex]:
        pool = self._progress.pool
        running = pool.running()
        over = overfull_nodes(running, pool.gpus) if pool.may_be_overfull else ()
        spared = self._spared()
        indices: dict[str, LeaseIndex] = {}
        for lease in preemptible(running, pool.at_us, self._options.min_runtime_us):
            if lease.job not in pool.jobs or lease.job in spared or lease.placement[0][0] in over:
                continue
            index = indices.get(lease.gpu_type)
            if index is None:
                index = indices[lease.gpu_type] = LeaseIndex()
            index.add(lease)
        return indices

    def _rank(self, lease: Lease) -> float:
        """Return a victim's attained GPU-time, or with estimates its remaining work.

        The victim with the most ends first. Leases beyond the restart budget are no victims.
        """
        if not self._progress.restarts.may_pay(lease):
            return float("-inf")
        pool = self._progress.pool
        attained = job_received(pool.sums[lease.job], pool.at_us)
        if self._options.estimates != "given":
            return attained
        job = pool.jobs[lease.job]
        return remaining_us(job, attained / job.gpus)
