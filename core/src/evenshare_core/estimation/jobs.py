"""Work of a job, estimated from measurements of its job type and from earlier runs.

| UniSched (1), (2) | here |
|---|---|
| N^iter | `JobClaims.iterations`, as declared, or `JobClaims.stop`, from a learning curve |
| T^iter | `iteration_time`: measured on this number of GPUs, otherwise by (2) |
| T^dur of recurring jobs | `TypeRecord.runs`: the work of earlier runs |
| t^sr | `SizeRecord.overhead_us` |

Work is in microseconds on the slowest GPU type, like `Job.estimate_us`. Fits are cached by the
averages that they use. Averages change only through `settle`, so that an estimate does not change
with every report.

Source: W. Gao et al., "UniSched", IEEE TC 2024, III-B; docs/estimation.md.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, isqrt
from typing import NamedTuple

from evenshare_core.domain.averages import RECENT, Average
from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.measured_speeds import (
    LEAST_REPORTS,
    MOST_SPREAD_MILLI,
    STILL_MILLI,
    IterationTime,
)
from evenshare_core.estimation.durations import history_estimate
from evenshare_core.estimation.speeds import MeasuredIteration, SpeedModel, fit_speeds
from evenshare_core.estimation.values import Estimate, least_sure
from evenshare_core.units import COUNT_MAX, HOUR_US, MICROSECOND_NS, ONE_MILLI

# The number of newest runs that are used, per job type and number of GPUs.
RUNS_MOST = 31
# Maximum work: policies multiply these numbers, and products must stay below 2^63.
MOST_US = COUNT_MAX * HOUR_US
NOTHING = Average()
_SOURCES = tuple(EstimateSource)


class PastRun(NamedTuple):
    """A successful run: its work, and the owner's declared work (None if not declared), in us."""

    work_us: int
    declared_us: int | None = None


class JobClaims(NamedTuple):
    """Declared values of a job: iterations (a cap if `has_metric`), and its work in us.

    `stop`: the number of iterations after which its metric is expected to meet the target
    (`evenshare_core.estimation.curves`); None if there is no such estimate yet.
    """

    iterations: int | None = None
    has_metric: bool = False
    declared_us: int | None = None
    stop: Estimate | None = None


