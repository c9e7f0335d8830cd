"""The use of CPUs, memory and GPUs by a job's program, over REST."""

from uuid import UUID

from scheduling.api.base import JobView
from scheduling.engine.clock import read_clock
from scheduling.services.usage import JobUsage, job_usage, newest_leases
from tenants.scopes import tenant_scope


class JobUsageShow(JobView):
    """Show a job's CPUs, memory and GPUs in use over time, as sampled on its nodes."""

    address = "jobs/<uuid:uid>/usage"
    operation = "job_usage"
    answer = JobUsage

    def show(self, uid: UUID) -> JobUsage:
        job = self.job(uid)
        with tenant_scope(job.tenant_id):
            leases = newest_leases(job)
        clock = read_clock(job.pool_id)
        return job_usage(job, leases, now=clock.pool_at, scale=clock.scale)
