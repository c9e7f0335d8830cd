"""Start estimates of queued jobs, from several simulations of a pool's next hours.

Each run continues the pool from its state under its own policy. It draws the unknown values:
durations from jobs that ended, and arrivals from the pool's recent past. A job's p50 and p90 are
quantiles of its starts over the runs.

For n runs, the quantiles are taken over n + 1 values: if the draws were right, an actual start
would be below p90 nine times out of ten. The draws are inexact, so both quantiles are corrected by
the outcomes of past estimates (`evenshare_core.simulation.start_correction`).

| drawn | from |
|---|---|
| work of a job with an estimate | estimate x (work / estimate) of past jobs that had an estimate |
| work of a job without an estimate | work of past jobs of its tenant, else of the pool |
| ... if the job has run longer than all of them | a draw; its median is the time that it has run |
| arrivals | the recent past in a cycle from a random instant, with its utilities |

The caller passes the random number generator. Nodes, quotas and credit stay unchanged; no job is
cancelled.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from math import ceil
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from evenshare_core.domain.cluster import Resources, capacity_by_type, fits_pool
from evenshare_core.domain.deadlines import Deadline
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.utilities import Utility
from evenshare_core.policies.shared.admission import Admission
from evenshare_core.policies.shared.backoffs import jobs_backing_off
from evenshare_core.simulation.deadline_jobs import later
from evenshare_core.simulation.present import PresentState, Start, so_far_us
from evenshare_core.simulation.simulator import SimulationResult, run
from evenshare_core.simulation.start_correction import Correction
from evenshare_core.simulation.workloads import SimJob
from evenshare_core.units import ONE_MILLI, SECOND_US

RUNS = 19  # with n + 1 = 20, the 10th start is p50 and the 18th is p90
LEAST_RUNS = 9  # with fewer runs, p90 would be above all starts
LEAST_ENDED = 10  # ended jobs needed before their durations are used for other jobs
LEAST_LONGER = 3  # ended jobs needed that took longer than a job has run so far
ARRIVALS_MOST = 20_000  # the most arrivals in one run
LONGEST = 0.95  # the highest draw: the time left is 19 times the time so far
NO_RESOURCES = Resources(0)
NONE = Correction()


class NoEstimate(StrEnum):
    """The reason why a job's start cannot be estimated. Names are part of the API."""

    NEVER_FITS = "never_fits"  # it needs more GPUs than the pool has
    BACKING_OFF = "backing_off"  # its process was lost, and may be lost again
    TOO_LITTLE_KNOWN = "too_little_known"  # too few jobs have ended to know how long jobs take
    TOO_MUCH_WORK = "too_much_work"  # the runs were stopped before it started in half of them
    PRICE_ABOVE_MAX = "price_above_max"  # as `BEYOND`, and the job's maximum price blocks it now
    BEYOND = "beyond"  # in half of the runs it had not started when the run ended
    REFUTED = "refuted"  # p90 has passed and the job still waits; set when the estimate is read


class EndedJob(NamedTuple):
    """A job that finished its work; `work_us` is in us on a GPU type of speed 1."""

    tenant: int
    work_us: int
    estimate_us: int | None = None


@dataclass(frozen=True, slots=True)
class History:
    """A pool's past: ended jobs, and the arrivals of the last `span_us`, oldest first.

    By job id, `resources` has the CPUs and memory, `utilities` the values and `deadlines` the
    deadlines of jobs that state them.
    """

    ended: tuple[EndedJob, ...]
    arrivals: tuple[Job, ...] = ()
    span_us: int = 1
    resources: Mapping[int, Resources] = field(default_factory=dict)
    utilities: Mapping[int, Utility] = field(default_factory=dict)
    deadlines: Mapping[int, Deadline] = field(default_factory=dict)


class EstimatedStart(NamedTuple):
    """A queued job's estimate.

    If `p50_us` is None, `reason` is set. If only `p90_us` is None, the job did not start in more
    than one run out of ten. `raw_p50_us` and `raw_p90_us` are uncorrected.
    """

    p50_us: int | None
    p90_us: int | None = None
    raw_p50_us: int | None = None
    raw_p90_us: int | None = None
    reason: NoEstimate | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """Estimates of queued jobs, by job id. `until_us` is the time that all runs reached."""

    at_us: int
    until_us: int
    runs: int
    correction: Correction
    arrivals: float  # average number of arrivals per run
    starts: Mapping[int, EstimatedStart]


