"""Shadow runs: a policy's simulated run of a cluster that another scheduler runs, on its jobs.

A watch starts with the running and the queued jobs. From then on the policy runs the cluster in a
simulation. Running jobs continue under leases that started with them. The policy starts waiting and
later jobs, by the rounds of a live pool. The same functions (`outlook`) measure the other
scheduler's record and the policy's run over the same span.

A job is known to the policy from the instant at which it could start. Its work is its run time on
the cluster. The work of a job that has not ended is guessed (`_guess_us`).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from evenshare_core.domain.cluster import Node, Placement, capacity_by_type
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement, Tenant, entitlements
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Change, ChangeKind, Service, Snapshot, schema_of
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.registry import policy as policy_named
from evenshare_core.simulation.books import LeaseRecord
from evenshare_core.simulation.deadline_figures import PREEMPTED
from evenshare_core.simulation.events import EventKind
from evenshare_core.simulation.figures import Figures
from evenshare_core.simulation.outlook import (
    OPEN,
    Seen,
    go_on,
    leases_at,
    seen_jobs,
    span_figures,
)
from evenshare_core.simulation.pool_files import NamedNode, PoolQuota, entitlements_of
from evenshare_core.simulation.present import PresentState, Start, Work
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import Cluster, SimJob, Workload, quotas_by_demand
from evenshare_core.units import HOUR_US, SECOND_US

# The guessed work of a job, in us, if no job has ended yet.
UNKNOWN_WORK_US = HOUR_US
# This allows for rounding in the product of shares.
HALF = 0.5 + 1e-9
# The order within an instant: a job may arrive, start and end in the same second.
_ORDER = (ChangeKind.QUOTA, ChangeKind.ACTIVE, ChangeKind.HOLD, ChangeKind.INACTIVE)


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """A job of the other scheduler; instants are in us, or None if not reached.

    `ready_us`: the instant at which it could start. `shares`: GPUs by node name, once it runs.
    `gpu_types`: the requested types (empty: any). An ended job without a start was cancelled.
    """

    name: str
    tenant: str
    gpus: int
    ready_us: int
    gpu_types: tuple[str, ...] = ()
    started_us: int | None = None
    ended_us: int | None = None
    shares: tuple[tuple[str, int], ...] = ()
    limit_us: int | None = None

    def runs_at(self, at_us: int) -> bool:
        """Return whether the job held its GPUs at this time."""
        begun = self.started_us is not None and self.started_us <= at_us
        return begun and not self.is_over(at_us)

    def is_over(self, at_us: int) -> bool:
        return self.ended_us is not None and self.ended_us <= at_us

    @property
    def ran_us(self) -> int | None:
        """Return the run time of an ended job; None if it has not started or ended."""
        if self.started_us is None or self.ended_us is None:
            return None
        return self.ended_us - self.started_us


@dataclass(frozen=True, slots=True)
class Watch:
    """The observed nodes and jobs, from the start to the end of a watch."""

    nodes: tuple[NamedNode, ...]
    jobs: tuple[ObservedJob, ...]
    from_us: int
    until_us: int


@dataclass(frozen=True, slots=True)
class WatchedPool:
    """A watch with jobs numbered by (ready, name) and tenants in the order of the quotas.

    `left_out`: jobs that are not a gang of whole GPUs of one type on known nodes; neither side
    counts them. `guessed`: jobs of unknown work, because they have not ended.
    """

    watch: Watch
    nodes: Mapping[str, Node]
    tenants: Mapping[int, str]
    jobs: Mapping[int, ObservedJob]
    sims: Mapping[int, SimJob]
    quotas: tuple[Entitlement, ...]
    left_out: tuple[str, ...] = ()
    guessed: frozenset[int] = frozenset()

    @property
    def workload(self) -> Workload:
        """Return the jobs as a trace."""
        return Workload(tuple(self.sims.values()), self.tenants)


@dataclass(frozen=True, slots=True)
class JobCourse:
    """A job under one scheduler until the end of the watch.

    `yields`: the number of requests to checkpoint and leave its GPUs; `yielded_us`: the first.
    """

    started_us: int | None
    ended_us: int | None
    waited_us: int
    held_us: int
    yields: int = 0
    yielded_us: int | None = None


@dataclass(frozen=True, slots=True)
class ShadowSide:
    """A scheduler's run of the span. `gpu_us`: GPU-time held in the span, by tenant."""

    title: str
    jobs: Mapping[int, JobCourse]
    gpu_us: Mapping[int, int]
    figures: Figures
    rounds: int = 0


