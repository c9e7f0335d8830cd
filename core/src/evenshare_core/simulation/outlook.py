"""Forecast of a pool's next hours: its queue simulated under a policy, with the figures.

The figures are those of a trace's run (`evenshare_core.simulation.figures`). The run stops at an
instant at which some jobs are still open. Leaving these out would favour a policy that finishes
short jobs. Instead:

| figure | of a job that is open at the end |
|---|---|
| JCT, queue, slowdown | counts up to the end, so the true average is at least the shown one |
| rho, and with it sharing loss | GPU-time received and deserved within the simulated hours |
| late | only if the fair reference, with the work left at the start, has ended by then |
| deadline | the value lost by the end; not counted if its first deadline is later |

Hours, utilisation, waste and preemptions cover only the simulated hours. JCT, queue and slowdown
start at the true submission, so they include earlier waiting.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from evenshare_core.simulation.books import Books, JobRecord, LeaseRecord
from evenshare_core.simulation.figures import LATE_S, Figures, figures_of
from evenshare_core.simulation.present import PresentState, Start, Work
from evenshare_core.simulation.reference import fair_reference
from evenshare_core.simulation.simulator import SimulationResult, run
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import ONE_MILLI, SECOND_US

POINTS = 48  # number of points of a run's curve
# state or end reason of a job or lease that is open when the run ends
OPEN = "open"


@dataclass(frozen=True, slots=True)
class Seen:
    """A job at the end of a run; times in us.

    `useful_us` is its work done within the simulated hours, `left_us` its work left at the start.
    """

    job: SimJob
    end_us: int | None  # None if it is open
    held_us: int  # time in all its leases, until the end
    useful_us: int
    left_us: int


@dataclass(slots=True)
class Outlook:
    """A run's results. `row` is the row of `manage.py simulate` plus counts of jobs by state."""

    row: dict[str, Any]
    course: list[dict[str, float]] = field(default_factory=list)
    tenants: list[dict[str, Any]] = field(default_factory=list)


def look_ahead(
    start: Start,
    rules: Rules,
    *,
    until_us: int,
    progress: Callable[[int], None] | None = None,
) -> Outlook:
    """Simulate the pool under `rules` up to `until_us` of pool time.

    `progress` is called with the current time after each round. If it raises an exception, the run
    ends.

    Raises:
        KeyError: a job of the snapshot has no work.
        InvariantViolation: the policy broke an invariant.
    """
    state = PresentState(start, rules)
    result = go_on(state, until_us=until_us, progress=progress)
    seen = seen_jobs(state, start.work, until_us)
    from_us = start.snapshot.at_us
    leases = leases_at(state, result, until_us)
    figures = span_figures(state.cluster, leases, seen, (from_us, until_us))
    return Outlook(
        _row(state, result, seen, figures, (from_us, until_us)),
        _course(state, result, (from_us, until_us)),
        _tenants(seen, (from_us, until_us)),
    )


def go_on(
    state: PresentState, *, until_us: int, progress: Callable[[int], None] | None = None
) -> SimulationResult:
    """Run a state up to `until_us`.

    Jobs and leases that end at this time are applied, but no round is run.
    """
    result = SimulationResult(state.books, 0, state.at_us)

    def tell(_: int) -> None:
        if progress is not None:
            progress(state.at_us)

    run(state, result, until_us=until_us - 1, progress=tell)
    state.advance(max(until_us, state.at_us))
    result.end_us = until_us
    result.stranded, result.open = tuple(state.runs), tuple(state.leases.values())
    return result


def seen_jobs(state: PresentState, work: Mapping[int, Work], until_us: int) -> list[Seen]:
    """Return the jobs of the start and the arrivals up to `until_us`, in order of their ids.

    A job without `work` arrived after the start.
    """
    ends = {row.job: row for row in state.books.jobs}
    held: dict[int, int] = {job: known.held_us for job, known in work.items()}
    for row in state.books.leases:
        held[row.job] = held.get(row.job, 0) + row.end_us - row.start_us
    for lease in state.leases.values():
        held[lease.job] = held.get(lease.job, 0) + until_us - lease.started_us
    seen = []
    for job_id, sim in sorted(state.sim_jobs.items()):
        over = ends.get(job_id)
        if over is None and job_id not in state.runs:
            continue  # the job arrives after the end
        left_us = work[job_id].left_us if job_id in work else sim.duration_us
        done_us = over.useful_us if over else _done_us(state, job_id, until_us)
        useful_us = left_us - (sim.duration_us - done_us)
        end_us = over.end_us if over else None
        seen.append(Seen(sim, end_us, held.get(job_id, 0), useful_us, left_us))
    return seen


def _done_us(state: PresentState, job_id: int, until_us: int) -> int:
    run = state.runs[job_id]
    if not run.lease:
        return run.done_us
    held_us = until_us - state.leases[run.lease].started_us - run.overhead_us
    return run.done_us + max(0, held_us) * run.speed_milli // ONE_MILLI


def leases_at(state: PresentState, result: SimulationResult, until_us: int) -> list[LeaseRecord]:
    """Return the leases of a run stopped at `until_us`; running leases end there."""
    held = [
        LeaseRecord(
            lease.id, lease.job, state.runs[lease.job].leases, lease.gpu_type,
            lease.placement, lease.started_us, until_us, OPEN, 0,
        )
        for lease in result.open
    ]  # fmt: skip # a table
    return [*result.books.leases, *held]


