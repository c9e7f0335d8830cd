"""What a job's program used, as the API tells it."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from evenshare_core.domain.instants import from_us
from scheduling.api.base import SchedulingView
from scheduling.engine.clock import read_clock
from scheduling.engine.executors.local_usage import GpuState
from scheduling.services.usage import LeaseUsage, job_usage, newest_leases, reports_usage
from scheduling.services.usage_points import UsagePoint
from tenants.api.times import time_text
from tenants.scopes import tenant_scope


class UsageFigures(s.Serializer[object]):
    """What was used over a time, on all nodes together; null: nobody says."""

    lease = s.IntegerField()
    starts_at = s.DateTimeField()
    ends_at = s.DateTimeField()
    cores = s.FloatField(help_text="CPU seconds per second of the wall.")
    cores_peak = s.FloatField()
    memory_bytes = s.IntegerField(allow_null=True, help_text="Resident, of all processes.")
    memory_peak_bytes = s.IntegerField(allow_null=True)
    gpu_percent = s.FloatField(allow_null=True, help_text="Mean utilization of its GPUs.")
    gpu_lowest_percent = s.FloatField(allow_null=True, help_text="Of the GPU that did least.")
    gpu_memory_bytes = s.IntegerField(allow_null=True, help_text="On one GPU, the mean of all.")
    gpu_memory_peak_bytes = s.IntegerField(allow_null=True, help_text="The most on one GPU.")


class LeaseUsageRow(s.Serializer[object]):
    """One lease: what it may use, and what it used over all of it."""

    lease = s.IntegerField()
    started_at = s.DateTimeField()
    ended_at = s.DateTimeField(allow_null=True)
    gpu_type = s.CharField()
    gpus = s.IntegerField()
    gpus_reporting = s.IntegerField(help_text="How many of them say what they do.")
    nodes = s.IntegerField()
    nodes_reporting = s.IntegerField()
    cpus = s.IntegerField(help_text="CPUs that its programs may run on; 0: not known.")
    gpu_state = s.ChoiceField(
        [state.value for state in GpuState],
        help_text="ok; failed: nvidia-smi is not asked any more; asked: it has not answered; "
        "absent: it is not there; none: the program was given no GPU.",
    )
    gpu_total_bytes = s.IntegerField(allow_null=True, help_text="Memory of one GPU.")
    usage = UsageFigures(allow_null=True)
    refused = s.ListField(child=s.CharField(), help_text="Why samples of a node could not be used.")


class JobUsageAnswer(s.Serializer[object]):
    """A job's use over its newest leases, oldest first. Times are pool time.

    `reported`: jobs of this pool are sampled at all. At most 200 points, none over two leases.
    """

    reported = s.BooleanField()
    leases = LeaseUsageRow(many=True)
    points = UsageFigures(many=True)
    earlier_leases = s.BooleanField(help_text="There were leases before those.")
    gpus_idle_since = s.DateTimeField(
        allow_null=True, help_text="Since when its GPUs, which it holds, have done next to nothing."
    )


class JobUsageShow(SchedulingView):
    """What a job used."""

    scopes: ClassVar[dict[str, str]] = {"GET": "jobs:read"}

    @extend_schema(operation_id="job_usage", responses={200: JobUsageAnswer})
    def get(self, request: Request, uid: UUID) -> Response:  # noqa: ARG002 - DRF's signature
        """Show a job's CPUs, memory and GPUs in use over time, as sampled where it ran."""
        job = self.job(uid)
        with tenant_scope(job.tenant_id):
            leases = newest_leases(job)
        clock = read_clock(job.pool_id)
        usage = job_usage(job, leases, now=clock.pool_at, scale=clock.scale)
        return Response(
            {
                "reported": reports_usage(job),
                "leases": [_lease_json(one) for one in usage.leases],
                "points": [_figures_json(one) for one in usage.points],
                "earlier_leases": usage.cut,
                "gpus_idle_since": time_text(usage.idle_since),
            }
        )


def _lease_json(one: LeaseUsage) -> dict[str, Any]:
    return {
        "lease": one.number,
        "started_at": time_text(one.started_at),
        "ended_at": time_text(one.ended_at),
        "gpu_type": one.gpu_type,
        "gpus": one.gpus,
        "gpus_reporting": one.gpus_known,
        "nodes": one.of_nodes,
        "nodes_reporting": one.nodes,
        "cpus": one.cpus,
        "gpu_state": one.gpu_state,
        "gpu_total_bytes": one.gpu_bytes,
        "usage": None if one.mean is None else _figures_json(one.mean),
        "refused": list(one.refused),
    }


def _figures_json(one: UsagePoint) -> dict[str, Any]:
    return {
        "lease": one.lease,
        "starts_at": time_text(from_us(one.begin_us)),
        "ends_at": time_text(from_us(one.end_us)),
        "cores": round(one.cores, 3),
        "cores_peak": round(one.cores_peak, 3),
        "memory_bytes": _whole(one.memory_bytes),
        "memory_peak_bytes": _whole(one.memory_peak_bytes),
        "gpu_percent": _percent(one.busy),
        "gpu_lowest_percent": _percent(one.busy_low),
        "gpu_memory_bytes": _whole(one.gpu_bytes),
        "gpu_memory_peak_bytes": _whole(one.gpu_peak_bytes),
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _percent(permille: float | None) -> float | None:
    return None if permille is None else round(permille / 10, 1)