def watched_pool(watch: Watch, quotas: Sequence[PoolQuota] = ()) -> WatchedPool:
    """Number a watch's jobs and tenants; without `quotas`, quotas follow demand.

    Raises:
        TableError: a quota is of a type that no node has.
    """
    span = [
        job
        for job in watch.jobs
        if not job.is_over(watch.from_us) and job.ready_us <= watch.until_us
    ]
    types = {one.name: one.node.gpu_type for one in watch.nodes}
    kept = [job for job in span if _is_whole(job, types)]
    out = {job.name for job in span} - {job.name for job in kept}
    out |= _unplaced(watch, kept)
    kept = sorted((job for job in kept if job.name not in out), key=_arrival)
    names = dict.fromkeys([*(line.tenant for line in quotas), *sorted({j.tenant for j in kept})])
    ids = {name: index for index, name in enumerate(names, start=1)}
    ran = _run_times(watch)
    jobs = dict(enumerate(kept, start=1))
    sims = {key: _sim_job(key, job, ids[job.tenant], watch, ran) for key, job in jobs.items()}
    tenants = {index: name for name, index in ids.items()}
    nodes = [one.node for one in watch.nodes]
    asked = entitlements_of(quotas, tenants, types.values()) if quotas else ()
    asked = asked or quotas_by_demand(tuple(sims.values()), nodes)
    capacity = capacity_by_type(nodes)
    rows = [row for name in sorted(capacity) for row in entitlements(asked, name, capacity[name])]
    rows.sort(key=lambda row: (row.tenant, row.gpu_type))
    guessed = frozenset(key for key, job in jobs.items() if job.ended_us is None)
    by_name = {one.name: one.node for one in watch.nodes}
    left_out = tuple(sorted(out))
    return WatchedPool(watch, by_name, tenants, jobs, sims, tuple(rows), left_out, guessed)


def _arrival(job: ObservedJob) -> tuple[int, str]:
    """Sort numbers in names by value: job 9 comes before job 10."""
    return (job.ready_us, re.sub(r"\d+", lambda digits: digits[0].zfill(20), job.name))


def _is_whole(job: ObservedJob, types: Mapping[str, str]) -> bool:
    """Return whether the job is a gang of one GPU type, on known nodes if it has run."""
    if job.gpus < 1:
        return False
    if job.started_us is None:
        return True
    held = {types.get(name) for name, _ in job.shares}
    return len(held) == 1 and None not in held and sum(g for _, g in job.shares) == job.gpus


def _unplaced(watch: Watch, jobs: Iterable[ObservedJob]) -> set[str]:
    """Return jobs whose observed nodes lack GPUs, so a policy could not continue them there."""
    out: set[str] = set()
    rows = list(jobs)
    for at_us in (watch.from_us, watch.until_us):
        free = {one.name: one.node.gpus for one in watch.nodes}
        running = sorted((job for job in rows if job.runs_at(at_us)), key=_arrival)
        for job in running:
            if all(free[name] >= gpus for name, gpus in job.shares):
                for name, gpus in job.shares:
                    free[name] -= gpus
            else:
                out.add(job.name)
    return out


def _run_times(watch: Watch) -> dict[str, int]:
    """Return the median run time by tenant with an ended job; the key "" has that of all jobs."""
    ended: dict[str, list[int]] = {}
    running: dict[str, list[int]] = {}
    for job in watch.jobs:
        if job.ran_us is not None:
            ended.setdefault(job.tenant, []).append(job.ran_us)
            ended.setdefault("", []).append(job.ran_us)
        elif job.started_us is not None:
            so_far_us = max(0, watch.until_us - job.started_us)
            running.setdefault(job.tenant, []).append(so_far_us)
            running.setdefault("", []).append(so_far_us)
    return {name: median_length(rows, running.get(name, [])) for name, rows in ended.items()}


def median_length(ended: Iterable[int], running: Iterable[int]) -> int:
    """Return the median length of jobs, some of which still run and have only a length so far.

    Ended jobs are mostly short, so their median would be too small. Return the longest length if
    more than half the jobs outlast all ended ones. At least one job must have ended. Source: Kaplan
    and Meier, JASA 53 (1958).
    """
    seen = sorted([(length, 0) for length in ended] + [(length, 1) for length in running])
    surviving = 1.0
    for place, (length, is_running) in enumerate(seen):
        if not is_running:
            surviving *= 1 - 1 / (len(seen) - place)
        if surviving <= HALF:
            return length
    return seen[-1][0]