def span_figures(
    cluster: Cluster, leases: Iterable[LeaseRecord], seen: Sequence[Seen], span: tuple[int, int]
) -> Figures:
    """Return the figures of a span, as if all jobs and leases had started and ended in it."""
    from_us, until_us = span
    books, jobs = Books(), []
    for row in leases:
        books.leases.append(row._replace(start_us=max(row.start_us, from_us)))
    for one in seen:
        # At least 1 us, so that a job that received nothing has a rho, near 0.
        job = _restarted(one.job, from_us, max(1, one.useful_us))
        jobs.append(job)
        end_us = until_us if one.end_us is None else one.end_us
        books.jobs.append(JobRecord(one.job.id, OPEN, job.submitted_us, end_us, 0, one.useful_us))
    figures = figures_of(cluster, jobs, books, between_us=span)
    figures.late = _late(cluster, seen, span)
    figures.deadline_miss_rate = _missed(seen, until_us)
    return figures


def _restarted(job: SimJob, from_us: int, work_us: int) -> SimJob:
    return SimJob(
        job.id, job.tenant, job.gpus, max(from_us, job.submitted_us), work_us, job.gpu_types,
        job.weight, deadline_us=job.deadline_us,
    )  # fmt: skip # rows of what belongs together


def _late(cluster: Cluster, seen: Sequence[Seen], span: tuple[int, int]) -> float | None:
    """Return the share of jobs that end later than they would with only their tenant's quota."""
    from_us, until_us = span
    jobs = [_restarted(one.job, from_us, max(1, one.left_us)) for one in seen]
    if not jobs:
        return None
    reference = fair_reference(cluster, jobs)
    late = 0
    for one in seen:
        end_us = until_us if one.end_us is None else one.end_us
        late += end_us / SECOND_US > reference[one.job.id] + LATE_S
    return late / len(seen)


def _missed(seen: Sequence[Seen], until_us: int) -> float | None:
    due = [
        one
        for one in seen
        if one.job.deadline_us is not None
        and (one.end_us is not None or one.job.deadline_us <= until_us)
    ]
    if not due:
        return None
    ends = (until_us if one.end_us is None else one.end_us for one in due)
    return fmean(one.job.value_lost(end_us) for one, end_us in zip(due, ends, strict=True))


def _times(one: Seen, until_us: int) -> tuple[float, float, float]:
    """Return JCT and queue in seconds, and slowdown, of an open job up to the end of the run."""
    end_us = until_us if one.end_us is None else one.end_us
    jct_us = end_us - one.job.submitted_us
    return (
        jct_us / SECOND_US,
        (jct_us - one.held_us) / SECOND_US,
        jct_us / max(1, one.job.duration_us),
    )


def _row(
    state: PresentState,
    result: SimulationResult,
    seen: list[Seen],
    figures: Figures,
    span: tuple[int, int],
) -> dict[str, Any]:
    times = [_times(one, span[1]) for one in seen]
    jct_s, queue_s, slowdown = (
        fmean(row[index] for row in times) if times else None for index in range(3)
    )
    open_jobs = [one for one in seen if one.end_us is None]
    return {
        "policy": state.rules.policy,
        "options": dict(state.rules.options),
        "jobs": len(seen),
        "finished": len(seen) - len(open_jobs),
        "running": len(result.open),
        "waiting": len(open_jobs) - len(result.open),
        "avg_jct_s": jct_s,
        "avg_queue_s": queue_s,
        "avg_slowdown": slowdown,
        **figures.published(),
        "rounds": result.rounds,
        "sha256": result.books.sha256(),
    }


def _course(
    state: PresentState, result: SimulationResult, span: tuple[int, int]
) -> list[dict[str, float]]:
    """Return, for equal steps of the span, the average of held GPUs and the count of ended jobs."""
    from_us, until_us = span
    holds = [(max(row.start_us, from_us), row.end_us, row.job) for row in result.books.leases]
    holds += [(max(row.started_us, from_us), until_us, row.job) for row in result.open]
    held_gpu_us = [0.0] * POINTS
    step_us = max(1, -(-(until_us - from_us) // POINTS))
    for start_us, end_us, job in holds:
        gpus = state.sim_jobs[job].gpus
        for index in range((start_us - from_us) // step_us, POINTS):
            left_us, right_us = from_us + index * step_us, from_us + (index + 1) * step_us
            if left_us >= end_us:
                break
            held_gpu_us[index] += gpus * (min(end_us, right_us) - max(start_us, left_us))
    ends = sorted(row.end_us for row in result.books.jobs)
    course, over = [], 0
    for index in range(POINTS):
        right_us = min(until_us, from_us + (index + 1) * step_us)
        width_us = right_us - from_us - index * step_us
        if width_us <= 0:
            break
        while over < len(ends) and ends[over] <= right_us:
            over += 1
        course.append(
            {
                "after_s": (right_us - from_us) / SECOND_US,
                "gpus": held_gpu_us[index] / width_us,
                "finished": over,
            }
        )
    return course


def _tenants(seen: list[Seen], span: tuple[int, int]) -> list[dict[str, Any]]:
    """Return each tenant's number of jobs, number of ended jobs and average queue."""
    by_tenant: dict[int, list[Seen]] = {}
    for one in seen:
        by_tenant.setdefault(one.job.tenant, []).append(one)
    return [
        {
            "tenant": tenant,
            "jobs": len(rows),
            "finished": sum(one.end_us is not None for one in rows),
            "avg_queue_s": fmean(_times(one, span[1])[1] for one in rows),
        }
        for tenant, rows in sorted(by_tenant.items())
    ]
