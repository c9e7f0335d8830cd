"""The inputs of a market round, from a snapshot or from the kept state of a pool."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

from evenshare_core.domain.cluster import Node, capacity_by_type
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import JobService, PoolPrice, Snapshot
from evenshare_core.domain.utilities import Utility
from evenshare_core.placement.consolidated import FreeCapacity, free_capacity_by_type
from evenshare_core.policies.market.options import MarketOptions
from evenshare_core.policies.shared.admission import Admission
from evenshare_core.policies.shared.session import KeptRound


class PricedPool(NamedTuple):
    """The inputs of one round. Times are in us of pool time.

    `due`: leases that end by the round, by their start. `going`: returns the continuing leases, in
    any order. `jobs`: at least the jobs that may start or hold a lease. `quota`: returns the quota
    of a tenant and GPU type. `utility`: returns a job's utility, if declared. `admission`,
    `free_by_type`: the state before the first pick. `admission_again`: returns a new admission.
    """

    at_us: int
    lease_us: int
    lease_bounds_us: tuple[int, ...]
    jobs: Mapping[int, Job]
    due: list[Lease]
    going: Callable[[], Iterable[Lease]]
    nodes: Collection[Node]
    capacity: Mapping[str, int]
    prices: tuple[PoolPrice, ...]
    profiles: Mapping[int, Profile]
    sums: Mapping[int, JobService]
    utility: Callable[[int], Utility | None]
    quota: Callable[[int, str], int]
    admission: Admission
    admission_again: Callable[[], Admission]
    free_by_type: dict[str, FreeCapacity]

    @classmethod
    def of(cls, snapshot: Snapshot, options: MarketOptions) -> PricedPool:
        at_us = snapshot.at_us
        quotas = {(row.tenant, row.gpu_type): row.gpus for row in snapshot.entitlements}
        return cls(
            at_us=at_us,
            lease_us=snapshot.lease_us,
            lease_bounds_us=snapshot.lease_bounds_us,
            jobs={job.id: job for job in snapshot.jobs},
            due=_by_start(lease for lease in snapshot.leases if lease.ends_by(at_us)),
            going=lambda: [lease for lease in snapshot.leases if not lease.ends_by(at_us)],
            nodes=snapshot.nodes,
            capacity=capacity_by_type(snapshot.nodes),
            prices=snapshot.prices,
            profiles={row.id: row for row in snapshot.profiles},
            sums={row.job: row for row in snapshot.service.jobs},
            utility={row.id: row for row in snapshot.utilities}.get,
            quota=lambda tenant, gpu_type: quotas.get((tenant, gpu_type), 0),
            admission=Admission.of(snapshot),
            admission_again=lambda: Admission.of(snapshot),
            free_by_type=free_capacity_by_type(
                snapshot.nodes, snapshot.leases, at_us, spread=options.spread
            ),
        )

    @classmethod
    def kept(cls, view: KeptRound, options: MarketOptions) -> PricedPool:
        """Return the inputs from the kept state of a pool."""
        over = {lease.id for lease in view.due}
        return cls(
            at_us=view.at_us,
            lease_us=view.lease_us,
            lease_bounds_us=view.lease_bounds_us,
            jobs=view.jobs,
            due=_by_start(view.due),
            going=lambda: [lease for lease in view.leases if lease.id not in over],
            nodes=view.nodes,
            capacity=view.sums.capacity,
            prices=view.prices,
            profiles=view.profiles,
            sums=view.sums.jobs,
            utility=view.utility,
            quota=view.quota,
            admission=view.admission(counts=True),
            admission_again=lambda: view.admission(counts=True),
            free_by_type=view.free_capacity(spread=options.spread),
        )


def _by_start(leases: Iterable[Lease]) -> list[Lease]:
    return sorted(leases, key=attrgetter("started_us", "id"))