@dataclass(frozen=True, slots=True)
class TypeRecord:
    """Measurements of a job type: `times` in nanoseconds, resume and suspend in microseconds.

    `speedups`: (GPU type, thousandths of the slowest). `runs`: by number of GPUs, the newest last.
    """

    speedups: tuple[tuple[str, int], ...]
    times: tuple[IterationTime, ...] = ()
    resume: Average = NOTHING
    suspend: Average = NOTHING
    runs: Mapping[int, tuple[PastRun, ...]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was measured and no run has ended."""
        return not self.times and not self.runs


class TimedIteration(NamedTuple):
    """Nanoseconds per iteration on the slowest GPU type, and the number of reports used for it."""

    time: Estimate
    reports: int


@dataclass(frozen=True, slots=True)
class SizeRecord:
    """Measurements of a job type's jobs on one number of GPUs.

    `iteration`: the time on one node; on several nodes only if one node was not measured.
    `spread_milli`: the speed on several nodes over the speed on one, in thousandths; 1000 if
    unknown.

    `history`: the estimate from `runs` earlier runs. `declared_error_milli`: the error of owners'
    estimates for this job type, None if unknown.
    """

    iteration: TimedIteration | None
    history: Estimate | None
    runs: int
    declared_error_milli: int | None
    overhead_us: int
    spread_milli: int

    @property
    def is_profiled(self) -> bool:
        """Whether the time of an iteration is known, so that no profiling run is needed."""
        return self.iteration is not None


class WorkEstimate(NamedTuple):
    """A job's total work in us, and the number of reports or runs used for it (0 if none)."""

    work: Estimate
    basis: int


def settle(used: Average, newest: Average) -> Average:
    """Return the average that estimates use from now on: the one in use, or the newest.

    The newest is used if it moved by more than 2 %, has twice as many reports, or has just reached
    enough reports. An average that was restarted is used only once it has enough reports.
    """
    if newest.reports == 0 or used.reports == 0:
        return newest if newest.reports else used
    if newest.reports < min(used.reports, LEAST_REPORTS):
        return used
    has_moved = abs(newest.mean - used.mean) * ONE_MILLI > STILL_MILLI * used.mean
    is_surer = used.reports < 2 * RECENT and newest.reports >= 2 * used.reports
    is_enough = used.reports < LEAST_REPORTS <= newest.reports
    return newest if has_moved or is_surer or is_enough else used


def size_record(record: TypeRecord, gpus: int, gpu_types: Collection[str] = ()) -> SizeRecord:
    """Return a job type's measurements for jobs on `gpus` GPUs of the types that they accept.

    Raises:
        ValueError: less than one GPU.
    """
    if gpus < 1:
        raise ValueError("gpus: must be at least 1")
    runs = record.runs.get(gpus, ())
    history = history_estimate([run.work_us for run in runs]) if runs else None
    together = _best(record, gpus, gpu_types, several_nodes=False)
    apart = _best(record, gpus, gpu_types, several_nodes=True) if gpus > 1 else None
    iteration = _surest([one for one in (together, apart) if one is not None])
    return SizeRecord(
        iteration,
        history,
        len(runs),
        _declared_error([run for size in sorted(record.runs) for run in record.runs[size]]),
        record.resume.mean + record.suspend.mean,
        _spread_milli(together, apart) if iteration is together else ONE_MILLI,
    )


def estimate_work(claims: JobClaims, size: SizeRecord | None) -> WorkEstimate | None:
    """Return a job's total work from the most certain source, or None if there is no source.

    The first available source is used: iterations times their time, the owner's estimate, earlier
    runs (which may have had another number of iterations), the cap. If a curve predicts the
    iterations, a source with a smaller error is preferred. The estimate of a job with iterations
    never exceeds its cap.
    """
    by_count = _by_iterations(claims, size)
    if by_count is not None and not claims.has_metric:
        return by_count
    other = _by_others(claims, size)
    if other is None or by_count is None:
        return other or by_count
    if by_count.work.source is EstimateSource.CAP:
        return by_count if by_count.work.amount < other.work.amount else other
    is_surer = other.work.error_milli < by_count.work.error_milli
    return other if is_surer and other.work.amount <= _most_us(claims, size) else by_count


def job_estimate(job: int, known: WorkEstimate, size: SizeRecord | None) -> JobEstimate:
    """Return a job's estimate as a snapshot stores it, in addition to `Job.estimate_us`."""
    source, error = known.work.source, known.work.error_milli
    if size is None:
        return JobEstimate(job, source, error, is_profiled=False)
    return JobEstimate(job, source, error, size.overhead_us, size.spread_milli, size.is_profiled)


def _by_iterations(claims: JobClaims, size: SizeRecord | None) -> WorkEstimate | None:
    if claims.iterations is None or size is None or size.iteration is None:
        return None
    time, reports = size.iteration
    count = _count(claims)
    if count.source is EstimateSource.CAP:
        # The job may stop anywhere below its cap, so the error is 100 %, as with too few points.
        return WorkEstimate(Estimate(_work_us(count, time), ONE_MILLI, EstimateSource.CAP), reports)
    # The squares of independent relative errors are added; the root of the sum is rounded up.
    squares = count.error_milli**2 + time.error_milli**2
    error = isqrt(squares - 1) + 1 if squares else 0
    source = least_sure((count.source, time.source))
    return WorkEstimate(Estimate(_work_us(count, time), error, source), reports)


def _count(claims: JobClaims) -> Estimate:
    """Return the number of iterations; this is the cap until the metric allows an estimate."""
    cap = claims.iterations or 1
    if not claims.has_metric:
        return Estimate(cap, 0, EstimateSource.MEASURED)
    if claims.stop is None or claims.stop.source is EstimateSource.CAP:
        return Estimate(cap, ONE_MILLI, EstimateSource.CAP)
    return Estimate(min(cap, claims.stop.amount), claims.stop.error_milli, claims.stop.source)


def _most_us(claims: JobClaims, size: SizeRecord | None) -> int:
    """Return the work at the job's cap on iterations, an upper bound on every estimate."""
    if claims.iterations is None or size is None or size.iteration is None:
        return MOST_US
    cap = Estimate(claims.iterations, ONE_MILLI, EstimateSource.CAP)
    return _work_us(cap, size.iteration.time)


def _work_us(count: Estimate, time: Estimate) -> int:
    return min(max(1, count.amount * time.amount // MICROSECOND_NS), MOST_US)


def _by_others(claims: JobClaims, size: SizeRecord | None) -> WorkEstimate | None:
    if claims.declared_us is not None:
        error = None if size is None else size.declared_error_milli
        error = ONE_MILLI if error is None else error
        return WorkEstimate(Estimate(claims.declared_us, error, EstimateSource.DECLARED), 0)
    if size is not None and size.history is not None:
        return WorkEstimate(size.history, size.runs)
    return None


def _surest(times: Sequence[TimedIteration]) -> TimedIteration | None:
    return min(times, key=lambda one: _SOURCES.index(one.time.source), default=None)


def _best(
    record: TypeRecord, gpus: int, gpu_types: Collection[str], *, several_nodes: bool
) -> TimedIteration | None:
    """Return the time per iteration in one shape, from the GPU type with the best evidence.

    Types measured on `gpus` GPUs come first, then types that the job accepts, then the smallest
    error.
    """
    ranked = []
    for kind, speed_milli in record.speedups:
        if speed_milli < 1:
            continue
        rows = tuple(row for row in record.times if row.gpu_type == kind)
        timed = iteration_time(rows, gpus, several_nodes=several_nodes)
        if timed is not None:
            of_slowest = timed.time.amount * speed_milli // ONE_MILLI
            time = Estimate(max(1, of_slowest), timed.time.error_milli, timed.time.source)
            rank = (_SOURCES.index(time.source), bool(gpu_types) and kind not in gpu_types)
            ranked.append((*rank, time.error_milli, kind, TimedIteration(time, timed.reports)))
    return min(ranked)[-1] if ranked else None


def iteration_time(
    rows: Iterable[IterationTime], gpus: int, *, several_nodes: bool
) -> TimedIteration | None:
    """Return nanoseconds per iteration from measurements on one GPU type, or None if unknown.

    If this number of GPUs was measured (on one node or on several, as asked), that average is used.
    Otherwise (2) is fitted to other numbers of GPUs.
    """
    given = tuple(sorted(row for row in rows if row.average.reports))
    shape = (gpus, several_nodes and gpus > 1)
    for row in given:
        if (row.gpus, row.several_nodes) == shape:
            error = max(_measured_error(row), _unsettled_error(row.average))
            time = Estimate(row.average.mean, error, EstimateSource.MEASURED)
            return TimedIteration(time, row.average.reports)
    model = _fitted(given)
    if model is None or (gpus > 1 and (model.t2_us if several_nodes else model.t1_us) is None):
        return None
    fitted = model.fitted(gpus, several_nodes=several_nodes)
    error = max([fitted.error_milli, *(_unsettled_error(row.average) for row in given)])
    time = Estimate(fitted.amount * MICROSECOND_NS, error, EstimateSource.FITTED)
    return TimedIteration(time, sum(row.average.reports for row in given))


def _measured_error(row: IterationTime) -> int:
    rows = _rows((row,))
    return ceil(ONE_MILLI * rows[0].relative_error)


def _unsettled_error(average: Average) -> int:
    """Return the minimum error of an average with few reports, or 0 if it has enough."""
    if average.reports >= LEAST_REPORTS:
        return 0
    return isqrt(MOST_SPREAD_MILLI**2 // max(1, average.reports))


def _rows(times: Sequence[IterationTime]) -> tuple[MeasuredIteration, ...]:
    """Convert measurements to the input of (2); an iteration takes at least one microsecond."""
    return tuple(
        MeasuredIteration.from_average(
            row.gpus,
            row.average._replace(mean=max(row.average.mean, MICROSECOND_NS)),
            several_nodes=row.several_nodes,
        )
        for row in times
    )


@lru_cache(maxsize=4096)
def _fitted(times: tuple[IterationTime, ...]) -> SpeedModel | None:
    """Fit (2) to one GPU type; None if computation and communication cannot be separated."""
    sizes = {row.gpus for row in times}
    if not sizes or (len(sizes) == 1 and 1 not in sizes):
        return None
    if not _tells_apart(times):
        return None
    return fit_speeds(_rows(times))


def _tells_apart(times: Sequence[IterationTime]) -> bool:
    """Return whether the measurements allow separating computation from communication."""
    if any(row.gpus == 1 for row in times):
        return True
    for several in (False, True):
        if len({row.gpus for row in times if row.several_nodes is several}) > 1:
            return True
    return False


def _spread_milli(together: TimedIteration | None, apart: TimedIteration | None) -> int:
    """Return the speed on several nodes over that on one, in thousandths, at most 1000."""
    if together is None or apart is None:
        return ONE_MILLI
    ratio = together.time.amount * ONE_MILLI // max(1, apart.time.amount)
    return min(ONE_MILLI, max(1, ratio))


def _declared_error(runs: Sequence[PastRun]) -> int | None:
    """Return the root mean square of work / declared - 1, in thousandths; None if unknown."""
    off = [
        (run.work_us - run.declared_us) * ONE_MILLI // run.declared_us
        for run in runs
        if run.declared_us
    ]
    return isqrt(sum(one * one for one in off) // len(off)) if off else None
