"""Nodes held back for a gang that is skipped for too long.

A large gang may wait forever if smaller jobs keep taking free GPUs. The first job of the tenant
with the lowest rho may be skipped for longer than K leases. Then the nodes that will be empty
soonest are chosen. GPUs that become free on these nodes go to no other job. Every lease on them
ends within one lease length (or when its protection ends), so the gang starts within about K + 1
leases. Further gangs of the same GPU type queue behind it. The gang may also start on other nodes,
if they have room first.

State, in plain JSON: {"passed": {job: time of its first skip}, "reserved": {GPU type: {"job": id,
"holds": [[node, GPUs], ...]}}}. Jobs that run or have ended are removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from evenshare_core.domain.cluster import Node, Placement
from evenshare_core.domain.ids import ById, Each, Fields, IdKind, Row, Shape
from evenshare_core.domain.leases import Lease
from evenshare_core.placement.consolidated import FreeCapacity

# The note of a pick on held-back GPUs, and its explanation.
RESERVED = "reserved"
RESERVED_TEXTS = MappingProxyType(
    {RESERVED: "It had waited so long that GPUs were reserved for it."}
)


MEMORY_IDS: Mapping[str, Shape] = MappingProxyType(
    {
        "passed": ById(IdKind.JOB),
        "reserved": Each(Fields({"job": IdKind.JOB, "holds": Each(Row((IdKind.NODE,)))})),
    }
)


class ReservationView(Protocol):
    """The inputs of a reservation: a `Snapshot`, or a round of a pool whose state is kept."""

    @property
    def at_us(self) -> int: ...
    @property
    def lease_us(self) -> int: ...
    @property
    def memory(self) -> dict[str, Any]: ...
    @property
    def nodes(self) -> Collection[Node]: ...
    @property
    def leases(self) -> Collection[Lease]: ...


class Reservations:
    """The reservations of a round, read from the policy's memory and stored in it again."""

    def __init__(self, snapshot: ReservationView, after_leases: int) -> None:
        self._snapshot = snapshot
        self._after_us = after_leases * snapshot.lease_us
        self._on = after_leases > 0
        self._passed: dict[int, int] = {}
        self._reserved: dict[str, tuple[int, Placement]] = {}

    @classmethod
    def load(cls, snapshot: ReservationView, after_leases: int) -> Reservations:
        """Read the state of the last round, or start empty if reservations are off."""
        new = cls(snapshot, after_leases)
        if new._on:
            memory = snapshot.memory
            new._passed = {int(job): since for job, since in memory.get("passed", {}).items()}
            for gpu_type, row in memory.get("reserved", {}).items():
                holds = tuple((node, gpus) for node, gpus in row["holds"])
                new._reserved[gpu_type] = (row["job"], holds)
        return new

    def __bool__(self) -> bool:
        """Return whether any skipped gang is recorded."""
        return bool(self._passed)

    def __contains__(self, job: int) -> bool:
        """Return whether a job is recorded as first in line and skipped."""
        return job in self._passed

    @property
    def passed_since(self) -> Mapping[int, int]:
        """Return the jobs that were first in line and skipped, with the time of the first skip."""
        return self._passed

    @property
    def kept(self) -> list[tuple[str, int, Placement]]:
        """Return (GPU type, job, GPUs by node) of every reservation, sorted by type."""
        return [(gpu_type, *row) for gpu_type, row in sorted(self._reserved.items())]

    def keep(self, pending: dict[int, str], refused: Collection[int] = ()) -> None:
        """Drop the rows of jobs that no longer wait.

        Make reservations for the jobs that were skipped first. `pending`: waiting jobs, by id, each
        with the GPU type on which GPUs would be held back. A job's reservation on another type
        moves to this type. A job in `refused`, which a limit refuses on its type, gets no
        reservation. The next gang of the type then gets it.
        """
        self._passed = {job: since for job, since in self._passed.items() if job in pending}
        self._reserved = {
            gpu_type: row
            for gpu_type, row in self._reserved.items()
            if row[0] in self._passed and pending[row[0]] == gpu_type and row[0] not in refused
        }
        late_us = self._snapshot.at_us - self._after_us
        for job, since_us in sorted(self._passed.items(), key=lambda row: (row[1], row[0])):
            if since_us < late_us and job not in refused:
                self._reserved.setdefault(pending[job], (job, ()))

    def gangs(self) -> list[tuple[str, int]]:
        """Return (GPU type, job) of every reservation, sorted by type."""
        return [(gpu_type, row[0]) for gpu_type, row in sorted(self._reserved.items())]

    def stays_until(self, gpu_type: str, gpus: Mapping[int, int]) -> int | None:
        """Return until when the held-back GPUs do not change, for a pool of one GPU type.

        This assumes that nothing happens, and must be called after a round without grants. `gpus`:
        the gang size of each job. Return the round's own time if each round chooses held-back GPUs
        again, or None if time never changes them.
        """
        if gpu_type not in self._reserved:
            first_us = min(self._passed.values(), default=None)
            return None if first_us is None else first_us + self._after_us + 1
        job, holds = self._reserved[gpu_type]
        is_whole = sum(count for _, count in holds) == gpus[job]
        return None if is_whole else self._snapshot.at_us

    def served(self, gpu_type: str, job: int) -> None:
        """Remove the reservation of a gang that starts."""
        self._reserved.pop(gpu_type, None)
        self._passed.pop(job, None)

    def hold_back(self, gpu_type: str, gpus: int, free_capacity: FreeCapacity) -> None:
        """Hold back GPUs on the reservation's nodes. Choose other nodes if one of them is gone."""
        job, holds = self._reserved[gpu_type]
        installed = {node.id: node.gpus for node in self._snapshot.nodes}
        whole = sum(count for _, count in holds) == gpus
        if not whole or any(installed.get(node, 0) < count for node, count in holds):
            holds = _soonest(self._snapshot, gpu_type, gpus)
        self._reserved[gpu_type] = (job, holds)
        free_capacity.hold_back(holds)

    def passed_over(self, job: int) -> None:
        """Record that the first gang of the tenant with the lowest rho was skipped this round."""
        if self._on:
            self._passed.setdefault(job, self._snapshot.at_us)

    def memory(self, picked: set[int]) -> dict[str, Any]:
        """Return the state for the next round as plain JSON. It is empty if no gang was skipped."""
        passed = {str(job): at for job, at in sorted(self._passed.items()) if job not in picked}
        reserved = {
            gpu_type: {"job": job, "holds": [list(hold) for hold in holds]}
            for gpu_type, (job, holds) in sorted(self._reserved.items())
            if job not in picked
        }
        state: dict[str, Any] = {}
        if passed:
            state["passed"] = passed
        if reserved:
            state["reserved"] = reserved
        return state


