"""3Sigma: a program plans the starts of jobs with deadlines from distributions of run times.

Source: J. W. Park et al., "3Sigma", EuroSys 2018, 4, as UniSched compares with it in V-A. A mixed
integer program decides about SLO jobs, which may preempt best-effort jobs.

| paper | here | unit |
|---|---|---|
| T, run time | eight equally likely lengths around the estimate (`run_times`) | us |
| P(T > t given T > elapsed) | the lengths that a job did not outlive (`remaining_times`) | us |
| plan-ahead window | `window_slots` slots of `slot_s` | |
| U(t) | the reward of the deadline by which it ends | millionths of a point |
| E[U] of a start in a slot | the mean of U(start + T) | |
| expected use of resources | GPUs x P(it runs in the slot) | GPUs / 8 |
| program | `evenshare_research.formulations.start_slots` | |

In each round, the expected use of running SLO jobs is subtracted from each slot. The GPUs of
best-effort jobs are subtracted until their leases end. Waiting SLO jobs have an option to start in
each slot on each GPU type. Jobs planned for the first slot are placed first. Then come running
best-effort jobs, then waiting best-effort jobs by the least work left. Jobs planned for later slots
wait. SLO jobs are always renewed. Best-effort jobs are renewed if no SLO job took their GPUs.

Of starts with equal reward, the earliest is preferred: each slot by which a start is earlier adds a
thousandth of a point.

Departures, each with its test in tests/papers/test_three_sigma.py:

- A cycle is a round of the pool; UniSched sets 60 s.
- The distribution is the estimate with its standard error, not a history by features of jobs. If
  the estimate has no error, `error` is used. A job without an estimate is assumed to need
  `unknown_s`.
- Best-effort jobs are preempted only when their leases end, and are not in the program, as in
  UniSched.
- A job that can meet no deadline with any of its possible lengths is a best-effort job. In
  3Sigma, the utility of such a job falls slowly after its deadline.
- With more than `exact_jobs` waiting jobs, the better of two greedy plans is used: by least
  laxity and by reward per use. The round reports how far this plan may be from the optimum.
- Slots count GPUs, not nodes: a job that finds no node at its start waits for the next round.

All orders end in (submitted, id).
"""

from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.decision import Decision, Solve
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import JobService, Snapshot
from evenshare_core.fairness.gpu_time import job_received
from evenshare_core.policies.options import SPREAD_TEXT, UNIT, Options, parse_options
from evenshare_core.policies.policy import Policy, Private, Traits
from evenshare_core.policies.shared.admission import Admission
from evenshare_core.policies.shared.deadline_jobs import Steps, laxity_us, steps_left
from evenshare_core.policies.shared.estimates import (
    UNKNOWN_S,
    UnknownSeconds,
    left_us,
    whole_us,
)
from evenshare_core.policies.shared.ordered import (
    QueuedJob,
    QueueRule,
    by_arrival,
    by_start,
    decide_in_order,
    order_of,
    queued_jobs,
)
from evenshare_core.units import ONE_MILLI, REWARD_MICRO, SECOND_US
from evenshare_research.formulations.start_slots import Slots, StartJob, StartPlan, plan_starts
from evenshare_research.policies.runtimes import PARTS, remaining_times, run_times

PLANNED, BEST_EFFORT = "planned_start", "best_effort"
STARTS, RUNS_ON, WAITS, LATER = range(4)  # ranks in the order of placement
# additional reward for each slot by which a start is earlier
EARLIER_MICRO = REWARD_MICRO // ONE_MILLI
LONGEST_US = 1 << 56  # 2,284 years: the limit of run times


class ThreeSigmaOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    slot_s: Annotated[
        int,
        Meta(ge=60, le=86_400, description="Length of a slot of the plan, in seconds."),
    ] = 600
    window_slots: Annotated[
        int,
        Meta(ge=1, le=96, description="Number of slots planned ahead."),
    ] = 12
    error: Annotated[
        float,
        Meta(
            ge=0,
            le=2,
            description="Assumed standard error of estimates without one, as a fraction of each.",
        ),
    ] = 0.3
    exact_jobs: Annotated[
        int,
        Meta(
            ge=0,
            le=200,
            description="The best plan is searched for up to this number of queued jobs with"
            " deadlines; for more jobs, a heuristic is used.",
            extra_json_schema={UNIT: "jobs"},
        ),
    ] = 16
    unknown_s: UnknownSeconds = UNKNOWN_S
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False


