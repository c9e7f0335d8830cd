"""What a job's program used, as the API tells it."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api.base import SchedulingView
from scheduling.engine.clock import read_clock
from scheduling.services.usage import JobUsage, job_usage, newest_leases
from tenants.answers import plain
from tenants.api.answer_schemas import answer_serializer
from tenants.scopes import tenant_scope


class JobUsageShow(SchedulingView):
    """What a job used."""

    scopes: ClassVar[dict[str, str]] = {"GET": "jobs:read"}

    @extend_schema(operation_id="job_usage", responses={200: answer_serializer(JobUsage)})
    def get(self, request: Request, uid: UUID) -> Response:  # noqa: ARG002 - DRF's signature
        """Show a job's CPUs, memory and GPUs in use over time, as sampled where it ran."""
        job = self.job(uid)
        with tenant_scope(job.tenant_id):
            leases = newest_leases(job)
        clock = read_clock(job.pool_id)
        return Response(plain(job_usage(job, leases, now=clock.pool_at, scale=clock.scale)))
