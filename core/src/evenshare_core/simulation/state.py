"""The state of a simulated pool, and the snapshots of its rounds.

It replaces the database rows and the virtual executor of a live pool, and follows the same rules. A
job starts at the time of the round that grants it and ends exactly when its work is done. If a
running job is cancelled, it ends at the next round.

`snapshot` returns what `scheduling.engine.snapshots` returns; `apply` does the work of
`scheduling.engine.apply` and the executor (tests/simulation/test_live_equals_simulated.py).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from evenshare_core.domain.backoff import Backoff
from evenshare_core.domain.cluster import Node
from evenshare_core.domain.decision import Decision, End, Grant, Renew
from evenshare_core.domain.entitlements import Entitlement, Tenant, entitlements
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason
from evenshare_core.domain.snapshot import (
    Change,
    ChangeKind,
    PoolPrice,
    Service,
    Snapshot,
    Surcharge,
    schema_of,
)
from evenshare_core.policies.registry import DEFAULT
from evenshare_core.policies.registry import options as policy_options
from evenshare_core.policies.registry import policy as policy_named
from evenshare_core.policies.shared.admission import Split
from evenshare_core.policies.shared.terms import Terms
from evenshare_core.simulation.books import Books, JobRecord, LeaseRecord
from evenshare_core.simulation.deadline_jobs import deadlines_of, estimates_of, rows_of
from evenshare_core.simulation.events import EventKind, Events
from evenshare_core.simulation.job_runs import Run
from evenshare_core.simulation.occupancy import Occupancy
from evenshare_core.simulation.workloads import Cluster, SimJob, utilities_of
from evenshare_core.units import ONE_MILLI, SECOND_US


@dataclass(frozen=True, slots=True)
class Rules:
    """A pool's policy and settings. With `round_us` 0, every event triggers a round.

    A job without its own overheads loses `cold_us` at each start but the first and `checkpoint_us`
    at each expiry (LTGF 6.4).
    """

    policy: str = DEFAULT
    options: Mapping[str, Any] = field(default_factory=dict)
    round_us: int = 0
    lease_us: int = 900 * SECOND_US
    seed: int = 0
    cold_us: int = 0
    checkpoint_us: int = 0
    lease_bounds_us: tuple[int, ...] = ()  # bounds of lease lengths in us, as in a snapshot


def _split(row: Grant | Renew) -> Split:
    return (row.own, row.borrowed, row.price_micro)


class SimulationState:
    """The state of a pool between rounds.

    `queue` has the waiting jobs. `joined` has the jobs that entered the queue since the caller last
    cleared it. `due` has the expired leases that the current round may renew or end.
    """

    def __init__(
        self, cluster: Cluster, jobs: tuple[SimJob, ...], rules: Rules, *, start_us: int = 0
    ) -> None:
        self.cluster, self.rules = cluster, rules
        self.policy = policy_named(rules.policy)
        self._min_runtime_us = policy_options(rules.policy, dict(rules.options)).min_runtime_us
        self.events, self.books = Events(), Books()
        self.at_us, self.number, self.next_lease = start_us, 1, 1
        self.nodes: dict[int, Node] = {node.id: node for node in cluster.nodes}
        self.occupancy = Occupancy(cluster.nodes)
        self.service = Service(at_us=start_us)
        self.memory: dict[str, Any] = {}
        self.prices = cluster.first_prices()
        self.surcharges = () if self.policy.traits.clears_prices else cluster.surcharges
        self.profiles = tuple(cluster.profiles[key] for key in sorted(cluster.profiles))
        self.sim_jobs = {job.id: job for job in jobs}
        self.deadlines = deadlines_of(jobs)  # of all jobs, by job, like `estimates`
        self.profilers = {job.id: job.id for job in jobs if job.is_profiler}
        self.estimates = (
            estimates_of(jobs, cluster, cold_us=rules.cold_us, checkpoint_us=rules.checkpoint_us)
            if self.deadlines
            else {}
        )
        self.jobs: dict[int, Job] = {}  # active jobs by id, in order of arrival
        self.past_terms: dict[int, int] = {}  # by job, of ended leases
        self.runs: dict[int, Run] = {}
        self.backoffs: dict[int, Backoff] = {}  # jobs that may not start yet
        self.leases: dict[int, Lease] = {}  # by id, in order
        self.changes: list[Change] = []
        self.queue: set[int] = set()
        self.joined: list[int] = []
        self.due: list[Lease] = []
        self.over: list[Lease] = []  # leases that ended since the last round
        self._expired: list[int] = []
        self.priced = 0  # active jobs with a maximum price
        self.tenants: tuple[Tenant, ...] = ()  # tenants with limited credit, if given
        self._cancelled: list[int] = []
        self.quotas: tuple[Entitlement, ...] | None = None
        self.reported_quotas: dict[tuple[int, str], int] = {}  # last reported to the sums
        self.has_sums = False  # whether any change was reported to the sums
        self.last_us = start_us  # the time of the last round
        self._node_changes = sorted(cluster.changes, key=lambda change: change.at_us)
        for job in sorted(jobs, key=lambda job: job.id):
            self.events.push(job.submitted_us, EventKind.ARRIVE, job.id)
            if job.cancel_us is not None:
                self.events.push(max(job.cancel_us, job.submitted_us), EventKind.CANCEL, job.id)
        for index, change in enumerate(self._node_changes):
            self.events.push(max(change.at_us, start_us), EventKind.NODE, index)

    # ---- events between rounds ----

    def advance(self, at_us: int) -> None:
        """Process all events up to `at_us`, in order."""
        self.at_us = at_us
        coming = self.events.coming
        while coming and coming[0][0] <= at_us:
            self._happen(*heappop(coming))
        if self._cancelled:
            self._cancel_running(at_us)
        self._expire(at_us)

    def _happen(self, instant_us: int, _: int, kind: EventKind, key: int) -> None:
        if kind is EventKind.ARRIVE:
            self._arrive(self.sim_jobs[key])
        elif kind is EventKind.END:
            lease = self.leases.get(key)
            if lease is not None and self.runs[lease.job].ends_us == instant_us:
                self._finish(lease, instant_us)
        elif kind is EventKind.DUE:
            self._expired.append(key)
        elif kind is EventKind.NODE:
            self._node(key, instant_us)
        elif kind is EventKind.READY and self.backoffs.pop(key, None) is not None:
            self._wait(key)
        elif kind is EventKind.CANCEL:
            self._cancel_ask(key, instant_us)

    def _expire(self, at_us: int) -> None:
        """Set `due` to the expired leases that a round at `at_us` may renew or end."""
        self.events.take_due(at_us, self._expired)
        if not self._expired:
            return
        leases = self.leases
        self.due = [
            lease
            for key in self._expired
            if (lease := leases.get(key)) is not None and lease.ends_by(at_us)
        ]

    def _arrive(self, sim: SimJob) -> None:
        self.jobs[sim.id] = Job(
            sim.id, sim.tenant, sim.gpus, sim.submitted_us, sim.gpu_types, sim.weight, 0,
            sim.max_price_micro, sim.deadline_us, sim.estimate_us, sim.profile,
        )  # fmt: skip # rows of what belongs together
        self.runs[sim.id] = Run(sim)
        self.priced += sim.max_price_micro is not None
        self._wait(sim.id)
        self.changes.append(
            Change(
                sim.submitted_us, ChangeKind.ACTIVE, sim.tenant, sim.id, sim.gpus, sim.gpu_types,
                sim.weight,
            )
        )  # fmt: skip # rows of what belongs together

    def _wait(self, job_id: int) -> None:
        self.queue.add(job_id)
        self.joined.append(job_id)

    def _finish(self, lease: Lease, at_us: int) -> None:
        failed = self.sim_jobs[lease.job].failed
        reason = EndReason.FAILED if failed else EndReason.FINISHED
        self._release(lease, at_us, reason)
        self._gone(lease.job, at_us, "failed" if failed else "succeeded")

    def _cancel_ask(self, job_id: int, at_us: int) -> None:
        """End a waiting job at once; a running job ends at the next round."""
        run = self.runs.get(job_id)
        if run is None:
            return
        if run.lease:
            self._cancelled.append(job_id)
        else:
            self._gone(job_id, at_us, "cancelled")

    def _cancel_running(self, at_us: int) -> None:
        """End the jobs that were cancelled while they ran, unless they have already ended."""
        for job_id in self._cancelled:
            run = self.runs.get(job_id)
            if run is None:
                continue
            if run.lease:
                self._release(self.leases[run.lease], at_us, EndReason.CANCELLED)
            self._gone(job_id, at_us, "cancelled")
        self._cancelled.clear()

    def _gone(self, job_id: int, at_us: int, state: str) -> None:
        run = self.runs.pop(job_id)
        job = self.jobs.pop(job_id)
        self.priced -= job.max_price_micro is not None
        self.past_terms.pop(job_id, None)
        self.backoffs.pop(job_id, None)
        self.queue.discard(job_id)
        self.changes.append(Change(at_us, ChangeKind.INACTIVE, job.tenant, job_id))
        self.books.jobs.append(
            JobRecord(job_id, state, run.started_us, at_us, run.leases, run.done_us)
        )

    def _node(self, index: int, at_us: int) -> None:
        change = self._node_changes[index]
        self.nodes[change.node] = replace(self.nodes[change.node], gpus=change.gpus)
        self.occupancy.resize(change.node, change.gpus)
        self.quotas = None
        for lease in tuple(self.leases.values()):
            if any(node == change.node and change.gpus < gpus for node, gpus in lease.placement):
                self._release(lease, at_us, EndReason.NODE_LOST)
                self._wait(lease.job)

    def _release(self, lease: Lease, at_us: int, reason: EndReason) -> None:
        """End a lease. Its job keeps its work, or its last checkpoint if a node was lost."""
        run = self.runs[lease.job]
        held_us = at_us - lease.started_us
        if reason is EndReason.NODE_LOST:  # work since the last checkpoint is lost
            term_us = lease.expires_us - (run.lasts_us or self.rules.lease_us)
            run.overhead_us += at_us - max(term_us, lease.started_us)
        overhead_us = min(run.overhead_us, held_us)
        if reason in (EndReason.FINISHED, EndReason.FAILED):
            run.done_us = run.job.duration_us
        else:
            run.done_us += (held_us - overhead_us) * run.speed_milli // ONE_MILLI
        self.books.leases.append(
            LeaseRecord(
                lease.id, lease.job, run.leases, lease.gpu_type, lease.placement,
                lease.started_us, at_us, reason.value, overhead_us,
            )
        )  # fmt: skip # rows of what belongs together
        run.lease = run.overhead_us = 0
        self.past_terms[lease.job] = self.past_terms.get(lease.job, 0) + lease.term
        self.occupancy.give(lease)
        self.over.append(lease)
        del self.leases[lease.id]
        self.changes.append(Change(at_us, ChangeKind.RELEASE, lease.tenant, lease.job))
        self.books.ended(at_us, lease)

    # ---- input and effects of a round ----

    @property
    def is_quiet(self) -> bool:
        """Whether nothing changed, no job waits, no lease is due and no price has a surcharge."""
        if self.changes or self.queue or self.quotas is None or self.has_surcharge:
            return False
        return not self.due

    @property
    def has_surcharge(self) -> bool:
        """Whether any price has a surcharge, which falls round by round while no job waits."""
        return any(row.surcharge_micro for row in self.surcharges)

    def changes_in_order(self) -> list[Change]:
        """Return the changes since the last round in the order of a snapshot."""
        return sorted(self.changes, key=attrgetter("at_us", "job"))

    def snapshot(self) -> Snapshot:
        """Return the snapshot of the round at `at_us`, equal to that of a live pool."""
        quotas = self.entitle()
        self.count_terms(tuple(self.jobs))
        tenants = {row.tenant for row in quotas} | {job.tenant for job in self.jobs.values()}
        backoffs = tuple(self.backoffs[job] for job in sorted(self.backoffs))
        has, needs = self.cluster.node_resources, self.cluster.resources_of(self.jobs)
        utilities = utilities_of(self.sim_jobs, self.jobs)
        by_job: dict[str, Any] = {
            "deadlines": rows_of(self.deadlines, self.jobs),
            "estimates": rows_of(self.estimates, self.jobs),
            "profilers": rows_of(self.profilers, self.jobs),
        }
        newest = (self.rules.lease_bounds_us, has or needs, utilities, self.surcharges)
        return Snapshot(
            schema=schema_of(backoffs, *newest, **by_job),
            pool=1,
            number=self.number,
            at_us=self.at_us,
            round_us=self.rules.round_us,
            lease_us=self.rules.lease_us,
            policy=self.policy.name,
            policy_version=self.policy.version,
            options=dict(self.rules.options),
            seed=self.rules.seed,
            nodes=tuple(self.nodes.values()),
            tenants=tuple(Tenant(tenant) for tenant in sorted(tenants)),
            entitlements=quotas,
            jobs=tuple(self.jobs.values()),
            leases=tuple(self.leases.values()),
            prices=self.prices,
            changes=tuple(self.changes_in_order()),
            service=self.service,
            memory=self.memory,
            profiles=self.profiles,
            backoffs=backoffs,
            lease_bounds_us=self.rules.lease_bounds_us,
            node_resources=has,
            job_resources=needs,
            utilities=utilities,
            surcharges=self.surcharges,
            **by_job,
        )

    def entitle(self) -> tuple[Entitlement, ...]:
        """Return quotas scaled to live capacity; record their changes in the sums and the books."""
        if self.quotas is not None:
            return self.quotas
        capacity = self.occupancy.capacity
        quotas: list[Entitlement] = []
        for gpu_type in sorted(capacity):
            now = entitlements(self.cluster.quotas, gpu_type, capacity[gpu_type])
            lendable = {row.tenant: (row.gpus, row.lends_most) for row in now}
            self.books.entitle(self.at_us, gpu_type, capacity[gpu_type], lendable)
            quotas += now
        quotas.sort(key=lambda row: (row.tenant, row.gpu_type))
        self._tell_quotas(quotas)
        self.quotas = tuple(quotas)
        return self.quotas

    def _tell_quotas(self, quotas: list[Entitlement]) -> None:
        # The first quotas count from the start of accounting, later ones from this round.
        instant_us = self.at_us if self.has_sums else self.last_us
        for row in quotas:
            key = (row.tenant, row.gpu_type)
            if self.reported_quotas.get(key, 0) != row.gpus:
                self.reported_quotas[key] = row.gpus
                changed = (row.tenant, 0, row.gpus, (row.gpu_type,))
                self.changes.append(Change(instant_us, ChangeKind.QUOTA, *changed))

    def apply(self, decision: Decision) -> None:
        """Apply a decision that `decide_round` made on a snapshot of this state."""
        self.service = decision.service
        renewed = [(self.leases[row.lease], _split(row)) for row in decision.renewals]
        granted = [(row, _split(row)) for row in decision.grants]
        terms = Terms(renewed, granted, [], {row.job: row.lease_us for row in decision.lengths})
        self.books.swap(self.at_us, self.entitle(), decision.swaps)
        posted = (self.cluster.as_set(decision.prices), decision.surcharges)
        self.apply_terms(terms, decision.ends, decision.memory, *posted)

    def apply_terms(
        self,
        terms: Terms,
        ends: Iterable[End],
        memory: dict[str, Any],
        prices: tuple[PoolPrice, ...],
        surcharges: tuple[Surcharge, ...] = (),
    ) -> None:
        """Apply a round's renewals, ends and grants; granted leases start at the round's time."""
        self.memory, self.prices, self.last_us = memory, prices, self.at_us
        self.surcharges = surcharges
        if self.changes:
            self.has_sums = True
            self.changes.clear()
        if self._expired:
            self._expired.clear()
            self.due = []
        self.number += 1
        lease_us, length = self.rules.lease_us, terms.lengths.get
        for lease, split in terms.renewed:
            self.renew(lease, split, length(lease.job, lease_us))
        for end in ends:
            self.end(self.leases[end.lease], end.reason)
        for grant, split in terms.granted:
            self.grant(grant, split, length(grant.job, lease_us))
        self.over.clear()

    def end(self, lease: Lease, reason: EndReason) -> None:
        run = self.runs[lease.job]
        run.overhead_us += run.job.checkpoint_us_or(self.rules.checkpoint_us)
        self._release(lease, self.at_us, reason)
        self._wait(lease.job)

    def renew(self, old: Lease, split: Split, lease_us: int) -> None:
        own, borrowed, price_micro = split
        until_us = self.at_us + lease_us
        new = self.leases[old.id] = Lease(
            old.id, old.job, old.tenant, old.gpu_type, old.placement, old.started_us, until_us,
            old.term + 1, own, borrowed, price_micro, old.protected_until_us,
        )  # fmt: skip # rows of what belongs together
        self.books.renewed(self.at_us, old, new)
        self.events.push_due(until_us, old.id)
        run = self.runs[old.job]
        run.lasts_us = lease_us
        checkpoint_us = run.job.checkpoint_us_or(self.rules.checkpoint_us)
        if checkpoint_us:
            run.overhead_us += checkpoint_us
            run.ends_us += checkpoint_us
            self.events.push(run.ends_us, EventKind.END, old.id)

    def grant(self, grant: Grant, split: Split, lease_us: int) -> None:
        """Start a lease with a first term of `lease_us`; its job starts at once."""
        lease_id, self.next_lease = self.next_lease, self.next_lease + 1
        until_us, least_us = self.at_us + lease_us, self._min_runtime_us
        protected_us = self.at_us + least_us if least_us else 0
        lease = self.leases[lease_id] = Lease(
            lease_id, grant.job, grant.tenant, grant.gpu_type, grant.placement, self.at_us,
            until_us, 1, *split, protected_us,
        )  # fmt: skip # rows of what belongs together
        gpus = split[0] + split[1]
        self.occupancy.take(lease)
        self.queue.discard(grant.job)
        who = (grant.tenant, grant.job, gpus, (grant.gpu_type,))
        self.changes.append(Change(self.at_us, ChangeKind.HOLD, *who))
        self.books.granted(self.at_us, lease)
        run = self.runs[grant.job]
        run.lasts_us = lease_us
        self._start(run, grant, lease_id)
        self.events.push_due(max(until_us, protected_us), lease_id)

    def _start(self, run: Run, grant: Grant, lease_id: int) -> None:
        run.overhead_us = run.job.cold_us_or(self.rules.cold_us) if run.leases else 0
        run.leases += 1
        run.lease = lease_id
        run.speed_milli = self.cluster.placed_speed_milli(run.job, grant.gpu_type, grant.placement)
        if run.started_us is None:
            run.started_us = self.at_us
        left_us = run.job.duration_us - run.done_us
        run.ends_us = self.at_us + run.overhead_us - (-left_us * ONE_MILLI // run.speed_milli)
        self.events.push(run.ends_us, EventKind.END, lease_id)

    def count_terms(self, job_ids: Iterable[int]) -> None:
        """Update the term counts of jobs; called on demand, because few rounds need them."""
        for job_id in job_ids:
            job, lease_id = self.jobs[job_id], self.runs[job_id].lease
            terms = self.past_terms.get(job_id, 0)
            terms += self.leases[lease_id].term if lease_id else 0
            if job.terms != terms:
                self.jobs[job_id] = replace(job, terms=terms)