class ThreeSigma(Policy):
    name = "three_sigma"
    version = "2"  # version 2: OR-Tools solves the program
    earlier_versions = frozenset({"1"})  # solved by HiGHS
    title = "Starts planned over distributions"
    promise = (
        "Jobs with deadlines start where the expected reward is highest; other jobs make way as"
        " their leases end."
    )
    suits = "Deadlines with estimates whose errors are known."
    order_text = (
        "Jobs with deadlines that a plan starts now go first; then running jobs, then jobs with"
        " the least remaining work."
    )
    note_texts = MappingProxyType(
        {
            PLANNED: "A plan over the next hours lets it start now, for the most expected reward.",
            BEST_EFFORT: "No job with a deadline is planned on these GPUs now.",
        }
    )
    traits = Traits(needs_estimates=True, preempts=True)
    also_reads = frozenset({Private.DEADLINES, Private.ESTIMATES})
    options_type = ThreeSigmaOptions

    def model_text(self, options: Options) -> str:  # noqa: ARG002 - always the same
        return "3Sigma: starts with the largest expected reward"

    def decide(self, snapshot: Snapshot) -> Decision:
        planned = _PlannedRound(snapshot)
        return replace(decide_in_order(snapshot, planned.rule), solve=planned.solve)

    def queue_order(self, snapshot: Snapshot) -> tuple[int, ...]:
        """Return jobs in the order of placement. Jobs that are planned for later come last."""
        return order_of(snapshot, _PlannedRound(snapshot).rule)


