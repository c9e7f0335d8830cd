"""Input of a simulation: nodes, quotas, failures of nodes, and jobs of a trace or a seed.

Jobs are numbered by (submission, line), tenants by name, both from 1. Equal input thus gives equal
ids.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from math import isqrt

from evenshare_core.domain.cluster import Node, Placement, Resources, capacity_by_type, node_sizes
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import PoolPrice, Surcharge
from evenshare_core.domain.utilities import Utility, read_utility
from evenshare_core.money.fixed_point import largest_remainder, to_micro
from evenshare_core.money.pricing import DEFAULT_THETA_MILLI
from evenshare_core.simulation.trace_reads import BadLine, Read, TraceLine, TraceTally, tallied
from evenshare_core.units import CREDIT_MICRO, HOUR_US, MINUTE_US, ONE_MILLI, SECOND_US

ONE_TYPE = "gpu"
PRICE_BASE = CREDIT_MICRO  # the base price of a pool without price settings


@dataclass(frozen=True, slots=True)
class SimJob:
    """A job with facts unknown to a policy: how long it runs, whether it fails or is cancelled.

    `duration_us` is its work on a GPU type of speed 1; `estimate_us` is the estimate for a policy.
    If `failed`, its work ends in an error after the same time. `model` names its job type.

    `values` has pairs (time, value of the job until then) with falling values, and `deadline_us` is
    the first of these times. A single pair is a strict deadline, several pairs are a soft one.

    `cold_us` and `checkpoint_us` are its own overheads, by default the run's. `spread` has pairs of
    GPU type (empty: any) and speed over several nodes, in thousandths of the speed on one node.

    `cpus` and `memory_mb` are its needs on all GPUs together; 0 if unknown. `utility` is the value
    of its completion, if stated. `estimate_error_milli` is the relative standard error of its
    estimate, in thousandths; 0 if unknown. `is_profiler` marks a profiling run.
    """

    id: int
    tenant: int
    gpus: int
    submitted_us: int
    duration_us: int
    gpu_types: tuple[str, ...] = ()
    weight: int = 1
    max_price_micro: int | None = None
    deadline_us: int | None = None
    estimate_us: int | None = None
    profile: int = 0
    cancel_us: int | None = None
    failed: bool = False
    name: str = ""
    model: str = ""
    values: tuple[tuple[int, int], ...] = ()
    cold_us: int | None = None
    checkpoint_us: int | None = None
    spread: tuple[tuple[str, int], ...] = ()
    cpus: int = 0
    memory_mb: int = 0
    utility: Utility | None = None
    estimate_error_milli: int = 0
    is_profiler: bool = False

    @property
    def job_class(self) -> str:
        """Return `best_effort`, `strict_slo` or `soft_slo`."""
        if self.deadline_us is None:
            return "best_effort"
        return "soft_slo" if len(self.values) > 1 else "strict_slo"

    def cold_us_or(self, common_us: int) -> int:
        """Return the overhead of each start but the first; `common_us` if the job states none."""
        return common_us if self.cold_us is None else self.cold_us

    def checkpoint_us_or(self, common_us: int) -> int:
        """Return the overhead of each expiry of its lease; `common_us` if the job states none."""
        return common_us if self.checkpoint_us is None else self.checkpoint_us

    def value_lost(self, end_us: int | None) -> float:
        """Return the share of its value that the job loses by ending at `end_us` or never (None).

        Source: UniSched (15), one minus the reward rate.
        """
        if self.deadline_us is None or end_us is None:
            return float(self.deadline_us is not None)
        values = self.values or ((self.deadline_us, 1),)
        left = next((value for until_us, value in values if end_us <= until_us), 0)
        return 1 - left / values[0][1]


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A change of a node, which offers `gpus` GPUs from `at_us` on (0: it is lost)."""

    at_us: int
    node: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes, quotas before scaling to live capacity, prices and speeds.

    `prices` has (base in micro-credits per GPU-hour, theta in thousandths) by GPU type.
    `surcharges` has the surcharges by GPU type, if the queue adds to prices.

    `speeds` has by GPU type thousandths of the reference speed of durations, for jobs without a
    profile; `profiles` are by id. `spread_milli` is the speed of a gang over several nodes where
    one node could hold it, in thousandths, unless the job states it.

    `node_resources` (by node id) and `job_resources` (by job) have known CPUs and memory.
    """

    nodes: tuple[Node, ...]
    quotas: tuple[Entitlement, ...]
    prices: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    speeds: Mapping[str, int] = field(default_factory=dict)
    changes: tuple[NodeChange, ...] = ()
    profiles: Mapping[int, Profile] = field(default_factory=dict)
    spread_milli: int = ONE_MILLI
    node_resources: tuple[Resources, ...] = ()
    job_resources: Mapping[int, Resources] = field(default_factory=dict)
    surcharges: tuple[Surcharge, ...] = ()

    @property
    def capacity(self) -> int:
        """Return the GPUs of all nodes if none is lost."""
        return sum(node.gpus for node in self.nodes)

    @property
    def has_speeds(self) -> bool:
        """Whether GPU types differ in speed for any job."""
        return bool(self.speeds or self.profiles)

    def resources_of(self, jobs: Iterable[int]) -> tuple[Resources, ...]:
        """Return the jobs' known needs in addition to GPUs, in the given order."""
        rows = self.job_resources
        return tuple(rows[job] for job in jobs if job in rows) if rows else ()

    def speed_milli(self, profile: int, gpu_type: str) -> int:
        """Return the speed on a GPU type, in thousandths of the duration's reference speed."""
        if profile:
            return self.profiles[profile].speed_milli(gpu_type)
        return self.speeds.get(gpu_type, ONE_MILLI)

    def placed_speed_milli(self, job: SimJob, gpu_type: str, placement: Placement) -> int:
        """Return the `speed_milli` of a job at its placement; at least 1 if it can run.

        A gang that the type's largest node could hold is slower over several nodes. A larger gang
        always spans nodes, so its duration already includes that. Source: UniSched (2), T2 in place
        of T1.
        """
        speed = self.speed_milli(job.profile, gpu_type)
        if len(placement) == 1 or (not job.spread and self.spread_milli == ONE_MILLI):
            return speed
        if job.gpus > self.node_sizes.get(gpu_type, 0):
            return speed
        spread = dict(job.spread)
        share = spread.get(gpu_type, spread.get("", self.spread_milli))
        return max(1, speed * share // ONE_MILLI) if speed else 0

    def first_prices(self) -> tuple[PoolPrice, ...]:
        """Return the price settings of all its GPU types, before any price is posted."""
        types = sorted({node.gpu_type for node in self.nodes})
        return self.as_set(tuple(PoolPrice(name, 0, 0, 0, 0, 0) for name in types))

    def as_set(self, prices: tuple[PoolPrice, ...]) -> tuple[PoolPrice, ...]:
        """Return posted prices with the operator's base and theta, which a policy may change."""
        settings = self.prices
        return tuple(
            PoolPrice(
                row.gpu_type, row.price_micro, row.used, row.capacity,
                *settings.get(row.gpu_type, (PRICE_BASE, DEFAULT_THETA_MILLI)),
            )
            for row in prices
        )  # fmt: skip # rows of what belongs together

    @property
    def node_sizes(self) -> dict[str, int]:
        """Return the GPUs of the largest node of each type, if no node is lost."""
        return node_sizes(self.nodes)


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in order of their ids, tenants' names by id, bad lines and remarks of the trace."""

    jobs: tuple[SimJob, ...]
    tenants: Mapping[int, str]
    bad: tuple[BadLine, ...] = ()
    remarks: tuple[str, ...] = ()


def utilities_of(jobs: Mapping[int, SimJob], active: Iterable[int]) -> tuple[Utility, ...]:
    said = (jobs[job].utility for job in active)
    return tuple(utility for utility in said if utility is not None)


def job_resources(jobs: Iterable[SimJob]) -> dict[int, Resources]:
    """Return the jobs' stated needs in addition to GPUs, by job."""
    return {
        job.id: Resources(job.id, job.cpus, job.memory_mb)
        for job in jobs
        if job.cpus or job.memory_mb
    }


def read_workload(lines: Iterable[Read], *, true_estimates: bool = True) -> Workload:
    """Return the jobs of a trace's lines.

    A job without an estimate gets its true duration as estimate if `true_estimates`, else none.
    """
    tally = TraceTally()
    every = [line for line in tallied(lines, tally) if isinstance(line, TraceLine | BadLine)]
    bad = tuple(line for line in every if isinstance(line, BadLine))
    read = [line for line in every if isinstance(line, TraceLine)]
    read.sort(key=lambda line: (line.submit_us, line.line))
    tenants = dict(enumerate(sorted({line.tenant for line in read}), start=1))
    ids = {name: index for index, name in tenants.items()}
    jobs = tuple(
        _job(index, line, ids[line.tenant], true_estimates=true_estimates)
        for index, line in enumerate(read, start=1)
    )
    return Workload(jobs, tenants, bad, tally.sentences())


def _job(index: int, line: TraceLine, tenant: int, *, true_estimates: bool) -> SimJob:
    extra = line.extra
    types, weight, price = extra.get("gpu_types"), extra.get("weight"), extra.get("max_price")
    estimate, cancel_us = extra.get("estimate_s"), extra.get("cancel_s")
    values = _values(line)
    guess_us = line.duration_us if true_estimates else None
    return SimJob(
        id=index,
        tenant=tenant,
        gpus=line.gpus,
        submitted_us=line.submit_us,
        duration_us=line.duration_us,
        gpu_types=tuple(sorted(types)) if isinstance(types, list) else (),
        weight=weight if isinstance(weight, int) else 1,
        max_price_micro=to_micro(Decimal(price)) if isinstance(price, str) else None,
        estimate_us=estimate * SECOND_US if isinstance(estimate, int) else guess_us,
        deadline_us=values[0][0] if values else None,
        cancel_us=line.submit_us + cancel_us if isinstance(cancel_us, int) else None,
        failed=bool(extra.get("exit_code")),
        name=line.name,
        model=str(extra.get("model", "")),
        values=values,
        cold_us=_whole(line, "cold_s"),
        checkpoint_us=_whole(line, "checkpoint_s"),
        cpus=_whole(line, "cpus") or 0,
        memory_mb=_whole(line, "memory_mb") or 0,
        utility=read_utility(index, extra["utility"]) if extra.get("utility") else None,
    )


def _whole(line: TraceLine, name: str) -> int | None:
    value = line.extra.get(name)
    return value if isinstance(value, int) else None


def _values(line: TraceLine) -> tuple[tuple[int, int], ...]:
    """Return pairs (deadline as a time, value of the job until then)."""
    deadlines, values = line.extra.get("deadline_s"), line.extra.get("values")
    if not isinstance(deadlines, list) or not isinstance(values, list):
        return ()
    instants = [line.submit_us + after_us for after_us in deadlines]
    return tuple(zip(instants, values, strict=True))


def make_nodes(counts: Mapping[str, int], gpus_per_node: int) -> tuple[Node, ...]:
    """Return equal nodes, numbered from 1, type by type in the given order."""
    types = [gpu_type for gpu_type, count in counts.items() for _ in range(count)]
    return tuple(Node(index, name, gpus_per_node) for index, name in enumerate(types, start=1))


def quotas_by_demand(jobs: Sequence[SimJob], nodes: Sequence[Node]) -> tuple[Entitlement, ...]:
    """Give each tenant GPUs of every type in proportion to the sum of its jobs' gangs.

    Source: LTGF 6.1.2, the weights of the Philly workload.
    """
    asked: dict[int, int] = {}
    for job in jobs:
        asked[job.tenant] = asked.get(job.tenant, 0) + job.gpus
    tenants = sorted(asked)
    capacity = capacity_by_type(nodes)
    rows = []
    for gpu_type, gpus in sorted(capacity.items()):
        parts = largest_remainder(gpus, [asked[tenant] for tenant in tenants])
        rows += [
            Entitlement(tenant, gpu_type, part) for tenant, part in zip(tenants, parts, strict=True)
        ]
    return tuple(sorted(rows, key=lambda row: (row.tenant, row.gpu_type)))


def read_partitions(text: Iterable[str]) -> dict[str, int]:
    """Read a CSV of tenant and nodes with one header line.

    Raises:
        ValueError: a line is not (name, whole number), or a tenant is repeated.
    """
    rows = [row for row in csv.reader(text) if row][1:]
    partitions: dict[str, int] = {}
    for row in rows:
        if len(row) < 2 or not row[1].strip().isdigit():
            raise ValueError(f"needs a tenant and a number of nodes: {','.join(row)!r}")
        if row[0].strip() in partitions:
            raise ValueError(f"tenant {row[0].strip()!r} is repeated")
        partitions[row[0].strip()] = int(row[1])
    return partitions


def read_churn(
    text: Iterable[str], nodes: Sequence[Node], seed: int, *, begin: datetime | None = None
) -> tuple[NodeChange, ...]:
    """Read lines of (time, active, total): from each time on, this share of the nodes is up.

    `begin` is the date and time of time 0 in the run, by default those of the first line. Earlier
    lines count from 0 on. The number of nodes that are up is rounded down. The seed determines a
    single order of losses for the whole run: the node lost last returns first.

    Raises:
        ValueError: a column is missing, or a line is invalid; the message has its number.
    """
    order = list(nodes)
    rng = random.Random(seed)  # noqa: S311 - a history, not a secret
    rng.shuffle(order)
    reader = csv.DictReader(text)
    if not {"time", "active", "total"} <= set(reader.fieldnames or ()):
        raise ValueError("a history of nodes needs the columns time, active and total")
    changes: list[NodeChange] = []
    up = len(order)
    # Of several lines for the same time, or before 0, only the last counts.
    for at_us, now_up in dict(_counts(reader, len(order), begin)).items():
        changes += [NodeChange(at_us, node.id, 0) for node in order[now_up:up]]
        changes += [NodeChange(at_us, node.id, node.gpus) for node in order[up:now_up]]
        up = now_up
    return tuple(changes)


def _counts(
    rows: csv.DictReader[str], nodes: int, begin: datetime | None
) -> Iterator[tuple[int, int]]:
    """Yield (time, number of nodes that are up from then on)."""
    last: datetime | None = None
    for row in rows:
        try:
            at, active, total = _moment_of(row["time"]), int(row["active"]), int(row["total"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"line {rows.line_num} of the history of nodes: {error}") from None
        if not 0 <= active <= total or not total:
            raise ValueError(f"line {rows.line_num}: {active} of {total} nodes are active")
        if last is not None and at < last:
            raise ValueError(f"line {rows.line_num}: its time is before the time above it")
        last, begin = at, begin or at
        yield max(0, to_us(at) - to_us(begin)), nodes * active // total
    if last is not None and begin is not None and last < begin:
        raise ValueError(
            f"the history of nodes ends at {last:%Y-%m-%d %H:%M}, before the run begins"
        )


def _moment_of(text: str) -> datetime:
    """Return a date and time, UTC by default; a bare number counts minutes since 1970."""
    if text.isdigit():
        return from_us(int(text) * MINUTE_US)
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def noisy_estimates(jobs: Sequence[SimJob], seed: int, error: float) -> tuple[SimJob, ...]:
    """Return the jobs with estimates that deviate by up to the fraction `error`, drawn uniformly.

    The standard error of such an estimate is `error` over the root of 3.
    """
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    error_milli = isqrt(round(error * ONE_MILLI) ** 2 // 3)
    return tuple(
        replace(
            job,
            estimate_us=max(1, int(job.duration_us * (1 + rng.uniform(-error, error)))),
            estimate_error_milli=error_milli,
        )
        for job in jobs
    )


MODELS_PER_TENANT = 3


def synthetic(
    *,
    seed: int,
    jobs: int,
    tenants: int,
    hours: int,
    failed: float = 0.0,
    cancelled: float = 0.0,
    models: Sequence[str] = (),
) -> Workload:
    """Draw a workload: uniform arrivals, gangs as in the Philly trace, log-normal durations.

    `failed` and `cancelled` are shares of the jobs. Each tenant uses a few of `models`.
    """
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    arrivals = sorted(rng.randrange(hours * 3600) for _ in range(jobs))
    rows = []
    for index, second in enumerate(arrivals, start=1):
        duration_us = max(1, int(rng.lognormvariate(7.0, 1.6))) * SECOND_US
        taken_back = rng.random() < cancelled
        rows.append(
            SimJob(
                id=index,
                tenant=rng.randint(1, tenants),
                gpus=rng.choices((1, 2, 4, 8, 16), (70, 10, 10, 9, 1))[0],
                submitted_us=second * SECOND_US,
                duration_us=duration_us,
                estimate_us=duration_us,
                cancel_us=second * SECOND_US + rng.randrange(HOUR_US) if taken_back else None,
                failed=rng.random() < failed,
                name=f"job-{index}",
            )
        )
    width = len(str(tenants))  # digits so that names sort in the order of their numbers
    names = {index: f"tenant-{index:0{width}}" for index in range(1, tenants + 1)}
    return Workload(_with_models(rows, seed, tenants, models), names)


def _with_models(
    rows: Sequence[SimJob], seed: int, tenants: int, models: Sequence[str]
) -> tuple[SimJob, ...]:
    if not models:
        return tuple(rows)
    rng = random.Random(f"{seed} models")  # noqa: S311 - a workload, not a secret
    names = sorted(set(models))
    few = min(MODELS_PER_TENANT, len(names))
    used = {tenant: rng.sample(names, few) for tenant in range(1, tenants + 1)}
    return tuple(replace(job, model=rng.choice(used[job.tenant])) for job in rows)
