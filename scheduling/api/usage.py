"""What a job's program used, as the API tells it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from evenshare_core.domain.instants import from_us
from scheduling.api.base import JobView
from scheduling.engine.clock import read_clock
from scheduling.engine.executors.local_usage import GpuState
from scheduling.services.usage import LeaseUsage, job_usage, newest_leases, reports_usage
from scheduling.services.usage_points import UsagePoint
from tenants.answers import Answer, about, answer_of
from tenants.scopes import tenant_scope


class UsageFigures(Answer, frozen=True):
    """What was used over a time, on all nodes together; null: nobody says."""

    lease: int
    starts_at: datetime
    ends_at: datetime
    cores: Annotated[float, about("CPU seconds per second of the wall.")]
    cores_peak: float
    memory_bytes: Annotated[int | None, about("Resident, of all processes.")]
    memory_peak_bytes: int | None
    gpu_percent: Annotated[float | None, about("Mean utilization of its GPUs.")]
    gpu_lowest_percent: Annotated[float | None, about("Of the GPU that did least.")]
    gpu_memory_bytes: Annotated[int | None, about("On one GPU, the mean of all.")]
    gpu_memory_peak_bytes: Annotated[int | None, about("The most on one GPU.")]


class LeaseUsageRow(Answer, frozen=True):
    """One lease: what it may use, and what it used over all of it."""

    lease: int
    started_at: datetime
    ended_at: datetime | None
    gpu_type: str
    gpus: int
    gpus_reporting: Annotated[int, about("How many of them say what they do.")]
    nodes: int
    nodes_reporting: int
    cpus: Annotated[int, about("CPUs that its programs may run on; 0: not known.")]
    gpu_state: Annotated[
        GpuState,
        about(
            "ok; failed: nvidia-smi is not asked any more; asked: it has not answered; "
            "absent: it is not there; none: the program was given no GPU."
        ),
    ]
    gpu_total_bytes: Annotated[int | None, about("Memory of one GPU.")]
    usage: UsageFigures | None
    refused: Annotated[tuple[str, ...], about("Why samples of a node could not be used.")]


class JobUsageAnswer(Answer, frozen=True):
    """A job's use over its newest leases, oldest first. Times are pool time.

    `reported`: jobs of this pool are sampled at all. At most 200 points, none over two leases.
    """

    reported: bool
    leases: tuple[LeaseUsageRow, ...]
    points: tuple[UsageFigures, ...]
    earlier_leases: Annotated[bool, about("There were leases before those.")]
    gpus_idle_since: Annotated[
        datetime | None,
        about("Since when its GPUs, which it holds, have done next to nothing."),
    ]


class JobUsageShow(JobView):
    """Show a job's CPUs, memory and GPUs in use over time, as sampled where it ran."""

    address = "jobs/<uuid:uid>/usage"
    operation = "job_usage"
    answer = JobUsageAnswer

    def show(self, uid: UUID) -> JobUsageAnswer:
        job = self.job(uid)
        with tenant_scope(job.tenant_id):
            leases = newest_leases(job)
        clock = read_clock(job.pool_id)
        usage = job_usage(job, leases, now=clock.pool_at, scale=clock.scale)
        return JobUsageAnswer(
            reported=reports_usage(job),
            leases=tuple(map(_lease, usage.leases)),
            points=tuple(map(_figures, usage.points)),
            earlier_leases=usage.cut,
            gpus_idle_since=usage.idle_since,
        )


def _lease(one: LeaseUsage) -> LeaseUsageRow:
    return answer_of(
        LeaseUsageRow,
        one,
        lease=one.number,
        gpus_reporting=one.gpus_known,
        nodes=one.of_nodes,
        nodes_reporting=one.nodes,
        gpu_total_bytes=one.gpu_bytes,
        usage=None if one.mean is None else _figures(one.mean),
    )


def _figures(one: UsagePoint) -> UsageFigures:
    return UsageFigures(
        lease=one.lease,
        starts_at=from_us(one.begin_us),
        ends_at=from_us(one.end_us),
        cores=round(one.cores, 3),
        cores_peak=round(one.cores_peak, 3),
        memory_bytes=_whole(one.memory_bytes),
        memory_peak_bytes=_whole(one.memory_peak_bytes),
        gpu_percent=_percent(one.busy),
        gpu_lowest_percent=_percent(one.busy_low),
        gpu_memory_bytes=_whole(one.gpu_bytes),
        gpu_memory_peak_bytes=_whole(one.gpu_peak_bytes),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _percent(permille: float | None) -> float | None:
    return None if permille is None else round(permille / 10, 1)
