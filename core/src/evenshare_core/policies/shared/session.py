"""A policy's queues that go on from round to round, for a caller that keeps a pool's state.

A live round builds everything from a snapshot and explains every job that waits. A `Session` gives
the same picks, ends and memory from a `KeptRound`, which was told of what happened since the last
round and nothing else: reasons, shares and the numbers of a pick are not made. Both use the code of
the policy that picks, so that there is one algorithm with two doors (0175).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.decision import End, Grant, Key, Preemption
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import PoolPrice
from evenshare_core.domain.utilities import Utility
from evenshare_core.fairness.gpu_time import Sums
from evenshare_core.placement.consolidated import FreeCapacity, FreeGpus, find_place
from evenshare_core.policies.shared.admission import Admission

NO_KEY = Key(None, None)


class KeptRound(Protocol):
    """One round of a pool whose state is kept.

    `due`: leases that this round may take. `waiting`: jobs that hold none; `joined`: those that
    began to wait, or to claim another GPU type, since it was last cleared; some of them are over.
    `jobs`: those that are active, whose `terms` may lag until `count_terms`. `free`: GPUs by type
    that nobody holds.
    `prices`, `lease_bounds_us`: as in a snapshot.
    `is_limited`: a quota, a price, credit or a node that is off could refuse somebody.
    `is_still`: nothing happened since the last round, but that leases came due or were renewed.
    """

    at_us: int
    round_us: int
    lease_us: int
    lease_bounds_us: tuple[int, ...]
    memory: dict[str, Any]
    is_limited: bool
    is_still: bool

    @property
    def due(self) -> Sequence[Lease]: ...
    @property
    def waiting(self) -> Collection[int]: ...
    @property
    def joined(self) -> list[int]: ...
    @property
    def sums(self) -> Sums: ...
    @property
    def jobs(self) -> Mapping[int, Job]: ...
    @property
    def leases(self) -> Collection[Lease]: ...
    @property
    def nodes(self) -> Collection[Node]: ...
    @property
    def prices(self) -> tuple[PoolPrice, ...]: ...
    @property
    def profiles(self) -> Mapping[int, Profile]: ...
    @property
    def free(self) -> Mapping[str, FreeGpus]: ...
    @property
    def gpus(self) -> Mapping[int, int]:
        """GPUs of each node that may be scheduled now."""
        ...

    def held(self, tenant: int, gpu_type: str) -> int:
        """GPUs that a tenant holds, those of leases that are due included."""
        ...

    def quota(self, tenant: int, gpu_type: str) -> int: ...

    def count_terms(self, job_ids: Iterable[int]) -> None:
        """Bring the terms of jobs up to date."""
        ...

    def utility(self, job_id: int) -> Utility | None: ...

    def admission(self, *, counts: bool = False) -> Admission:
        """The limits of this round, nothing taken.

        `counts`: what is held matters besides, as whether a job is within its tenant's quota.
        """
        ...

    def free_capacity(self, *, spread: bool = False) -> dict[str, FreeCapacity]:
        """Where gangs of each GPU type may go at the beginning of this round."""
        ...


class SessionDecision(msgspec.Struct, frozen=True, gc=False):
    """What a policy picked; own, borrowed and price are not set yet, nor why jobs wait.

    `ends`: those of preempted leases too. `lengths`: as in `terms.Terms`. `prices`: base and theta
    of the prices of the next round, where the policy sets them.
    """

    grants: Sequence[Grant]
    renewed: Sequence[Lease]
    ends: Sequence[End]
    memory: dict[str, Any]
    preemptions: Sequence[Preemption] = ()
    lengths: Mapping[int, int] = {}
    prices: tuple[PoolPrice, ...] = ()


class Session(Protocol):
    """The queues of one pool under one policy and its options.

    `outlasts_renewals`: whether `quiet_until` may be asked after a round too that renewed leases
    and gave nothing else, where nothing is limited.
    """

    @property
    def outlasts_renewals(self) -> bool: ...

    def decide(self, view: KeptRound) -> SessionDecision:
        """Answer a round as the policy would answer its snapshot."""
        ...

    def quiet_until(self, at_us: int) -> int | None:
        """Until when the empty answer of the round at `at_us` stays, if nothing happens.

        It is asked right after that round, whose memory the next one finds.
        None: time alone never changes it. `at_us`: it may be another at the next round.
        """
        ...


class Queued(Protocol):
    """What an order of jobs looks at, of a `Job` or of a simulated one."""

    @property
    def id(self) -> int: ...
    @property
    def submitted_us(self) -> int: ...
    @property
    def estimate_us(self) -> int | None: ...


class StaticQueue(NamedTuple):
    """A queue in an order that time does not change, of which the top runs when it fits.

    What is behind a job that does not fit waits; nothing is preempted.
    """

    order: Callable[[Queued], tuple[Any, ...]]
    whole_nodes: bool


def uncontested(
    view: KeptRound, memory: dict[str, Any], *, whole_nodes: bool = False, spread: bool = False
) -> SessionDecision | None:
    """Renew whatever is due, and start the one job that waits if it fits where nobody is.

    None where there is something to choose: two jobs wait, or one that must take GPUs of a lease
    that ends or would run on several GPU types, or something is limited. Which comes first then
    makes no difference: leases keep their GPUs, and the job goes where nobody is.
    """
    if view.is_limited:
        return None
    grants = []
    due = view.due
    if view.waiting:
        if len(view.waiting) > 1:
            return None
        (job_id,) = view.waiting
        row = view.sums.jobs[job_id]
        if len(view.jobs[job_id].gpu_types) != 1 and len(view.free) != 1:
            return None
        free = view.free.get(row.gpu_type)
        if free is None:
            return None
        place = find_place(free, row.demand, whole_nodes=whole_nodes, spread=spread)
        if place is None:
            return None
        grants.append(Grant(len(due) + 1, job_id, row.tenant, row.gpu_type, place, NO_KEY))
    return SessionDecision(grants, due, (), memory)
