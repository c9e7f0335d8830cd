"""A policy's queues that are kept between rounds, for callers that keep a pool's state.

A live round builds everything from a snapshot and explains every waiting job. A `Session` returns
the same picks, ends and memory from a `KeptRound`, which receives only the events since the last
round. The session computes no reasons, no shares and no numbers of picks. Both use the same picking
code of the policy: one algorithm with two entry points.
"""

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
    """A round of a pool whose state is kept.

    `due`: leases that this round may take. `waiting`: jobs without a lease. `joined`: jobs that
    started to wait, or to claim another GPU type, since the set was last cleared; some may have
    ended. `jobs`: active jobs; their `terms` are only updated by `count_terms`. `free`: unheld GPUs
    by type.

    `prices`, `lease_bounds_us`: as in a snapshot. `is_limited`: whether a quota, a price, credit or
    a disabled node could refuse a job. `is_still`: whether, since the last round, nothing happened
    except that leases came due or were renewed.
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
        """Return the schedulable GPUs of each node."""
        ...

    def held(self, tenant: int, gpu_type: str) -> int:
        """Return the GPUs that a tenant holds, including those of due leases."""
        ...

    def quota(self, tenant: int, gpu_type: str) -> int: ...

    def count_terms(self, job_ids: Iterable[int]) -> None: ...

    def utility(self, job_id: int) -> Utility | None: ...

    def admission(self, *, counts: bool = False) -> Admission:
        """Return the limits of this round before any job is picked.

        `counts`: whether to count held GPUs even if no limit needs the count, for example to test
        whether a job is within its tenant's quota.
        """
        ...

    def free_capacity(self, *, spread: bool = False) -> dict[str, FreeCapacity]:
        """Return the free capacity of each GPU type at the start of this round."""
        ...


class SessionDecision(msgspec.Struct, frozen=True, gc=False):
    """The picks of a policy.

    Own and borrowed GPUs, term prices and reasons of waiting jobs are missing. `ends` includes
    preempted leases. `lengths`: as in `terms.Terms`. `prices`: base and theta of the next round's
    prices, if the policy sets them.
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

    `outlasts_renewals`: whether `quiet_until` may also be called after a round that only renewed
    leases, if no limit applies.
    """

    @property
    def outlasts_renewals(self) -> bool: ...

    def decide(self, view: KeptRound) -> SessionDecision:
        """Decide a round with the same result as the policy on the round's snapshot."""
        ...

    def quiet_until(self, at_us: int) -> int | None:
        """Return until when the empty decision of the round at `at_us` repeats if nothing happens.

        This method is called right after that round, and the next round gets that round's memory.
        Return None if time never changes the decision, or `at_us` if the next round may differ.
        """
        ...


class Queued(Protocol):
    """The fields by which jobs are ordered. A `Job` and a simulated job have them."""

    @property
    def id(self) -> int: ...
    @property
    def submitted_us(self) -> int: ...
    @property
    def estimate_us(self) -> int | None: ...


class StaticQueue(NamedTuple):
    """A queue whose order does not change with time.

    Its first job runs as soon as it fits. Jobs behind a job that does not fit wait. No job is
    preempted.
    """

    order: Callable[[Queued], tuple[Any, ...]]
    whole_nodes: bool


def uncontested(
    view: KeptRound, memory: dict[str, Any], *, whole_nodes: bool = False, spread: bool = False
) -> SessionDecision | None:
    """Renew all due leases, and start a single waiting job if it fits on unheld GPUs.

    Return None if there is a choice: several jobs wait, or a limit applies. A single job is also a
    choice if it accepts several GPU types or needs GPUs of an ending lease. In all other cases the
    order makes no difference, since leases keep their GPUs and the job uses unheld GPUs.
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
