"""Simulation that starts from a live pool's state, with its leases, queue, sums and prices.

Work done and left is not in a snapshot; it is passed in as `Work`. Nothing else is guessed. Nodes,
quotas, price settings and credit limits stay the same during the run. No job is cancelled, and only
`arrivals` are submitted. tests/simulation/test_present.py continues a run from its middle and
compares the leases.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Change, ChangeKind, Snapshot
from evenshare_core.policies.shared.backoffs import jobs_backing_off
from evenshare_core.policies.shared.places import with_places
from evenshare_core.simulation.deadline_jobs import later
from evenshare_core.simulation.events import EventKind
from evenshare_core.simulation.job_runs import Run
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob, job_resources
from evenshare_core.units import ONE_MILLI


class Work(NamedTuple):
    """The work of an active job at the snapshot's instant, in us on a GPU type of speed 1.

    `done_us`, `held_us` and `leases` cover ended leases; `left_us` is the work left at the instant.
    `overhead_us` is the time without work in the current lease so far.
    """

    left_us: int
    done_us: int = 0
    held_us: int = 0
    leases: int = 0
    started_us: int | None = None
    overhead_us: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a simulation. `work` has every job of the snapshot.

    `arrivals` are later jobs, by (submission, id); their ids are above the snapshot's.
    """

    snapshot: Snapshot
    work: Mapping[int, Work]
    arrivals: tuple[SimJob, ...] = ()

    @property
    def rules(self) -> Rules:
        """Return the pool's own policy, options and lengths."""
        now = self.snapshot
        return Rules(
            now.policy, now.options, now.round_us, now.lease_us, now.seed,
            lease_bounds_us=now.lease_bounds_us,
        )  # fmt: skip # rows of what belongs together

    @property
    def cluster(self) -> Cluster:
        """Return the pool's nodes, quotas, price settings, profiles and resources."""
        snapshot = self.snapshot
        prices = {row.gpu_type: (row.base_micro, row.theta_milli) for row in snapshot.prices}
        profiles = {row.id: row for row in snapshot.profiles}
        return Cluster(
            snapshot.nodes,
            snapshot.entitlements,
            prices,
            profiles=profiles,
            node_resources=snapshot.node_resources,
            job_resources={
                **{row.id: row for row in snapshot.job_resources},
                **(job_resources(self.arrivals) if snapshot.node_resources else {}),
            },
            surcharges=snapshot.surcharges,
        )