def _sim_job(
    key: int, job: ObservedJob, tenant: int, watch: Watch, ran: Mapping[str, int]
) -> SimJob:
    ran_us = job.ran_us
    work_us = _guess_us(job, watch.until_us, ran) if ran_us is None else max(SECOND_US, ran_us)
    taken_back = job.ended_us if job.started_us is None else None
    return SimJob(
        key, tenant, job.gpus, job.ready_us, work_us, job.gpu_types,
        cancel_us=taken_back, name=job.name,
    )  # fmt: skip # rows of what belongs together


def _guess_us(job: ObservedJob, at_us: int, ran: Mapping[str, int]) -> int:
    """Estimate the work of a job that has not ended.

    The estimate is the median run time of its tenant's jobs, else of all jobs, else an hour. If the
    job has already run longer, it is twice the time so far. The time limit is an upper bound.
    """
    guess_us = ran.get(job.tenant, ran.get("", UNKNOWN_WORK_US))
    so_far_us = at_us - job.started_us if job.started_us is not None else 0
    if so_far_us >= guess_us:
        guess_us = 2 * so_far_us
    if job.limit_us is not None:
        guess_us = min(guess_us, job.limit_us)
    return max(guess_us, so_far_us + SECOND_US)


def snapshot_at(pool: WatchedPool, rules: Rules, at_us: int) -> Snapshot:
    """Return the snapshot of a round at `at_us`, if the cluster were a pool of the policy.

    A running job has had a lease since its start. If it runs longer than a lease length, the lease
    has expired, and the round may take its GPUs. GPU-time sums are those of the other scheduler
    since the watch started.
    """
    active = {
        key: job
        for key, job in pool.jobs.items()
        if job.ready_us <= at_us and not job.is_over(at_us)
    }
    nodes = tuple(one.node for one in pool.watch.nodes)
    policy = policy_named(rules.policy)
    return Snapshot(
        schema=schema_of((), rules.lease_bounds_us),
        pool=1,
        number=1,
        at_us=at_us,
        round_us=rules.round_us,
        lease_us=rules.lease_us,
        policy=policy.name,
        policy_version=policy.version,
        options=dict(rules.options),
        seed=rules.seed,
        nodes=nodes,
        tenants=tuple(Tenant(tenant) for tenant in sorted(pool.tenants)),
        entitlements=pool.quotas,
        jobs=tuple(_job(pool.sims[key], job, at_us) for key, job in active.items()),
        leases=_leases(pool, active, rules, at_us),
        prices=Cluster(nodes, pool.quotas).first_prices(),
        changes=_changes(pool, at_us),
        service=Service(at_us=pool.watch.from_us),
        lease_bounds_us=rules.lease_bounds_us,
    )


def _job(sim: SimJob, job: ObservedJob, at_us: int) -> Job:
    terms = int(job.runs_at(at_us))
    return Job(sim.id, sim.tenant, sim.gpus, sim.submitted_us, sim.gpu_types, terms=terms)


def _leases(
    pool: WatchedPool, active: Mapping[int, ObservedJob], rules: Rules, at_us: int
) -> tuple[Lease, ...]:
    left = {(row.tenant, row.gpu_type): row.gpus for row in pool.quotas}
    leases = []
    for key, job in active.items():
        if not job.runs_at(at_us) or job.started_us is None:
            continue
        gpu_type, placement = _placed(pool, job)
        tenant = pool.sims[key].tenant
        own = min(job.gpus, left.get((tenant, gpu_type), 0))
        left[tenant, gpu_type] = left.get((tenant, gpu_type), 0) - own
        expires_us = max(at_us, job.started_us + rules.lease_us)
        leases.append(
            Lease(
                key, key, tenant, gpu_type, placement, job.started_us, expires_us, 1, own,
                job.gpus - own, 0,
            )
        )  # fmt: skip # rows of what belongs together
    return tuple(leases)


def _placed(pool: WatchedPool, job: ObservedJob) -> tuple[str, Placement]:
    placement = tuple(sorted((pool.nodes[name].id, gpus) for name, gpus in job.shares))
    return pool.nodes[job.shares[0][0]].gpu_type, placement


def _changes(pool: WatchedPool, at_us: int) -> tuple[Change, ...]:
    """Return the changes since the watch started, in time order; earlier ones move to its start."""
    from_us = pool.watch.from_us
    changes = [
        Change(from_us, ChangeKind.QUOTA, row.tenant, 0, row.gpus, (row.gpu_type,))
        for row in pool.quotas
    ]
    for key, job in pool.jobs.items():
        sim = pool.sims[key]
        if sim.submitted_us > at_us:
            continue
        who = (sim.tenant, key, sim.gpus)
        ready_us = max(from_us, sim.submitted_us)
        changes.append(Change(ready_us, ChangeKind.ACTIVE, *who, sim.gpu_types))
        if job.started_us is not None and job.started_us <= at_us:
            types = (_placed(pool, job)[0],)
            changes.append(Change(max(ready_us, job.started_us), ChangeKind.HOLD, *who, types))
        if job.ended_us is not None and job.is_over(at_us):
            changes.append(Change(job.ended_us, ChangeKind.INACTIVE, sim.tenant, key))
    return tuple(sorted(changes, key=_moment))


