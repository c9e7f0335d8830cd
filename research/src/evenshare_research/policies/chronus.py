"""Chronus: a program plans the leases of jobs with deadlines on whole cells.

Other jobs get the rest.

Source: W. Gao et al., "Chronus", SoCC 2021, as UniSched states it in II-C and compares with it in
VI-C. A program assigns leases to SLO jobs, on strictly consolidated GPUs (rounded up to the next
cell). Best-effort jobs get the remaining GPUs, the shortest remaining time first. Some GPUs are
reserved for profiling.

| paper | here | unit |
|---|---|---|
| lease | the pool's lease length, for all jobs | us |
| V_f, D_f | reward and instant of a deadline, `DeadlineStep` | |
| Q_f, L | `_steps`: leases to the deadline, leases of work | leases |
| A, rounded up | the cell of the next power of two, or whole nodes | cells |
| n, m of UniSched (3) | leases of work, leases to the deadline | leases |

The program runs in each round in which jobs with deadlines wait or have an expired lease. It
contains all these jobs. Running leases keep their GPUs, and their jobs are planned from the lease's
end. Jobs that have the plan's first lease are placed first, on their planned cells. All other jobs
follow by the least work left, including jobs that no plan completes in time. Jobs that the plan
starts later come last. A lease ends for another job only when it expires.

With `selector`, jobs may have all cells of UniSched's Selector, at their speed over several nodes.
`estimator` counts losses by interruptions, UniSched (3).

Departures, each with its test in tests/papers/test_chronus.py:

- No job is profiled, so no GPUs are reserved for it by default (`profiling_gpus`).
- A deadline counts by the last time at which the work can start, not by whole leases. A job that
  continues from now is in time even if its last lease would end after the deadline.
- A job is planned on one GPU type: its lease's type, or its claimed type. A gang larger than a node
  with fewer than 8 GPUs is not planned.
- Leases do not start together. In the plan, a running lease takes whole leases until it ends.
- Without `estimator`, the estimate counts as exact, because a snapshot has no other bound on the
  work.

All orders end in (submitted, id).
"""

import dataclasses
from collections.abc import Iterable
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from evenshare_core.deadlines.model import RewardStep, SelectorJob, SelectorProblem
from evenshare_core.deadlines.options import (
    NODE_GPUS,
    CellOption,
    all_options,
    free_cells,
    held_option,
    quadruples,
    two_speeds,
)
from evenshare_core.deadlines.picks import picks_now
from evenshare_core.deadlines.plans import SelectorPlan
from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import Decision, Solve
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import JobService, Snapshot
from evenshare_core.estimation.durations import expected_interruptions
from evenshare_core.formulations.selector import select
from evenshare_core.placement.consolidated import FreeCapacity
from evenshare_core.policies.options import SPREAD_TEXT, UNIT, Options, parse_options
from evenshare_core.policies.policy import Policy, Private, Traits
from evenshare_core.policies.shared.admission import Admission
from evenshare_core.policies.shared.deadline_jobs import steps_left
from evenshare_core.policies.shared.estimates import UNKNOWN_S, UnknownSeconds, left_us
from evenshare_core.policies.shared.ordered import (
    OrderedPicks,
    QueuedJob,
    QueueRule,
    by_arrival,
    order_of,
    pool_capacity,
    queued_jobs,
)
from evenshare_core.units import COUNT_MAX, ONE_MILLI, REWARD_MICRO

PLANNED, LEFT = "planned_lease", "left_over"
FIRST, OTHERS, LATER = range(3)


class ChronusOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    profiling_gpus: Annotated[
        int,
        Meta(
            ge=0,
            le=16,
            description="Number of GPUs of each type reserved for profiling, on the last nodes.",
            extra_json_schema={UNIT: "GPUs"},
        ),
    ] = 0
    estimator: Annotated[
        bool,
        Meta(description="Count the estimated loss of interruptions. Off: count only the work."),
    ] = False
    selector: Annotated[
        bool,
        Meta(
            description="A job with a deadline may use any cells, also on several nodes, at its"
            " speed there. Off: one block of GPUs of a node, or whole nodes."
        ),
    ] = False
    horizon_leases: Annotated[
        int,
        Meta(
            ge=1,
            le=1008,
            description="Number of leases planned ahead; for later deadlines only the work that"
            " must run before.",
            extra_json_schema={UNIT: "leases"},
        ),
    ] = 288
    unknown_s: UnknownSeconds = UNKNOWN_S
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False


class Chronus(Policy):
    name = "chronus"
    version = "2"  # version 2: OR-Tools solves the program
    earlier_versions = frozenset({"1"})  # solved by HiGHS
    title = "Leases planned for deadlines"
    promise = "Leases go to jobs that a plan ends in time; other jobs get the rest."
    suits = "Deadlines with leases of minutes; jobs need estimates."
    order_text = (
        "Jobs with deadlines and a planned lease now go first; then the other jobs, least"
        " remaining work first."
    )
    note_texts = MappingProxyType(
        {
            PLANNED: "A plan of leases up to the deadlines gives it the first one.",
            LEFT: "The plan for deadlines leaves these GPUs; of the jobs that fit, it had the"
            " least remaining work.",
        }
    )
    traits = Traits(needs_estimates=True, preempts=True)
    also_reads = frozenset({Private.DEADLINES, Private.ESTIMATES})
    options_type = ChronusOptions

    def model_text(self, options: Options) -> str:  # noqa: ARG002 - always the same
        return "Chronus: leases on whole cells with the largest reward of deadlines"

    def decide(self, snapshot: Snapshot) -> Decision:
        planned = LeasePlan(snapshot)
        picks = ChronusPicks(snapshot, planned)
        for candidate in sorted(queued_jobs(snapshot), key=planned.rule.order):
            picks.consider(candidate)
        return replace(picks.decision(snapshot), solve=planned.solve)

    def queue_order(self, snapshot: Snapshot) -> tuple[int, ...]:
        """Return jobs in the order of placement. Jobs that the plan starts later come last."""
        return order_of(snapshot, LeasePlan(snapshot).rule)