def _soonest(snapshot: ReservationView, gpu_type: str, gpus: int) -> Placement:
    """Return the nodes on which GPUs for a gang will be free soonest.

    Of equal nodes, those with the lowest ids are chosen. The result is empty if the type has too
    few GPUs.
    """
    nodes = [node for node in snapshot.nodes if node.gpu_type == gpu_type and node.gpus > 0]
    frees = _free_times(snapshot, nodes)
    size = max((node.gpus for node in nodes), default=0)
    if gpus <= size:
        fitting = [node for node in nodes if node.gpus >= gpus]
        best = min(fitting, key=lambda node: (_when(frees[node.id], gpus), node.id))
        return ((best.id, gpus),)
    holds: list[tuple[int, int]] = []
    left = gpus
    for node in sorted(nodes, key=lambda n: (_when(frees[n.id], n.gpus), -n.gpus, n.id)):
        if left <= 0:
            break
        holds.append((node.id, min(left, node.gpus)))
        left -= node.gpus
    return tuple(sorted(holds)) if left <= 0 else ()


def _free_times(
    snapshot: ReservationView, nodes: Iterable[Node]
) -> dict[int, list[tuple[int, int]]]:
    """Return, for each node, pairs (time, GPUs that become available then) in time order."""
    left = {node.id: node.gpus for node in nodes}
    times: dict[int, list[tuple[int, int]]] = {node_id: [] for node_id in left}
    for lease in snapshot.leases:
        until_us = max(lease.expires_us, lease.protected_until_us, snapshot.at_us)
        for node_id, gpus in lease.placement:
            if node_id in left:
                left[node_id] -= gpus
                times[node_id].append((until_us, gpus))
    for node_id, gpus in left.items():
        times[node_id].append((snapshot.at_us, gpus))
        times[node_id].sort()
    return times


def _when(frees: list[tuple[int, int]], gpus: int) -> int:
    """Return when at least `gpus` GPUs will be free on a node that has enough GPUs."""
    total = 0
    for instant_us, count in frees:
        total += count
        if total >= gpus:
            return instant_us
    return frees[-1][0]
