"""A solved round: a plan for each GPU type, and the leases that begin now."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from evenshare_core.deadlines.admission import (
    AdmissionAnswer,
    FreeRoom,
    QuotaLimit,
    admit,
    free_after,
)
from evenshare_core.deadlines.cells import CellPlacement
from evenshare_core.deadlines.compact import NOW
from evenshare_core.deadlines.model import HORIZON_MOST, Counts, SelectorJob, SelectorProblem
from evenshare_core.deadlines.options import LEVELS, CellOption
from evenshare_core.deadlines.picks import picks_now
from evenshare_core.deadlines.plans import JobLeases, SelectorPlan, free_units
from evenshare_core.deadlines.rewards import best_effort_micro
from evenshare_core.domain.deadlines import (
    Deadline,
    DeadlineClass,
    DeadlineLimit,
    DeadlineState,
)
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.formulations.selector import select
from evenshare_core.policies.shared.admission import Admission
from evenshare_core.policies.unisched.demands import (
    DeadlineDemand,
    dated_steps,
    job_options,
    rewards_left,
    selector_job,
    whole_leases,
    with_held,
)
from evenshare_core.policies.unisched.memory import KeptAnswer
from evenshare_core.policies.unisched.pool import DeadlinePool
from evenshare_core.units import COUNT_MAX, REWARD_MICRO

# Most rounds spend this whole effort, since a plan without a margin does not reach its bound. A
# tenth of the default saves half a second on one core, and does not make runs worse.
ROUND_EFFORT = 5_000


@dataclass(eq=False)
class TypePlan:
    """The problem and the plan of a GPU type, and the answers to jobs that are not planned."""

    gpu_type: str
    problem: SelectorProblem
    plan: SelectorPlan
    rows: dict[int, JobLeases]
    refused: dict[int, AdmissionAnswer] = field(default_factory=dict)
    over_quota: set[int] = field(default_factory=set)
    no_room_later: set[int] = field(default_factory=set)
    fillers: dict[int, JobLeases] = field(default_factory=dict)
    free: Counts = field(default_factory=lambda: np.zeros(LEVELS, dtype=np.int64))

    def planned(self) -> SelectorPlan:
        """Return the plan with the jobs that were added and removed after it was solved."""
        reward = sum(row.reward_micro for row in self.rows.values())
        return replace(self.plan, jobs=dict(sorted(self.rows.items())), reward_micro=reward)

    def beginning(self) -> SelectorPlan:
        """Return the leases that begin now, including those on GPUs that the plan does not use."""
        now = {row.job: row for row in self.planned().now(is_slo_cycle=True)} | self.fillers
        return replace(self.plan, jobs=dict(sorted(now.items())))


@dataclass(eq=False)
class SolvedRound:
    """The demands of jobs with deadlines, a plan for each type, and the placement of new leases."""

    pool: DeadlinePool
    admission: Admission
    demands: dict[int, DeadlineDemand] = field(default_factory=dict)
    plans: dict[str, TypePlan] = field(default_factory=dict)
    placed: dict[str, CellPlacement] = field(default_factory=dict)

    def run(self, deadlines: Iterable[Deadline]) -> None:
        """Solve all GPU types, give unused GPUs to other jobs, and place leases that begin now."""
        pool = self.pool
        live = [row for row in deadlines if row.id in pool.jobs]
        budgets = rewards_left(live, pool.jobs, pool.snapshot.entitlements, pool.options)
        for row in live:
            self.demands[row.id] = self._demand(row, budgets[row.id])
        homes: dict[str, list[Job]] = {name: [] for name in sorted(pool.capacity)}
        for job in sorted(pool.jobs.values(), key=arrival_order):
            home = pool.home(job)
            if home in homes and home in pool.types(job):
                homes[home].append(job)
        for name, jobs in homes.items():
            self.plans[name] = self._solved(name, jobs)
        for name, made in self.plans.items():
            self._keep_affordable(made)
            self._fill(made, homes[name])
        others = [job for job in pool.jobs.values() if len(pool.types(job)) > 1]
        for job in sorted(others, key=arrival_order):
            self._try_elsewhere(job)
        for name, made in self.plans.items():
            self.placed[name] = picks_now(
                made.problem, made.beginning(), pool.free_gpus(name), pool.held(name)
            )

    # ---- inputs of the plan ----

    def _demand(self, row: Deadline, most_micro: int) -> DeadlineDemand:
        pool = self.pool
        job = pool.jobs[row.id]
        gpu_type = pool.home(job)
        remaining = pool.remaining(job, gpu_type)
        ready = whole_leases(max(0, remaining.until_us - pool.at_us), pool.lease_us)
        is_kept_out = not ready and not self._may_start(job, gpu_type)
        dated = dated_steps(
            row, remaining, pool.estimates.get(job.id), most_micro,
            at_us=pool.at_us, lease_us=pool.lease_us, options=pool.options,
            phase_us=0 if is_kept_out else self._phase_us(job.id, remaining.until_us),
        )  # fmt: skip # rows of what belongs together
        if is_kept_out:
            ready = 1  # a limit refuses a lease that begins now
        options = self._options(job, gpu_type)
        made = selector_job(job, row.kind, options, dated, ready)
        return DeadlineDemand(job, gpu_type, remaining, dated, made, most_micro)

    def _phase_us(self, job: int, from_us: int) -> int:
        """Return how long before `from_us` the current lease of earlier plans started, in us."""
        memory = self.pool.memory
        known = memory.answers.get(job)
        if known is None or known.state is not DeadlineState.PLANNED or memory.origin_us is None:
            return 0
        return (from_us - memory.origin_us) % self.pool.lease_us

    def _may_start(self, job: Job, gpu_type: str) -> bool:
        return self.admission.check(job, gpu_type) is None

    def _options(self, job: Job, gpu_type: str) -> tuple[CellOption, ...]:
        pool = self.pool
        spread = pool.spread_milli(job.id)
        largest = max(pool.nodes.get(gpu_type, {}).values(), default=0)
        rows = job_options(job, spread, largest, pool.options)
        if self._is_profiler(job):  # T^1 of (2) must be measured on one node
            rows = tuple(row for row in rows if row.one_node) or rows
        lease = pool.ended.get(job.id)
        if lease is not None and lease.gpu_type == gpu_type:
            return with_held(rows, lease, spread, pool.options)
        return rows

    def _is_profiler(self, job: Job) -> bool:
        return job.id in self.pool.snapshot.profilers

    def has_deadline_left(self, job: int) -> bool:
        """Return whether the job has a deadline by which it can be planned."""
        demand = self.demands.get(job)
        return demand is not None and demand.selector_job is not None

    # ---- the plan of one GPU type ----

    def _solved(self, gpu_type: str, jobs: list[Job]) -> TypePlan:
        pool = self.pool
        rows: list[SelectorJob] = []
        for job in jobs:
            made = self._selector_job(job, gpu_type)
            if made is not None:
                rows.append(made)
        problem = SelectorProblem(
            tuple(rows),
            pool.free_slots(gpu_type),
            slots=pool.options.lease_multiple,
            slot_us=pool.slot_us,
        )
        last = SelectorPlan(self._last(rows), 0, 0)
        unsure = {row.id for row in rows if self._is_unsure(row.id)}
        plan = select(
            problem, last, iterations=pool.options.iterations, effort=ROUND_EFFORT, first=unsure,
            former=pool.is_former,
        )  # fmt: skip # rows of what belongs together
        made_plan = TypePlan(gpu_type, problem, plan, dict(plan.jobs))
        self._keep_quotas(made_plan)
        self._keep_later(made_plan)
        self._admit(made_plan)
        return made_plan

    def _is_unsure(self, job: int) -> bool:
        demand = self.demands.get(job)
        return demand is not None and demand.remaining.deviation_us > 0

    def _selector_job(self, job: Job, gpu_type: str) -> SelectorJob | None:
        demand = self.demands.get(job.id)
        if demand is not None and demand.selector_job is not None:
            most = self.admission.most(job.tenant, gpu_type)
            return None if most is not None and job.gpus > most else demand.selector_job
        if job.id in self.pool.kept or not self._may_start(job, gpu_type):
            return None
        options = self._options(job, gpu_type)
        left = self.pool.remaining(job, gpu_type).left_us
        kind = DeadlineClass.PROFILER if self._is_profiler(job) else DeadlineClass.BEST_EFFORT
        return SelectorJob(job.id, kind, options, (), left)

    def _last(self, rows: Iterable[SelectorJob]) -> dict[int, JobLeases]:
        """Return the last plan's options and steps, for jobs that still have the same option."""
        kept: dict[int, JobLeases] = {}
        for row in rows:
            answer: KeptAnswer | None = self.pool.memory.answers.get(row.id)
            if answer is None or not answer.option:
                continue
            for option in row.options:
                if (*option.cells, int(option.one_node)) == answer.option:
                    kept[row.id] = JobLeases(
                        row.id, self._step(row.id, answer.by_us), option, 0, ()
                    )
                    break
        return kept

    def _step(self, job: int, by_us: int) -> int:
        """Return the index of the promised step among the remaining steps."""
        dated = self.demands[job].dated
        return next((place for place, row in enumerate(dated) if row.by_us == by_us), 0)

    def _keep_quotas(self, made: TypePlan) -> None:
        """Remove jobs whose leases would exceed their tenant's limit, the latest arrivals first."""
        used: dict[int, Counts] = {}
        pool = self.pool
        order = sorted(
            (pool.jobs[job] for job in made.rows if self.has_deadline_left(job)), key=arrival_order
        )
        for job in order:
            most = self.admission.most(job.tenant, made.gpu_type)
            if most is None:
                continue
            row = made.rows[job.id]
            if job.tenant not in used:
                used[job.tenant] = self._used(made, job.tenant)
            slots = list(row.slots)
            if slots and int(used[job.tenant][slots].max()) + job.gpus > most:
                del made.rows[job.id]
                made.over_quota.add(job.id)
            else:
                used[job.tenant][slots] += job.gpus

    def _keep_later(self, made: TypePlan) -> None:
        """Remove jobs whose work after the horizon has no room, the last deadlines first.

        Leases are placed only within the horizon. Work after the horizon is compared with the
        GPU-leases that are free after it, plus those that the plan leaves free before it.
        """
        horizon = made.problem.horizon
        steps = {job.id: job.steps for job in made.problem.jobs}
        rows = [
            (steps[row.job][row.step].deadline, row)
            for row in made.rows.values()
            if not row.is_now and steps[row.job][row.step].deadline > horizon
        ]
        if not rows:
            return
        room = int(made.problem.units_until(horizon + 1)[-1][0])
        left = int(free_units(made.problem, made.planned())[1][:, 0].sum())
        asked = 0
        for deadline, row in sorted(rows, key=lambda pair: (pair[0], pair[1].job)):
            whole = row.option.leases(steps[row.job][row.step].leases)
            later = max(0, whole - len(row.slots)) * row.option.units[0]
            if asked + later > left + room * (deadline - horizon):
                del made.rows[row.job]
                made.no_room_later.add(row.job)
            else:
                asked += later

    def _used(self, made: TypePlan, tenant: int) -> Counts:
        """Return the GPUs of a tenant's continuing leases, for each SLO lease from now."""
        pool = self.pool
        used = np.zeros(max(made.problem.leases, HORIZON_MOST) + 1, dtype=np.int64)
        for job, lease in pool.kept.items():
            if lease.tenant == tenant and lease.gpu_type == made.gpu_type:
                until = whole_leases(pool.holds_until(job) - pool.at_us, pool.lease_us)
                used[:until] += lease.gpus
        return used

    def _admit(self, made: TypePlan) -> None:
        """Plan unplanned jobs with deadlines, or record the refusal if there is no room."""
        pool = self.pool
        known = made.rows.keys() | made.no_room_later
        rows = [row for row in made.problem.jobs if row.kind.has_deadline and row.id not in known]
        too_long = [row for row in self.demands.values() if self._is_too_long(row, made.gpu_type)]
        if not rows and not too_long:
            return
        room = FreeRoom(free_after(made.problem, made.planned(), self._length(made, rows)))
        used: dict[int, Counts] = {}
        # by tenant; an entry is dropped when a job of the tenant is planned
        limits: dict[int, QuotaLimit | None] = {}
        for row in rows:
            job = pool.jobs[row.id]
            if job.tenant not in limits:
                limits[job.tenant] = self._quota_limit(made, job, used)
            planned = self._admit_one(made, row, limits[job.tenant], room)
            if planned is not None:
                room.take(planned.option.units, planned.slots)
                if job.tenant in used:
                    used[job.tenant][list(planned.slots)] += job.gpus
                    del limits[job.tenant]
        for demand in too_long:
            job = demand.job
            quota = self._quota_limit(made, job, used)
            leases = whole_leases(demand.remaining.later_us, pool.lease_us)
            options = [one for one in self._options(job, made.gpu_type) if not one.is_held]
            made.refused[job.id] = admit(
                made.problem, made.plan, options, leases, 0, quota=quota, room=room
            )

    def _length(self, made: TypePlan, rows: Iterable[SelectorJob]) -> int:
        """Return the number of leases to check: more than any deadline or change needs."""
        deadlines = [step.deadline for row in rows for step in row.steps]
        last = min(max(deadlines, default=0), HORIZON_MOST)
        ends = [self.pool.holds_until(job) - self.pool.at_us for job in self.pool.kept]
        held = whole_leases(max(ends, default=0), self.pool.lease_us)
        return max(made.problem.leases, last, held, len(made.problem.free)) + 1

    def _is_too_long(self, demand: DeadlineDemand, gpu_type: str) -> bool:
        """Return whether the job can meet no deadline on any pool and lacks this answer."""
        job, known = demand.job, self.pool.memory.answers.get(demand.job.id)
        if demand.gpu_type != gpu_type or demand.selector_job is not None:
            return False
        is_new = known is None or known.limit is not DeadlineLimit.LENGTH
        fits = job.gpus <= self.pool.capacity.get(gpu_type, 0) and job.id not in self.pool.kept
        leases = whole_leases(demand.remaining.later_us, self.pool.lease_us)
        return is_new and fits and bool(demand.reward_micro) and 1 <= leases <= HORIZON_MOST

    def _quota_limit(self, made: TypePlan, job: Job, used: dict[int, Counts]) -> QuotaLimit | None:
        """Return the limit of the job's tenant, with its use by lease (cached in `used`)."""
        most = self.admission.most(job.tenant, made.gpu_type)
        if most is None:
            return None
        if job.tenant not in used:
            used[job.tenant] = self._planned_use(made, job.tenant)
        return QuotaLimit(most, tuple(used[job.tenant].tolist()))

    def _planned_use(self, made: TypePlan, tenant: int) -> Counts:
        """Return the GPUs of a tenant's continuing and planned leases, by SLO lease from now."""
        used = self._used(made, tenant)
        for job, leases in made.rows.items():
            if self.pool.jobs[job].tenant == tenant and not leases.is_now:
                used[list(leases.slots)] += self.pool.jobs[job].gpus
        return used

    def _admit_one(
        self, made: TypePlan, row: SelectorJob, quota: QuotaLimit | None, room: FreeRoom
    ) -> JobLeases | None:
        options = [option for option in row.options if not option.is_held]
        answer: AdmissionAnswer | None = None
        # the earliest possible deadline, by the number of leases needed
        earliest: dict[int, int] = {}
        last = len(row.steps) - 1
        for number, step in enumerate(row.steps):
            deadline = min(step.deadline, HORIZON_MOST)
            if number < last and earliest.get(step.leases, 0) > deadline:
                continue
            answer = admit(
                made.problem, made.plan, options, step.leases, deadline, quota=quota, room=room
            )
            earliest[step.leases] = COUNT_MAX if answer.earliest is None else answer.earliest
            is_within = bool(answer.slots) and answer.slots[-1] < made.problem.leases
            if answer.option and answer.is_yes and is_within and answer.slots[0] >= row.ready:
                planned = JobLeases(row.id, number, answer.option, step.reward_micro, answer.slots)
                made.rows[row.id] = planned
                made.over_quota.discard(row.id)
                return planned
        if answer is not None:
            made.refused[row.id] = answer
        return None

    # ---- leases that begin now ----

    def _keep_affordable(self, made: TypePlan) -> None:
        """Take the leases that begin now, in pick order. Drop those that a limit refuses."""
        pool = self.pool
        rows = sorted(
            made.planned().now(is_slo_cycle=True),
            key=lambda row: (row.is_now, row.job not in pool.ended, -row.reward_micro, row.job),
        )
        for row in rows:
            if not self._take(pool.jobs[row.job], made.gpu_type, is_slo=not row.is_now):
                del made.rows[row.job]

    def _take(self, job: Job, gpu_type: str, *, is_slo: bool) -> bool:
        length = self.slo_term_us() if is_slo else None
        if self.admission.check(job, gpu_type, length) is not None:
            return False
        self.admission.take(job.tenant, gpu_type, job.gpus, length)
        return True

    def slo_term_us(self) -> int | None:
        """Return the length of the term of an SLO lease, or None for the pool's lease length."""
        bounds = self.pool.snapshot.lease_bounds_us
        if bounds and bounds[0] <= self.pool.lease_us <= bounds[1]:
            return self.pool.lease_us
        return None

    def _fill(self, made: TypePlan, jobs: list[Job]) -> None:
        """Give free GPUs of slot 0 to jobs that have no lease from now on, the shortest first.

        Profiling runs come before other jobs, since they have more reward than any best-effort job.
        """
        pool = self.pool
        waiting = [
            job for job in jobs if job.id not in pool.kept and not self._begins(made, job.id)
        ]
        left = {job.id: pool.remaining(job, made.gpu_type).left_us for job in waiting}
        waiting.sort(
            key=lambda job: (not self._is_profiler(job), left[job.id], *arrival_order(job))
        )
        made.free = free_units(made.problem, made.planned())[0]
        for job in waiting:
            self._fill_one(made, job, left[job.id])

    def _begins(self, made: TypePlan, job: int) -> bool:
        row = made.rows.get(job)
        return row is not None and 0 in row.slots

    def _fill_one(self, made: TypePlan, job: Job, left_us: int) -> bool:
        if job.gpus > made.free[0]:
            return False
        for option in self._options(job, made.gpu_type):
            units = np.array(option.units)
            if (made.free >= units).all():
                if not self._take(job, made.gpu_type, is_slo=False):
                    return False
                made.free -= units
                reward = best_effort_micro(option.phi_milli, left_us, self.pool.slot_us)
                reward = REWARD_MICRO if self._is_profiler(job) else reward
                made.fillers[job.id] = JobLeases(job.id, NOW, option, reward, (0,))
                return True
        return False

    def _try_elsewhere(self, job: Job) -> None:
        """Give a job that found no room on its type a lease on another type that it accepts."""
        pool = self.pool
        home = pool.home(job)
        made = self.plans.get(home)
        is_given = made is not None and (job.id in made.fillers or self._begins(made, job.id))
        if job.id in pool.kept or is_given:
            return
        for name in pool.types(job):
            left_us = pool.remaining(job, name).left_us
            if name != home and self._fill_one(self.plans[name], job, left_us):
                return