class LeasePlan:
    """The plan of a round. `placements`: by job, those of the leases that start now.

    `later`: jobs that the plan starts later. `kept`: GPUs reserved for profiling, by GPU type.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._options = parse_options(ChronusOptions, snapshot.options)
        self._snapshot, self._at_us = snapshot, snapshot.at_us
        self._is_former = snapshot.policy_version in Chronus.earlier_versions
        self._jobs = {job.id: job for job in snapshot.jobs}
        self._sums = {row.job: row for row in snapshot.service.jobs}
        self._estimates = {row.id: row for row in snapshot.estimates}
        self._kinds = {row.id: row.kind for row in snapshot.deadlines}
        self._left = steps_left(snapshot.deadlines, self._at_us)
        self.kept = self._kept_gpus()
        self.placements: dict[int, tuple[str, Placement]] = {}
        self.later: set[int] = set()
        self._solves: list[SelectorPlan] = []
        asked: dict[str, list[QueuedJob]] = {}
        admission = Admission.of(snapshot)
        for one in sorted(queued_jobs(snapshot), key=by_arrival):
            if one.job.id in self._left and admission.check(one.job, one.gpu_type) is None:
                asked.setdefault(one.gpu_type, []).append(one)
        for gpu_type, rows in sorted(asked.items()):
            self._plan(gpu_type, rows)

    @property
    def rule(self) -> QueueRule:
        return QueueRule(
            order=self._order,
            preempts=True,
            spread=self._options.spread,
            note=lambda one: PLANNED if one.job.id in self.placements else LEFT,
        )

    @property
    def solve(self) -> Solve | None:
        """Return the solver's result over all GPU types, or None if no plan was needed."""
        if not self._solves:
            return None
        reward = sum(plan.reward_micro for plan in self._solves)
        bound = sum(plan.bound_micro for plan in self._solves)
        points = reward / REWARD_MICRO
        solver = "selector" if self._is_former else "ortools"
        if reward == bound:
            return Solve(solver, "optimal", points)
        below = f"at most {(bound - reward) / bound:.2%} below the best plan"
        return Solve(solver, "feasible", points, below)

    def _order(self, one: QueuedJob) -> tuple[int, int, int, int]:
        job_id = one.job.id
        rank = FIRST if job_id in self.placements else LATER if job_id in self.later else OTHERS
        return (rank, self._remaining(one.job, one.sums), *by_arrival(one))

    def _remaining(self, job: Job, sums: JobService) -> int:
        return left_us(job, sums, self._at_us, self._options.unknown_s)

    def _plan(self, gpu_type: str, rows: list[QueuedJob]) -> None:
        jobs = [job for one in rows if (job := self._selector_job(one.job, one.lease)) is not None]
        if not jobs:
            return
        for lease in self._goes_on(gpu_type):
            known = self._jobs.get(lease.job)
            if lease.job in self._left and known is not None and lease.job in self._sums:
                later = self._selector_job(known, lease)
                jobs += [later] if later is not None else []
        free = self._free_gpus(gpu_type)
        cells = [free_cells(row.values()) for row in free]
        horizon = self._options.horizon_leases
        problem = SelectorProblem(jobs, cells, horizon=horizon, slots=1)
        plan = select(problem, former=self._is_former)
        self._solves.append(plan)
        held = {one.job.id: dict(one.lease.placement) for one in rows if one.lease is not None}
        placed = picks_now(problem, plan, free[0], held)
        for job_id, gpus in placed.gpus.items():
            self.placements[job_id] = (gpu_type, tuple(sorted(gpus.items())))
        self.later |= plan.jobs.keys() - placed.gpus.keys()

    def _selector_job(self, job: Job, lease: Lease | None) -> SelectorJob | None:
        """Return the job as the program's input, from the end of its running lease.

        Return None if it can meet no deadline, or if its work is done when the lease ends.
        """
        held_us = 0 if lease is None else max(0, self._until_us(lease) - self._at_us)
        remaining = self._remaining(job, self._sums[job.id]) - held_us
        spread, overhead_us = ONE_MILLI, 0
        estimate = self._estimates.get(job.id)
        if self._options.selector and estimate is not None:
            spread = estimate.spread_milli
        if self._options.estimator and estimate is not None:
            overhead_us = estimate.overhead_us
        ready = -(-held_us // self._snapshot.lease_us)
        steps = [
            dataclasses.replace(step, deadline=step.deadline + ready)
            for by_us, reward in self._left[job.id]
            if (step := self._step(by_us - self._at_us - held_us, reward, remaining, overhead_us))
        ]
        if not steps or remaining <= 0:
            return None
        ended = lease if not ready else None
        options = self._cell_options(job, ended, spread)
        return SelectorJob(job.id, self._kinds[job.id], options, tuple(steps), ready=ready)

    def _step(
        self, until_us: int, reward_micro: int, remaining: int, overhead_us: int
    ) -> RewardStep | None:
        """Return Q and L of a deadline in `until_us`, or None if the work does not end by then."""
        lease_us = self._snapshot.lease_us
        leases = -(-remaining // lease_us)
        until = until_us // lease_us
        if overhead_us and until >= leases > 0:
            remaining += round(expected_interruptions(leases, until) * overhead_us)
            leases = -(-remaining // lease_us)
        if until_us < remaining or not 1 <= leases <= COUNT_MAX:
            return None
        return RewardStep(reward_micro, (until_us - remaining) // lease_us + leases, leases)

    def _cell_options(
        self, job: Job, ended: Lease | None, spread_milli: int
    ) -> tuple[CellOption, ...]:
        """Return a job's options. `ended`: its expired lease, whose GPUs it may keep."""
        gpus = job.gpus
        if self._options.selector:
            options = list(all_options(gpus, two_speeds(gpus, spread_milli)))
        else:
            cells = quadruples(gpus)[0]
            options = [CellOption(cells, gpus, sum(cells) == 1, ONE_MILLI)]
        if ended is not None:
            is_whole = len(ended.placement) == 1 or gpus > NODE_GPUS
            if is_whole or self._options.selector:
                speed = ONE_MILLI if is_whole else spread_milli
                options.append(held_option(dict(ended.placement), speed))
        return tuple(options)

    def _goes_on(self, gpu_type: str) -> list[Lease]:
        return [
            lease
            for lease in self._snapshot.leases
            if lease.gpu_type == gpu_type and not lease.ends_by(self._at_us)
        ]

    def _until_us(self, lease: Lease) -> int:
        return max(lease.expires_us, lease.protected_until_us)

    def _free_gpus(self, gpu_type: str) -> list[dict[int, int]]:
        """Return the free GPUs by node in each lease from now, given the running leases."""
        lease_us = self._snapshot.lease_us
        kept = dict(self.kept.get(gpu_type, ()))
        base = {
            node.id: node.gpus - kept.get(node.id, 0)
            for node in self._snapshot.nodes
            if node.gpu_type == gpu_type
        }
        goes_on = [
            (lease, -(-(self._until_us(lease) - self._at_us) // lease_us))
            for lease in self._goes_on(gpu_type)
        ]
        free = []
        for number in range(max((leases for _, leases in goes_on), default=0) + 1):
            row = dict(base)
            for lease, leases in goes_on:
                for node, gpus in lease.placement if leases > number else ():
                    row[node] = row.get(node, 0) - gpus
            free.append({node: max(0, gpus) for node, gpus in row.items()})
        return free

    def _kept_gpus(self) -> dict[str, Placement]:
        """Return the GPUs reserved for profiling by type, on the last nodes."""
        kept: dict[str, list[tuple[int, int]]] = {}
        for node in sorted(self._snapshot.nodes, key=lambda row: -row.id):
            rows = kept.setdefault(node.gpu_type, [])
            gpus = min(node.gpus, self._options.profiling_gpus - _gpus_of(rows))
            if gpus > 0:
                rows.append((node.id, gpus))
        return {name: tuple(sorted(rows)) for name, rows in kept.items()}


def _gpus_of(rows: Iterable[tuple[int, int]]) -> int:
    return sum(gpus for _, gpus in rows)


class ChronusPicks(OrderedPicks):
    """The grants of the round so far. Planned jobs get their planned GPUs."""

    def __init__(self, snapshot: Snapshot, planned: LeasePlan) -> None:
        rule = planned.rule
        super().__init__(rule, pool_capacity(snapshot, rule), Admission.of(snapshot))
        self._planned = planned
        for gpu_type, placement in planned.kept.items():
            if placement:
                self.free_by_type[gpu_type].hold_back(placement)

    def may_renew(self, one: QueuedJob, lease: Lease) -> bool:
        """Return whether the job stays on its GPUs according to the plan."""
        _, placement = self._planned.placements.get(one.job.id, ("", lease.placement))
        return placement == lease.placement

    def place(self, one: QueuedJob, free_capacity: FreeCapacity) -> Placement | None:
        """Place a job on its planned GPUs.

        Without a plan, or if these GPUs are taken, place it where it fits.
        """
        gpu_type, placement = self._planned.placements.get(one.job.id, ("", ()))
        if gpu_type != one.gpu_type or not free_capacity.available.has(placement):
            return super().place(one, free_capacity)
        free_capacity.put(placement)
        return placement


POLICY = Chronus()