def _moment(change: Change) -> tuple[int, int, int]:
    return (change.at_us, _ORDER.index(change.kind), change.job)


def decide_now(pool: WatchedPool, rules: Rules) -> Decision:
    """Return the policy's decision at the end of the watch, on the cluster's actual state."""
    return decide_round(snapshot_at(pool, rules, pool.watch.until_us))


def policy_side(pool: WatchedPool, rules: Rules) -> ShadowSide:
    """Simulate the policy on the cluster from the start of the watch to its end.

    Raises:
        InvariantViolation: the policy broke an invariant.
    """
    watch = pool.watch
    begin = snapshot_at(pool, rules, watch.from_us)
    there = {job.id for job in begin.jobs}
    work = {key: _work(pool.jobs[key], pool.sims[key], watch.from_us) for key in there}
    arrivals = tuple(sim for key, sim in pool.sims.items() if key not in there)
    state = PresentState(Start(begin, work, arrivals), rules)
    for key in there:
        cancel_us = pool.sims[key].cancel_us
        if cancel_us is not None:
            state.events.push(cancel_us, EventKind.CANCEL, key)
    result = go_on(state, until_us=watch.until_us)
    seen = seen_jobs(state, work, watch.until_us)
    leases = leases_at(state, result, watch.until_us)
    return _side(rules.policy, pool, leases, seen, result.rounds)


def _work(job: ObservedJob, sim: SimJob, at_us: int) -> Work:
    if not job.runs_at(at_us) or job.started_us is None:
        return Work(sim.duration_us)
    return Work(max(1, sim.duration_us - (at_us - job.started_us)))


def observed_side(pool: WatchedPool, title: str) -> ShadowSide:
    """Return the other scheduler's run, measured in the same way."""
    watch = pool.watch
    leases, seen = [], []
    for key, job in pool.jobs.items():
        sim = pool.sims[key]
        end_us = job.ended_us if job.is_over(watch.until_us) else None
        until_us = watch.until_us if end_us is None else end_us
        held_us = useful_us = 0
        left_us = sim.duration_us
        if job.started_us is not None:
            begun_us = max(job.started_us, watch.from_us)
            held_us, useful_us = until_us - job.started_us, until_us - begun_us
            left_us -= begun_us - job.started_us
            gpu_type, placement = _placed(pool, job)
            reason = OPEN if end_us is None else "finished"
            leases.append(
                LeaseRecord(key, key, 1, gpu_type, placement, job.started_us, until_us, reason, 0)
            )
        seen.append(Seen(sim, end_us, held_us, useful_us, left_us))
    return _side(title, pool, leases, seen, 0)


def _side(
    title: str, pool: WatchedPool, leases: list[LeaseRecord], seen: list[Seen], rounds: int
) -> ShadowSide:
    watch = pool.watch
    of_job: dict[int, list[LeaseRecord]] = {}
    gpu_us: dict[int, int] = dict.fromkeys(pool.tenants, 0)
    for lease in leases:
        of_job.setdefault(lease.job, []).append(lease)
        sim = pool.sims[lease.job]
        span_us = max(0, lease.end_us - max(lease.start_us, watch.from_us))
        gpu_us[sim.tenant] += sim.gpus * span_us
    courses = {one.job.id: _course(one, of_job.get(one.job.id, []), watch) for one in seen}
    nodes = tuple(one.node for one in watch.nodes)
    cluster = Cluster(nodes, pool.quotas)
    figures = span_figures(cluster, leases, seen, (watch.from_us, watch.until_us))
    return ShadowSide(title, courses, gpu_us, figures, rounds)


def _course(one: Seen, leases: Sequence[LeaseRecord], watch: Watch) -> JobCourse:
    started_us = min((row.start_us for row in leases), default=None)
    asked = sorted(row.end_us for row in leases if row.reason in PREEMPTED)
    end_us = watch.until_us if one.end_us is None else one.end_us
    first_us = end_us if started_us is None else started_us
    waited_us = max(0, first_us - one.job.submitted_us)
    return JobCourse(
        started_us, one.end_us, waited_us, one.held_us, len(asked), asked[0] if asked else None
    )
