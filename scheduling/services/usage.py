"""The CPUs, memory and GPUs that a job's program used, as its executor reports."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from evenshare_core.domain.instants import from_us, to_us
from scheduling.engine.executors.base import executor_traits
from scheduling.engine.executors.local_files import read_usage
from scheduling.engine.executors.local_usage import (
    MOST_ROWS,
    GpuState,
    NodeUsage,
    most_rows,
    parse_usage,
)
from scheduling.engine.idle_samples import LeaseSamples
from scheduling.models import Job, Lease
from scheduling.selectors.stored_texts import USAGE_FILE
from scheduling.services.usage_points import (
    UsagePoint,
    idle_since_us,
    join_points,
    lease_points,
    usage_points,
)
from tenants.answers import Answer, about

POINTS = 200
# If a job has more leases, or its files are larger in total, only the newest leases are read.
LEASES, READ_BYTES = 20, 2**20
# The maximum that is read of one lease, even of a large gang.
LEASE_BYTES = 4 * 2**20


_LEASE = {
    "number": "lease",
    "gpus_known": "gpus_reporting",
    "of_nodes": "nodes",
    "nodes": "nodes_reporting",
    "gpu_bytes": "gpu_total_bytes",
    "mean": "usage",
}


class LeaseUsage(Answer, frozen=True, rename=_LEASE):
    """A lease: the resources that its program may use, and their mean use."""

    COMPONENT = "LeaseUsageRow"

    number: int
    started_at: datetime
    ended_at: datetime | None
    gpu_type: str
    gpus: int
    gpus_known: Annotated[int, about("Number of these GPUs whose use is known.")]
    of_nodes: int
    nodes: int
    cpus: Annotated[int, about("CPUs available to the lease's programs; 0: unknown.")]
    gpu_state: Annotated[
        GpuState,
        about(
            "ok; failed: nvidia-smi failed and is no longer called; asked: it has not answered"
            " yet; absent: it is not installed; none: the program has no GPU."
        ),
    ]
    gpu_bytes: Annotated[int | None, about("Memory of one GPU.")]
    mean: UsagePoint | None
    refused: Annotated[tuple[str, ...], about("Why samples of a node are unusable.")]


class JobUsage(
    Answer,
    frozen=True,
    kw_only=True,
    rename={
        "cut": "earlier_leases",
        "idle_since": "gpus_idle_since",
        "warned_at": "gpus_idle_warned_at",
        "known_us": "gpu_sampled_us",
        "idle_us": "gpu_idle_us",
    },
):
    """A job's use over its newest leases, oldest first. Times are pool time.

    `reported`: whether jobs of this pool are sampled. At most 200 points; none spans two leases.
    """

    COMPONENT = "JobUsageAnswer"

    reported: bool = True
    leases: tuple[LeaseUsage, ...] = ()
    points: tuple[UsagePoint, ...] = ()
    cut: Annotated[bool, about("There are earlier leases.")] = False
    idle_since: Annotated[
        datetime | None,
        about("Since when its GPUs have been almost unused."),
    ] = None
    warned_at: Annotated[
        datetime | None,
        about("When its tenant was warned that all its GPUs idle; null if they do not (any more)."),
    ] = None
    known_us: Annotated[
        int, about("GPU-microseconds of pool time in these leases for which use was sampled.")
    ] = 0
    idle_us: Annotated[int, about("Those in which the GPU idled.")] = 0


def reports_usage(job: Job) -> bool:
    """Return whether the use of jobs in this pool is sampled."""
    return executor_traits(job.pool.executor).reports_usage


def newest_leases(job: Job) -> list[Lease]:
    """Return the leases that `job_usage` reads, oldest first.

    An extra lease shows that there are more.

    Leases that never started are left out, because they used nothing.
    """
    started = job.leases.filter(started_at__isnull=False)
    rows = started.select_related("gpu_type", "idle_reading").order_by("-number")
    return list(rows[: LEASES + 1])[::-1]


def job_usage(job: Job, leases: Sequence[Lease], *, now: datetime, scale: int) -> JobUsage:
    """Return the use of a job's newest leases, from the files of their shims.

    `leases` are sorted by number; `now` is pool time, and `scale` its scale.
    """
    if not reports_usage(job):
        return JobUsage(reported=False)
    started = [lease for lease in leases if lease.started_at is not None]
    read: list[tuple[LeaseUsage, list[UsagePoint]]] = []
    left = READ_BYTES
    for lease in reversed(started[-LEASES:]):
        if left <= 0:
            break
        usage, points, size = _read_lease(lease, now, scale)
        left -= size
        read.insert(0, (usage, points))
    courses = [points for _, points in read]
    is_held = bool(started) and started[-1].ended_at is None
    idle_us = idle_since_us(courses[-1], scale, started[-1].gpus) if is_held else None
    return JobUsage(
        leases=tuple(usage for usage, _ in read),
        points=tuple(usage_points(courses, POINTS)),
        cut=len(read) < len(started),
        idle_since=None if idle_us is None else from_us(idle_us),
        **_counted(started[-LEASES:]),
    )


def _counted(leases: Sequence[Lease]) -> dict[str, Any]:
    """Return what was counted of the leases' samples, in the fields of `JobUsage`."""
    readings = [row for lease in leases if (row := getattr(lease, "idle_reading", None))]
    newest = leases[-1] if leases else None
    return {
        "known_us": sum(row.known_us for row in readings),
        "idle_us": sum(row.idle_us for row in readings),
        "warned_at": getattr(getattr(newest, "idle_reading", None), "warned_at", None),
    }


def _read_lease(
    lease: Lease, now: datetime, scale: int
) -> tuple[LeaseUsage, list[UsagePoint], int]:
    assert lease.started_at is not None  # noqa: S101 - whoever calls has looked
    nodes: list[NodeUsage] = []
    refused, size = [], 0
    ranks = max(1, len(lease.placement))
    on_one = max((gpus for _, gpus in lease.placement), default=0)
    for rank in range(ranks):
        text = read_usage(lease.job_id, lease.number, rank)
        size += len(text)
        # If a single shim runs for all nodes, it has rank 0.
        rows, gpus = (most_rows(ranks), on_one) if rank else (MOST_ROWS, lease.gpus)
        said = parse_usage(text, rank=rank, rows=rows, gpus=gpus)
        if said.usage is not None:
            nodes.append(said.usage)
        if said.refused:
            why = USAGE_FILE.format(rank=rank, lease=lease.number, why=said.refused)
            refused.append(why)
        if size > LEASE_BYTES:
            break
    end = max(lease.started_at, min(lease.ended_at or now, now))
    samples = LeaseSamples(lease.number, to_us(lease.started_at), to_us(end), scale, tuple(nodes))
    points = lease_points(samples)
    totals = [node.gpu_mib for node in nodes if node.gpu_mib is not None]
    states = {node.gpu_state for node in nodes}
    mean = join_points(points) if points else None
    usage = LeaseUsage(
        number=lease.number,
        started_at=lease.started_at,
        ended_at=lease.ended_at,
        gpu_type=lease.gpu_type.name,
        gpus=lease.gpus,
        gpus_known=mean.gpus_known if mean else 0,
        nodes=len(nodes),
        of_nodes=ranks,
        cpus=sum(node.cpus for node in nodes),
        gpu_state=next((state for state in GpuState if state in states), GpuState.NONE),
        gpu_bytes=max(totals) * 2**20 if totals else None,
        mean=mean,
        refused=tuple(refused),
    )
    return usage, points, size
