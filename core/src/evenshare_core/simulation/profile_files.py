"""Profiles as a CSV file: speeds of job types by GPU type and over nodes, and overheads.

The file has one row per model and GPU type. A row without a type holds for all types.

| column | meaning |
|---|---|
| model | the job type, as in the trace's column of that name |
| tenant | its tenant; empty: all tenants that have no model of that name |
| gpu_type | the measured GPU type |
| iteration_s | T_comp: seconds of an iteration on one GPU |
| t1_s, t2_s | seconds that each further GPU adds, on one node (T1) and over several (T2) |
| speed | instead of these: a multiple of the speed on the slowest type |
| priority | divides its tenant's weight among its job types |
| cold_s, checkpoint_s | lost at a resume, and at the end of a lease |

An iteration of n GPUs takes T_comp + (n - 1) T1 on one node, with T2 in place of T1 over several.
Speeds and durations are relative to the slowest type of the file. Types that the file does not name
cannot run the model. Source: UniSched (2); OEF 4.1 for speedups.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from evenshare_core.csv_cells import write_csv
from evenshare_core.domain.profiles import Profile
from evenshare_core.simulation.pool_files import gpu_type_of
from evenshare_core.simulation.tables import TableError, TableRow, read_table
from evenshare_core.simulation.workloads import SimJob
from evenshare_core.units import COUNT_MAX, ONE_MILLI

COLUMNS = (
    *("model", "tenant", "gpu_type", "iteration_s", "t1_s", "t2_s", "speed", "priority"),
    *("cold_s", "checkpoint_s"),
)
_LEAST, _NOTHING = Decimal("0.000001"), Decimal(0)
# columns that must have the same value in all rows of a job type
_SHARED = ("priority", "cold_s", "checkpoint_s")

Pairs = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class IterationTimes:
    """A job type on a GPU type: seconds per iteration and per further GPU, or a speed."""

    iteration_s: Decimal | None = None
    t1_s: Decimal | None = None
    t2_s: Decimal | None = None
    speed: Decimal | None = None

    def iteration_time_s(self, gpus: int, *, several_nodes: bool) -> Decimal:
        """Return the seconds of an iteration on `gpus` GPUs."""
        further_s = (self.t2_s if several_nodes else self.t1_s) or _NOTHING
        return (self.iteration_s or _NOTHING) + (gpus - 1) * further_s


@dataclass(frozen=True, slots=True)
class ProfiledModel:
    """A tenant's model (empty: of all tenants), measured by GPU type (empty: on any type)."""

    tenant: str
    model: str
    by_type: Mapping[str, IterationTimes]
    priority: int = 1
    cold_us: int | None = None
    checkpoint_us: int | None = None

    def speedups(self, gpus: int, sizes: Mapping[str, int]) -> Pairs:
        """Return speeds by type, in thousandths of the slowest type's; empty without measurements.

        `sizes`: GPUs of the largest node by type. A gang larger than every node runs over several.
        """
        speeds: dict[str, Decimal] = {}
        for name, row in self.by_type.items():
            if row.speed is not None:
                speeds[name] = row.speed
            elif row.iteration_s is not None and name:
                several = gpus > sizes.get(name, gpus)
                speeds[name] = 1 / row.iteration_time_s(gpus, several_nodes=several)
        slowest = min(speeds.values(), default=_NOTHING)
        return tuple((name, round(speeds[name] / slowest * ONE_MILLI)) for name in sorted(speeds))

    def spread(self, gpus: int) -> Pairs:
        """Return a gang's speed over several nodes, by type, in thousandths of that on one node."""
        pairs = []
        for name, row in sorted(self.by_type.items()):
            if gpus > 1 and row.iteration_s is not None and row.t2_s is not None:
                on_one = row.iteration_time_s(gpus, several_nodes=False)
                share = on_one / row.iteration_time_s(gpus, several_nodes=True)
                pairs.append((name, max(1, round(share * ONE_MILLI))))
        return tuple(pairs)


def read_profiles(text: str) -> list[ProfiledModel]:
    """Read job types in the order of their first rows.

    Raises:
        TableError: a row is invalid, or contradicts others of its job type.
    """
    groups: dict[tuple[str, str], list[TableRow]] = {}
    for row in read_table(text, "profiles", required=("model",), optional=COLUMNS[1:]):
        groups.setdefault((row.text("tenant"), row.name("model")), []).append(row)
    return [_profiled_model(tenant, model, rows) for (tenant, model), rows in groups.items()]


