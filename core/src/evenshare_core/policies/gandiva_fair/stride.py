"""Whose turn it is: split, gang-aware stride, and what to do with GPUs that nobody's turn uses.

Source: Gandiva_fair (EuroSys 2020), 3.1 and Algorithm 1.

1. *On a node* jobs at home there are taken by pass, the least first; one that does not fit is
   jumped over and keeps its pass; one that runs goes on by size x term / rate.
2. *Over nodes*, where a type has jobs over several: these and one aggregate per node are taken by
   pass in the same way. An aggregate's rate is the sum of its jobs'; it is charged for all GPUs of
   its node, where a spanning job leaves some only for those that its jobs use.
3. *Leases that have not expired* are nobody's to give. A job of least pass that they keep out for a
   whole quantum has the free GPUs of its nodes kept for it: others get them only for terms that
   end by then.
4. *Idle GPUs*: a job that waits moves to another node of its type that has room left; after these,
   one runs as a guest on another type, and stays at home where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import Grant, Key, Renew
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.placement.consolidated import FreeGpus
from evenshare_core.policies.gandiva_fair.homes import TypeHomes, least_pass_us
from evenshare_core.policies.gandiva_fair.memory import NEVER, Memory, Pass, StrideJob
from evenshare_core.policies.gandiva_fair.tickets import GpuTypes
from evenshare_core.policies.shared.admission import Admission, Refusal

TURN, IDLE, GUEST = "", "idle", "guest"


class Turns:
    """What the round has given so far. `held`: GPUs that are kept for a job, by node."""

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
        self._frees_us: dict[int, int] = {}  # when the last lease that goes on may end
        self._spanned: set[int] = set()  # nodes with GPUs of jobs over several nodes
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
        """Let every type take turns, then give what is idle."""
        waiting = [one for one in jobs if one.home and not one.runs]
        nodes: set[int] = set()
        for _, row in sorted(homes.items()):
            nodes |= self._run_type(row)
        for node in self.memory.nodes.keys() - nodes:
            del self.memory.nodes[node]
        for _, row in sorted(homes.items()):
            self._fill_idle(row, waiting)
        for name in reversed(self.types.names):
            self._invite(homes[name], waiting)
        self.memory.blocked.clear()
        self.memory.blocked.update(self._blocked)

    def is_kept_from(self, one: StrideJob) -> bool:
        """Whether GPUs that it could have had are kept for another job."""
        return one.job.id not in self._blocked and any(
            one.job.gpus <= self._free[node] for node, _ in one.home if node in self.held
        )

    # ---- turns ----

    def _run_type(self, row: TypeHomes) -> set[int]:
        """Rules 1 and 2; return the nodes that have an aggregate."""
        spanning = {
            one.job.id: one for node in row.gpus for one in row.jobs[node] if len(one.home) > 1
        }
        if not spanning:
            for node in row.gpus:
                self._run_node(row, node)
            return set()
        self._join_aggregates(row, spanning.values())
        entries: list[tuple[tuple[float, int, int, int], StrideJob | None, int]] = [
            (one.turn, one, 0) for one in spanning.values() if not one.runs
        ]
        for node, gpus in row.gpus.items():
            if self._free[node] and self._waiting(row, node):
                entries.append(((self.memory.nodes[node].value, gpus, -1, node), None, node))
        is_first = True
        for _, one, node in sorted(entries, key=lambda entry: entry[0]):
            if one is None:
                self._run_aggregate(row, node)
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
        """Whether a term of now ends before the GPUs of a node are needed for a held job."""
        return node not in self.held or self.at_us + self.term_us <= self._frees_us.get(node, 0)

    def _keep_out(self, one: StrideJob) -> None:
        """Rule 3, for a job of least pass that does not fit beside leases that go on."""
        if not any(node in self._frees_us for node, _ in one.home):
            return
        since_us = self.memory.blocked.get(one.job.id, self.at_us)
        self._blocked[one.job.id] = since_us
        if self.at_us - since_us >= self.quantum_us:
            until_us = max(self._frees_us.get(node, 0) for node, _ in one.home)
            for node, gpus in one.home:
                self.held[node] = min(gpus, self._free[node])
                self._frees_us[node] = until_us

    def _waiting(self, row: TypeHomes, node: int) -> list[StrideJob]:
        given = self.given
        return [
            one
            for one in row.jobs[node]
            if not one.runs and len(one.home) == 1 and one.job.id not in given
        ]

    def _run_node(self, row: TypeHomes, node: int) -> int:
        """Rule 1; return the GPUs that were given."""
        free = before = self._free[node]
        if not free:
            return 0
        waiting = self._waiting(row, node)
        if len(waiting) > 1:
            waiting.sort(key=_turn)
        is_first = node not in self._spanned
        for one in waiting:
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

    def _run_aggregate(self, row: TypeHomes, node: int) -> None:
        gpus = self._run_node(row, node)
        if node not in self._spanned and gpus:
            is_whole = self._free[node] + gpus == row.gpus[node]
            gpus = row.gpus[node] if is_whole else gpus
        self.memory.nodes[node].served_gpu_us += gpus * self.term_us

    def _join_aggregates(self, row: TypeHomes, spanning: Iterable[StrideJob]) -> None:
        """Each node with small jobs has an aggregate pass; new ones start at the least of all."""
        known = self.memory.nodes
        passes = [known[node].floor_us for node in row.gpus if node in known]
        passes += [one.passes.floor_us for one in spanning if not one.is_new]
        least_us = min(passes, default=0)
        for one in spanning:
            if one.is_new:
                one.passes.raise_to(least_us)
        for node in row.gpus:
            rate = sum(one.passes.rate for one in row.jobs[node] if len(one.home) == 1)
            if node not in known:
                known[node] = Pass(least_us)
            known[node].set_rate(rate)

    # ---- idle GPUs ----

    def _fill_idle(self, row: TypeHomes, waiting: Iterable[StrideJob]) -> None:
        """Rule 4: jobs of the type move to nodes that have room left."""
        idle = self._idle(row)
        if not idle.total:
            return
        largest, total, size = idle.largest_free(), idle.total, row.size
        mine = [
            one
            for one in waiting
            if (one.job.gpus <= largest or size < one.job.gpus <= total)
            and one.gpu_type == row.gpu_type
            and one.job.id not in self.given
            and one.job.id not in self.refused
        ]
        least = row.least_passes({node for one in mine for node, _ in one.home})

        def behind(one: StrideJob) -> tuple[float, int, int, int]:
            """Who is furthest behind on its nodes comes first."""
            passes, home, job = one.passes, one.home, one.job
            lag_us: float = NEVER
            if passes.rate:
                last = least[home[0][0]] if len(home) == 1 else min(least[n] for n, _ in home)
                lag_us = passes.floor_us - last
            return (lag_us, job.gpus, job.submitted_us, job.id)

        for one in sorted(mine, key=behind) if len(mine) > 1 else mine:
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
        free = {node: 0 if node in self.held else self._free[node] for node in row.gpus}
        return FreeGpus(free, row.size)

    def _invite(self, row: TypeHomes, waiting: Iterable[StrideJob]) -> None:
        """Rule 4: jobs that are at home on another type run here for a term."""
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
        """Give a job its gang for a term, unless a limit refuses it."""
        job, lease = one.job, one.lease
        refusal = self.admission.check(job, gpu_type)
        if refusal is not None:
            if note != GUEST:
                self.refused[job.id] = refusal
            return False
        order, key = len(self.given) + 1, Key(None, None, note)
        if lease is not None and lease.placement == placement:
            self.renewals.append(
                Renew(order, lease.id, job.id, job.tenant, gpu_type, job.gpus, key)
            )
        else:
            self.grants.append(Grant(order, job.id, job.tenant, gpu_type, placement, key))
        self.given.add(job.id)
        self.admission.take(job.tenant, gpu_type, job.gpus)
        for node, gpus in placement:
            self._free[node] -= gpus
        if note != GUEST:
            one.passes.served_gpu_us += job.gpus * self.term_us
        return True


def _turn(one: StrideJob) -> tuple[float, int, int, int]:
    return one.turn


def _is_at(one: StrideJob, row: TypeHomes) -> bool:
    """Whether its lease, which has ended, is on this type."""
    return one.lease is not None and one.lease.placement[0][0] in row.gpus