class PresentState(SimulationState):
    """The state of a pool at its snapshot, under its own policy or another."""

    def __init__(self, start: Start, rules: Rules | None = None) -> None:
        """Start with `rules` instead of the pool's, if given; another policy starts without memory.

        Raises:
            KeyError: a job of the snapshot has no work.
        """
        # The forecast keeps the present exchange of places within tenants.
        start = dataclasses.replace(start, snapshot=with_places(start.snapshot))
        snapshot = start.snapshot
        rules = rules or start.rules
        super().__init__(start.cluster, start.arrivals, rules, start_us=snapshot.at_us)
        self.pool, self.tenants = snapshot.pool, snapshot.tenants
        self.number = snapshot.number
        self.next_lease = max((lease.id for lease in snapshot.leases), default=0) + 1
        self.entitle()  # the books need the quotas before the first lease opens
        self.quotas = snapshot.entitlements
        same = (rules.policy, self.policy.version) == (snapshot.policy, snapshot.policy_version)
        self.memory = snapshot.memory if same else {}
        self.prices, self.profiles = snapshot.prices, snapshot.profiles
        self.service = service = snapshot.service
        self.has_sums, self.last_us = bool(service.claims), service.at_us
        self.reported_quotas = {(row.tenant, row.gpu_type): row.quota for row in service.claims}
        self.changes = [*snapshot.changes, *_gone(snapshot), *_starting(snapshot)]
        self._take_jobs(start)

    def _take_jobs(self, start: Start) -> None:
        leases = {lease.job: lease for lease in start.snapshot.leases}
        barred = jobs_backing_off(start.snapshot)
        utilities = {row.id: row for row in start.snapshot.utilities}
        deadlines = {row.id: row for row in start.snapshot.deadlines}
        estimates = {row.id: row for row in start.snapshot.estimates}
        self.deadlines |= deadlines
        self.estimates |= estimates
        self.profilers |= {job: job for job in start.snapshot.profilers}
        for job in start.snapshot.jobs:
            work, lease = start.work[job.id], leases.get(job.id)
            speed_milli = (
                self.cluster.speed_milli(job.profile, lease.gpu_type) if lease else ONE_MILLI
            )
            sofar_us = so_far_us(lease, work, speed_milli, self.at_us)
            sim = SimJob(
                job.id, job.tenant, job.gpus, job.submitted_us,
                work.done_us + sofar_us + work.left_us, job.gpu_types, job.weight,
                job.max_price_micro, job.deadline_us, job.estimate_us, job.profile,
                values=later(deadlines.get(job.id)), utility=utilities.get(job.id),
                is_profiler=job.id in self.profilers,
            )  # fmt: skip # rows of what belongs together
            run = Run(sim, work.done_us, work.started_us, work.leases, speed_milli=speed_milli)
            self.sim_jobs[job.id], self.jobs[job.id], self.runs[job.id] = sim, job, run
            self.past_terms[job.id] = job.terms - (lease.term if lease else 0)
            self.priced += job.max_price_micro is not None
            if job.id in barred:
                self.backoffs[job.id] = barred[job.id]
                self.events.push(barred[job.id].until_us, EventKind.READY, job.id)
            else:
                self._wait(job.id)
        for lease in start.snapshot.leases:
            # without a run, its job is in quarantine, and the lease just expires
            if lease.job in self.runs:
                self._hold(self.runs[lease.job], lease, start.work[lease.job])

    def _hold(self, run: Run, lease: Lease, work: Work) -> None:
        self.queue.discard(lease.job)
        run.leases, run.lease = work.leases + 1, lease.id
        run.started_us = lease.started_us if work.started_us is None else work.started_us
        run.overhead_us = work.overhead_us
        run.ends_us = self.at_us - (-work.left_us * ONE_MILLI // max(1, run.speed_milli))
        self.leases[lease.id] = lease
        self.occupancy.take(lease)
        self.books.granted(self.at_us, lease)
        self.events.push(run.ends_us, EventKind.END, lease.id)
        self.events.push(max(lease.expires_us, lease.protected_until_us), EventKind.DUE, lease.id)

    def snapshot(self) -> Snapshot:
        """Return the snapshot of `SimulationState` with this pool and its tenants' credit."""
        return replace(super().snapshot(), pool=self.pool, tenants=self.tenants)


def _gone(snapshot: Snapshot) -> list[Change]:
    """Return an end for each job that the sums contain and the snapshot does not.

    Its lease is ending; without the end, the job would count as demand forever.
    """
    here = {job.id for job in snapshot.jobs}
    active = {row.job: row.tenant for row in snapshot.service.jobs}
    for change in snapshot.changes:
        if change.kind is ChangeKind.ACTIVE:
            active[change.job] = change.tenant
        elif change.kind is ChangeKind.INACTIVE:
            active.pop(change.job, None)
    return [
        Change(snapshot.at_us, ChangeKind.INACTIVE, tenant, job)
        for job, tenant in sorted(active.items())
        if job not in here
    ]


def _starting(snapshot: Snapshot) -> list[Change]:
    """Return a hold for each granted lease that has not started; the run starts it at once."""
    held = {row.job for row in snapshot.service.jobs if row.held}
    for change in snapshot.changes:
        if change.kind is ChangeKind.HOLD:
            held.add(change.job)
        elif change.kind in {ChangeKind.RELEASE, ChangeKind.INACTIVE}:
            held.discard(change.job)
    here = {job.id for job in snapshot.jobs}
    return [
        Change(
            snapshot.at_us, ChangeKind.HOLD, lease.tenant, lease.job, lease.gpus, (lease.gpu_type,)
        )
        for lease in snapshot.leases
        if lease.job in here and lease.job not in held
    ]


def so_far_us(lease: Lease | None, work: Work, speed_milli: int, at_us: int) -> int:
    """Return the work that the current lease has done; 0 without a lease."""
    if lease is None:
        return 0
    return max(0, at_us - lease.started_us - work.overhead_us) * speed_milli // ONE_MILLI