class _PlannedRound:
    """The plan of a round, and its order of the jobs."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._options = parse_options(ThreeSigmaOptions, snapshot.options)
        self._snapshot, self._at_us = snapshot, snapshot.at_us
        self._slots = self._options.slot_s * SECOND_US * np.arange(self._options.window_slots)
        self._capacity = capacity_by_type(snapshot.nodes)
        self._sums = {row.job: row for row in snapshot.service.jobs}
        self._errors = {row.id: row.error_milli for row in snapshot.estimates}
        self._left = steps_left(snapshot.deadlines, self._at_us)
        asked = [row for row in queued_jobs(snapshot) if row.job.id in self._left]
        waiting = sorted([row for row in asked if row.lease is None], key=self._by_laxity)
        admission = Admission.of(snapshot)
        options = [self._options_of(row, admission) for row in waiting]
        self._places = {job.id: place for place, job in enumerate(options)}
        self._useful = {job.id for job in options if job.utilities.max(initial=0) > 0}
        useful = [job for job in options if job.id in self._useful]
        self._plan = StartPlan({}, 0, 0)
        self.solve: Solve | None = None
        if useful:
            exact = self._options.exact_jobs
            former = snapshot.policy_version in ThreeSigma.earlier_versions
            self._plan = plan_starts(useful, self._free(), exact_jobs=exact, former=former)
            self.solve = _solve_of(self._plan, "start_slots" if former else "ortools")

    @property
    def rule(self) -> QueueRule:
        """Return the order of this round. It admits no job that is planned for later."""
        return QueueRule(
            order=self._order,
            preempts=True,
            spread=self._options.spread,
            admits=lambda one: (
                self._rank(one.job, one.lease) != LATER
                and self._plan.starts.get(one.job.id, (one.gpu_type, 0))[0] == one.gpu_type
            ),
            note=lambda one: PLANNED if self._is_slo(one) else BEST_EFFORT,
        )

    def _is_slo(self, one: QueuedJob) -> bool:
        return self._rank(one.job, one.lease) == STARTS

    def _rank(self, job: Job, lease: Lease | None) -> int:
        if job.id in self._left and lease is not None:
            return STARTS
        if lease is not None:
            return RUNS_ON
        if job.id not in self._useful:
            return WAITS
        return STARTS if self._plan.starts.get(job.id, ("", 1))[1] == 0 else LATER

    def _order(self, one: QueuedJob) -> tuple[Any, ...]:
        rank = self._rank(one.job, one.lease)
        if one.lease is not None:
            return (rank, 0, *by_start(one), *by_arrival(one))
        place = self._places.get(one.job.id, 0) if rank != WAITS else self._remaining(one)
        return (rank, 1, place, 0, *by_arrival(one))

    def _by_laxity(self, one: QueuedJob) -> tuple[int, int, int]:
        steps = self._left[one.job.id]
        return (laxity_us(steps, self._at_us, self._remaining(one)), *by_arrival(one))

    def _remaining(self, one: QueuedJob) -> int:
        return left_us(one.job, one.sums, self._at_us, self._options.unknown_s)

    def _lengths_left(self, job: Job, sums: JobService) -> Slots:
        whole = whole_us(job, self._options.unknown_s * SECOND_US)
        error = self._errors.get(job.id, round(self._options.error * ONE_MILLI))
        ran_us = job_received(sums, self._at_us) // job.gpus
        left = remaining_times(run_times(whole, error), ran_us)
        return np.array([min(length, LONGEST_US) for length in left], dtype=np.int64)

    def _options_of(self, one: QueuedJob, admission: Admission) -> StartJob:
        """Return the expected reward of a start in each slot, and the GPU use from the start on."""
        lengths = self._lengths_left(one.job, one.sums)
        steps = self._left[one.job.id]
        types = tuple(
            name
            for name in one.gpu_types
            if name in self._capacity
            and admission.check(one.job, name) is None
            and one.job.gpus <= self._capacity[name]
        )
        utilities = self._utilities(lengths, steps) if types else np.zeros_like(self._slots)
        return StartJob(one.job.id, types, self._uses(one.job.gpus, lengths), utilities)

    def _utilities(self, lengths: Slots, steps: Steps) -> Slots:
        """Return E[U] of a start in each slot, in millionths of a point times `PARTS`."""
        by_us = np.array([step.by_us for step in steps], dtype=np.int64)
        rewards = np.array([*(step.reward_micro for step in steps), 0], dtype=np.int64)
        ends = self._at_us + self._slots[:, None] + lengths[None, :]
        expected = rewards[np.searchsorted(by_us, ends)].sum(axis=1) * PARTS // len(lengths)
        earlier = PARTS * EARLIER_MICRO * np.arange(len(self._slots), 0, -1)
        result: Slots = np.where(expected > 0, expected + earlier, 0)
        return result

    def _uses(self, gpus: int, lengths: Slots) -> Slots:
        """Return the expected GPUs in each slot from the start on, times `PARTS`, rounded up."""
        runs = (lengths[None, :] > self._slots[:, None]).sum(axis=1)
        uses: Slots = -(-gpus * runs * PARTS // len(lengths))
        return uses

    def _free(self) -> dict[str, Slots]:
        """Return the GPUs by type and slot that the expected use leaves free, times `PARTS`."""
        jobs = {job.id: job for job in self._snapshot.jobs}
        free = {
            name: np.full(len(self._slots), gpus * PARTS, dtype=np.int64)
            for name, gpus in self._capacity.items()
        }
        for lease in self._snapshot.leases:
            if lease.gpu_type not in free:
                continue
            job, sums = jobs.get(lease.job), self._sums.get(lease.job)
            if lease.job in self._left and job is not None and sums is not None:
                free[lease.gpu_type] -= self._uses(lease.gpus, self._lengths_left(job, sums))
            else:
                until_us = max(lease.expires_us, lease.protected_until_us)
                free[lease.gpu_type][self._at_us + self._slots < until_us] -= lease.gpus * PARTS
        return {name: np.maximum(row, 0) for name, row in free.items()}


def _solve_of(plan: StartPlan, solver: str) -> Solve:
    """Return the solver's result of a plan. Its utility is in points."""
    points = plan.utility / (PARTS * REWARD_MICRO)
    if not plan.limit:
        return Solve(solver, "optimal", points)
    below = (plan.bound - plan.utility) / plan.bound
    below_text = f"at most {below:.2%} below the best plan: {plan.limit}"
    return Solve(solver, "feasible", points, below_text)


POLICY = ThreeSigma()