class Survival:
    """A survival curve, from the durations of ended items and the durations so far of open items.

    Without the open items, short durations would be over-represented. Source: Kaplan and Meier,
    1958.
    """

    def __init__(self, ended: Sequence[int], still: Sequence[int]) -> None:
        self._totals = sorted(ended)
        still = sorted(still)
        left, index, share = len(self._totals) + len(still), 0, 1.0
        self._losses: list[float] = []  # by total: minus the share of items that last longer
        for total in self._totals:
            while index < len(still) and still[index] < total:
                index, left = index + 1, left - 1
            share *= 1 - 1 / left
            left -= 1
            self._losses.append(-share)

    def draw_left(self, done: int, rng: Random, *, least: int) -> int:
        """Draw the remaining duration of an item that has lasted `done`.

        The total duration is drawn from the totals longer than `done`. If fewer than `least` totals
        are longer, or the draw exceeds them all, the total is s / (1 - u). Here s is the larger of
        `done` and the longest total, and u is uniform in [0, 1) and cut at `LONGEST`.
        """
        first, drawn = bisect_right(self._totals, done), rng.random()
        if len(self._totals) - first >= least:
            share = -self._losses[first - 1] if first else 1.0
            index = bisect_left(self._losses, -drawn * share, first)
            if index < len(self._totals):
                return self._totals[index] - done
            drawn = rng.random()
        sofar = max(done, self._totals[-1] if self._totals else 0)
        return int(sofar / (1 - min(LONGEST, drawn))) - done