def _profiled_model(tenant: str, model: str, rows: Sequence[TableRow]) -> ProfiledModel:
    first = rows[0]
    by_type: dict[str, IterationTimes] = {}
    for row in rows:
        gpu_type = gpu_type_of(row) if row.text("gpu_type") else ""
        if gpu_type in by_type or (not gpu_type and len(rows) > 1) or "" in by_type:
            raise row.error("gpu_type", f"is not the only one of model {model!r}; name each once")
        by_type[gpu_type] = _measured(row, gpu_type)
        for column in _SHARED:
            if row.text(column) != first.text(column):
                raise row.error(column, f"differs from {first.place}; a model has one value")
        here = by_type[gpu_type]
        before = by_type[next(iter(by_type))]
        for column, one, other in (
            ("iteration_s", here.iteration_s, before.iteration_s),
            ("speed", here.speed, before.speed),
        ):
            if (one is None) != (other is None):
                raise row.error(
                    column, f"is in some rows of model {model!r} only; set it in each row"
                )
    return ProfiledModel(
        tenant,
        model,
        by_type,
        priority=first.whole("priority", least=1) or 1,
        cold_us=first.seconds_us("cold_s"),
        checkpoint_us=first.seconds_us("checkpoint_s"),
    )


def _measured(row: TableRow, gpu_type: str) -> IterationTimes:
    times = IterationTimes(
        row.decimal("iteration_s", least=_LEAST),
        row.decimal("t1_s", least=_NOTHING),
        row.decimal("t2_s", least=_NOTHING),
        row.decimal("speed", least=Decimal("0.001"), most=Decimal(COUNT_MAX)),
    )
    if times.speed is not None and (times.iteration_s is not None or not gpu_type):
        wrong = "is allowed only with a gpu_type and without iteration_s"
        raise row.error("speed", wrong)
    if (times.t1_s is None) != (times.t2_s is None):
        raise row.error("t1_s", "and t2_s go together; set both or none")
    if times.t2_s is not None and times.t1_s is not None:
        if times.iteration_s is None:
            raise row.error("t2_s", "needs iteration_s, to which it is added; set both")
        if times.t2_s < times.t1_s:
            wrong = "is below t1_s: several nodes are not faster than one; swap them"
            raise row.error("t2_s", wrong)
    return times


def fit_profiles(
    jobs: Sequence[SimJob],
    tenants: Mapping[int, str],
    job_types: Sequence[ProfiledModel],
    sizes: Mapping[str, int],
) -> tuple[tuple[SimJob, ...], dict[int, Profile]]:
    """Give every job with a model its speeds, its penalty over several nodes and its overheads.

    Overheads that a job states itself stay. `sizes`: GPUs of the largest node by type. Profiles are
    numbered in the order of the job types, then by tenant and speeds. Jobs without a model stay
    unchanged.

    Raises:
        TableError: a model is missing, or runs on no type that its job accepts.
    """
    places = {(one.tenant, one.model): index for index, one in enumerate(job_types)}
    of_job: dict[int, tuple[int, int, Pairs]] = {}
    for job in jobs:
        if job.model:
            name = tenants[job.tenant]
            place = places.get((name, job.model), places.get(("", job.model)))
            if place is None:
                advice = f"add rows of model {job.model!r}, of tenant {name!r} or of all"
                raise TableError(f"has no profile of job {job.name!r}; {advice}")
            of_job[job.id] = (place, job.tenant, job_types[place].speedups(job.gpus, sizes))
    # types for which the model has speeds
    timed = sorted({key for key in of_job.values() if key[2]})
    numbers = {key: index for index, key in enumerate(timed, start=1)}
    fitted = []
    for job in jobs:
        if job.id in of_job:
            key = of_job[job.id]
            row = _fitted(job, job_types[key[0]], key[2], sizes)
            job = replace(row, profile=numbers.get(key, 0))  # noqa: PLW2901 - the same job, completed
        fitted.append(job)
    profiles = {
        index: Profile(index, tenant, speedups, job_types[place].priority)
        for (place, tenant, speedups), index in numbers.items()
    }
    return tuple(fitted), profiles


def _fitted(
    job: SimJob, profiled: ProfiledModel, speedups: Pairs, types: Collection[str]
) -> SimJob:
    able = {name for name, _ in speedups}
    return replace(
        job,
        gpu_types=_accepted(job, able, types) if speedups else job.gpu_types,
        spread=profiled.spread(job.gpus),
        cold_us=profiled.cold_us if job.cold_us is None else job.cold_us,
        checkpoint_us=profiled.checkpoint_us if job.checkpoint_us is None else job.checkpoint_us,
    )


def _accepted(job: SimJob, able: set[str], types: Collection[str]) -> tuple[str, ...]:
    """Return the nodes' GPU types that may run a job; empty if it names none and can use all."""
    if not job.gpu_types and able >= set(types):
        return ()
    accepted = able.intersection(job.gpu_types or types)
    if not accepted.intersection(types):
        raise TableError(
            f"has no type of model and job {job.name!r} in common; add one to its model"
        )
    return tuple(sorted(accepted))


def profiles_csv(rows: Iterable[tuple[str, str, Mapping[str, int], int]]) -> str:
    """Return declared profiles in the format of `read_profiles`.

    Each is (tenant, model, speed by type in thousandths of the slowest type's, priority).
    """
    return write_csv(
        ("model", "tenant", "gpu_type", "speed", "priority"),
        [
            (model, tenant, gpu_type, f"{Decimal(milli) / ONE_MILLI:f}", priority)
            for tenant, model, speedups, priority in rows
            for gpu_type, milli in sorted(speedups.items())
        ],
    )
