"""The use of CPUs, memory and GPUs by a job's program, and idle GPUs of a tenant, over REST."""

from datetime import date
from uuid import UUID

from scheduling.api.base import JobView, SharedPoolView
from scheduling.engine.clock import read_clock
from scheduling.selectors.jobs.idle import IdleDayRow, idle_days
from scheduling.services.usage import JobUsage, job_usage, newest_leases
from tenants.api.resources import PAGE, Listed, Page
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


class PoolIdleDays(Listed, SharedPoolView):
    """List a tenant's GPU-time in a pool that was sampled and idle, by day, newest first."""

    address = "pools/<slug:name>/idle/<slug:slug>"
    operation = "pool_idle_days"
    row = IdleDayRow
    about = "Days with samples, newest first."
    parameters = PAGE
    shows = ()

    def page(self, name: str, slug: str) -> Page:
        facts, tenant = self.there(name, slug)
        before, limit = self.before("idle"), self.limit
        with tenant_scope(tenant.pk):
            day = None if before is None else date.fromordinal(before)
            rows, more = idle_days(facts.id, tenant.pk, limit=limit, before=day)
        return Page(rows, None if more is None else [more.toordinal()])