class Durations:
    """Random draws of the remaining work of jobs; `still` has open jobs with their work so far."""

    def __init__(self, ended: Sequence[EndedJob], still: Sequence[EndedJob], rng: Random) -> None:
        self._rng = rng
        self._known = len(ended) >= LEAST_ENDED
        self._pool = _survival(ended, still)
        by_tenant: dict[int, list[EndedJob]] = {}
        for row in ended:
            by_tenant.setdefault(row.tenant, []).append(row)
        self._tenants = {
            tenant: _survival(rows, [row for row in still if row.tenant == tenant])
            for tenant, rows in by_tenant.items()
            if len(rows) >= LEAST_ENDED
        }
        ratios = _ratios(ended)
        self._ratios: Survival | None = None
        if len(ratios) >= LEAST_ENDED:
            self._ratios = Survival(ratios, _ratios(still))

    def knows(self, job: Job) -> bool:
        """Return whether the job has an estimate, or enough jobs have ended."""
        return job.estimate_us is not None or self._known

    def left_us(self, job: Job, done_us: int) -> int:
        """Draw the remaining work, in us, of a job that `knows` accepts."""
        if job.estimate_us is None:
            past = self._tenants.get(job.tenant, self._pool)
            return max(SECOND_US, past.draw_left(done_us, self._rng, least=LEAST_LONGER))
        ratios = self._ratios or EXACT
        done_milli = done_us * ONE_MILLI // max(1, job.estimate_us)
        left_milli = ratios.draw_left(done_milli, self._rng, least=1)
        return max(SECOND_US, left_milli * job.estimate_us // ONE_MILLI)


EXACT = Survival([ONE_MILLI], [])  # without past estimates, an estimate is taken as exact


def _survival(ended: Sequence[EndedJob], still: Sequence[EndedJob]) -> Survival:
    return Survival([row.work_us for row in ended], [row.work_us for row in still])


def _ratios(rows: Sequence[EndedJob]) -> list[int]:
    return [row.work_us * ONE_MILLI // row.estimate_us for row in rows if row.estimate_us]


class Futures:
    """Random futures of a pool: the remaining work of its jobs, and arrivals."""

    def __init__(self, start: Start, history: History, rng: Random) -> None:
        """Prepare the draws, which replace the remaining work in `start.work`.

        `knows_all` is whether the durations of all jobs in the snapshot can be drawn.
        `knows_arrivals` is whether arrivals and their durations can be drawn.
        """
        self._start, self._history, self._rng = start, history, rng
        self._done = done = _done(start)
        jobs = start.snapshot.jobs
        still = [
            EndedJob(job.tenant, done[job.id], job.estimate_us) for job in jobs if done[job.id]
        ]
        self._durations = Durations(history.ended, still, rng)
        knows = self._durations.knows
        self.knows_all = all(map(knows, jobs))
        # Without this condition, a pool without history would seem to have no arrivals.
        past = history.arrivals
        self.knows_arrivals = len(history.ended) >= LEAST_ENDED or (
            bool(past) and all(map(knows, past))
        )

    def draw(self, until_us: int) -> Start:
        """Draw a future with arrivals up to `until_us`; requires `knows_all`."""
        start, durations = self._start, self._durations
        work = {
            job.id: start.work[job.id]._replace(left_us=durations.left_us(job, self._done[job.id]))
            for job in start.snapshot.jobs
        }
        coming = _arrivals(start.snapshot, self._history, durations, until_us, self._rng)
        return Start(start.snapshot, work, coming)


def estimate_starts(
    start: Start,
    history: History,
    *,
    until_us: int,
    rng: Random,
    correction: Correction = NONE,
    runs: int = RUNS,
    stop: Callable[[int], bool] = lambda _: False,
    only: Collection[int] | None = None,
) -> Forecast:
    """Estimate the starts of a snapshot's queued jobs, from `runs` runs up to `until_us`.

    Draws replace the remaining work in `start.work`. `stop` is called before a run and after each
    of its rounds, with the number of the run, from 0. If `stop` returns True, the run stops there.
    `only` restricts the estimated jobs.

    Raises:
        KeyError: a job of the snapshot has no work.
        InvariantViolation: the policy broke an invariant.
    """
    snapshot = start.snapshot
    reasons = _without_estimate(snapshot)
    futures = Futures(start, history, rng)
    waiting = _waiting(snapshot)
    if not futures.knows_all:
        reasons = {job: reasons.get(job, NoEstimate.TOO_LITTLE_KNOWN) for job in waiting}
    wanted = waiting - set(reasons)
    if only is not None:
        wanted &= set(only)
    drawn: list[dict[int, int]] = []
    reached, arrivals, begun = until_us, 0, 0
    for number in range(runs if wanted else 0):
        # In a large pool, the first round of a run may take longer than the time left for it.
        if stop(number):
            drawn.append({})
            reached = snapshot.at_us
            continue
        begun += 1
        again = futures.draw(until_us)
        starts, came_us = _starts(again, wanted, until_us, partial(stop, number))
        drawn.append(starts)
        reached, arrivals = min(reached, came_us), arrivals + len(again.arrivals)
    estimates = {job: EstimatedStart(None, reason=reason) for job, reason in reasons.items()}
    later = NoEstimate.BEYOND if reached == until_us else NoEstimate.TOO_MUCH_WORK
    priced_out = _priced_out(snapshot, wanted)
    for job in sorted(wanted):
        instants = sorted(starts[job] for starts in drawn if job in starts)
        why = NoEstimate.PRICE_ABOVE_MAX if job in priced_out else later
        estimates[job] = _estimate(instants, len(drawn), snapshot, correction, why)
    mean = arrivals / max(1, begun)
    return Forecast(snapshot.at_us, reached, len(drawn), correction, mean, estimates)


def _waiting(snapshot: Snapshot) -> set[int]:
    return {job.id for job in snapshot.jobs} - {lease.job for lease in snapshot.leases}


def _without_estimate(snapshot: Snapshot) -> dict[int, NoEstimate]:
    """Return the queued jobs whose start cannot be estimated from runs, with the reasons."""
    reasons = dict.fromkeys(jobs_backing_off(snapshot), NoEstimate.BACKING_OFF)
    capacity, waiting = capacity_by_type(snapshot.nodes), _waiting(snapshot)
    for job in snapshot.jobs:
        if job.id in waiting and not fits_pool(job.gpus, job.gpu_types, capacity):
            reasons[job.id] = NoEstimate.NEVER_FITS
    return reasons


def _priced_out(snapshot: Snapshot, wanted: Collection[int]) -> set[int]:
    """Return the jobs whose maximum price blocks them on every type with enough GPUs."""
    capacity, admission = capacity_by_type(snapshot.nodes), Admission.of(snapshot)
    blocked: set[int] = set()
    for job in snapshot.jobs:
        if job.id not in wanted or job.max_price_micro is None:
            continue
        types = [name for name in job.gpu_types or capacity if capacity.get(name, 0) >= job.gpus]
        refusals = [admission.check(job, name) for name in types]
        if all(row is not None and row.reason is Reason.PRICE_ABOVE_MAX for row in refusals):
            blocked.add(job.id)
    return blocked


def _done(start: Start) -> dict[int, int]:
    """Return the work that each job has done, including its current lease."""
    snapshot, cluster = start.snapshot, start.cluster
    leases = {lease.job: lease for lease in snapshot.leases}
    done: dict[int, int] = {}
    for job in snapshot.jobs:
        known, lease = start.work[job.id], leases.get(job.id)
        speed = cluster.speed_milli(job.profile, lease.gpu_type) if lease else ONE_MILLI
        done[job.id] = known.done_us + so_far_us(lease, known, speed, snapshot.at_us)
    return done


def _arrivals(
    snapshot: Snapshot, history: History, durations: Durations, until_us: int, rng: Random
) -> tuple[SimJob, ...]:
    tenants = {row.id for row in snapshot.tenants}
    profiles = {0, *(row.id for row in snapshot.profiles)}
    past = [job for job in history.arrivals if job.tenant in tenants and durations.knows(job)]
    if not past:
        return ()
    span_us, at_us = history.span_us, snapshot.at_us
    shift_us = rng.randrange(span_us)
    # The delay of each arrival after the start, in the first cycle.
    waits = sorted(
        ((job.submitted_us - at_us + 2 * span_us - shift_us) % span_us, job.id, job) for job in past
    )
    first_id = max((job.id for job in snapshot.jobs), default=0) + 1
    arrivals: list[SimJob] = []
    round_us = 0
    while len(arrivals) < ARRIVALS_MOST and at_us + round_us < until_us:
        for wait_us, _, job in waits:
            submitted_us = at_us + round_us + wait_us + 1
            if submitted_us > until_us or len(arrivals) == ARRIVALS_MOST:
                break
            needs = history.resources.get(job.id, NO_RESOURCES)
            said, new_id = history.utilities.get(job.id), first_id + len(arrivals)
            values = later(history.deadlines.get(job.id), submitted_us - job.submitted_us)
            arrivals.append(
                SimJob(
                    new_id, job.tenant, job.gpus, submitted_us,
                    durations.left_us(job, 0), job.gpu_types, job.weight, job.max_price_micro,
                    estimate_us=job.estimate_us,
                    profile=job.profile if job.profile in profiles else 0,
                    cpus=needs.cpus, memory_mb=needs.memory_mb,
                    utility=None if said is None else replace(said, id=new_id),
                    deadline_us=values[0][0] if values else None, values=values,
                )
            )  # fmt: skip # rows of what belongs together
        round_us += span_us
    return tuple(arrivals)


class EnoughError(Exception):
    """Ends a run that needs no more rounds."""


def _starts(
    start: Start, wanted: Collection[int], until_us: int, stop: Callable[[], bool]
) -> tuple[dict[int, int], int]:
    """Return the starts of the wanted jobs in a run, and the time that the run reached."""
    state = PresentState(start)
    result = SimulationResult(state.books, 0, state.at_us)
    starts: dict[int, int] = {}
    seen = state.next_lease
    is_cut = False

    def look(_: int) -> None:
        nonlocal seen, is_cut
        for lease_id in range(seen, state.next_lease):
            lease = state.leases[lease_id]
            if lease.job in wanted:
                starts.setdefault(lease.job, lease.started_us)
        seen = state.next_lease
        is_cut = len(starts) < len(wanted) and stop()
        if is_cut or len(starts) == len(wanted):
            raise EnoughError

    with suppress(EnoughError):
        run(state, result, until_us=until_us, progress=look)
    return starts, state.at_us if is_cut else until_us


def _estimate(
    instants: list[int], runs: int, snapshot: Snapshot, correction: Correction, later: NoEstimate
) -> EstimatedStart:
    """Return the quantiles of sorted starts; a run without a start counts as a later start."""
    if runs < LEAST_RUNS:
        return EstimatedStart(None, reason=NoEstimate.TOO_MUCH_WORK)
    first, last = ceil(0.5 * (runs + 1)), ceil(0.9 * (runs + 1))
    if len(instants) < first:
        return EstimatedStart(None, reason=later)
    at_us, raw_p50_us = snapshot.at_us, instants[first - 1]
    raw_p90_us = instants[last - 1] if len(instants) >= last else None
    p50_us, p90_us = correction.corrected(
        raw_p50_us - at_us, None if raw_p90_us is None else raw_p90_us - at_us
    )
    return EstimatedStart(
        at_us + p50_us, None if p90_us is None else at_us + p90_us, raw_p50_us, raw_p90_us
    )
