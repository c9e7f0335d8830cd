"""Fair shares of jobs and tenants so far, and the cost of their preemptions, over REST."""

from uuid import UUID

from msgspec.structs import asdict

from scheduling.api.base import JobView, SharedPoolView
from scheduling.engine.clock import read_clock
from scheduling.engine.executors.base import executor_traits
from scheduling.selectors.jobs.fairness import JobFairness, read_job_rho
from scheduling.selectors.jobs.preemption_costs import read_job_cost
from scheduling.selectors.tenants.week import TenantWeek, read_week
from tenants.api.resources import Shown
from tenants.scopes import tenant_scope


class JobFairnessShow(JobView):
    """Show a job's rho, and how often rounds took its GPUs and what that cost."""

    address = "jobs/<uuid:uid>/fairness"
    operation = "job_fairness"
    answer = JobFairness

    def show(self, uid: UUID) -> JobFairness:
        job = self.job(uid)
        with tenant_scope(job.tenant_id):
            rho = read_job_rho(job)
            simulates = executor_traits(job.pool.executor).simulates
            cost = read_job_cost(job, simulates=simulates)
        return JobFairness(**asdict(rho), preemptions=cost)


class TenantWeekShow(Shown, SharedPoolView):
    """Show a tenant's last seven days in a pool: slowdown, deadlines and preemptions."""

    address = "pools/<slug:name>/week/<slug:slug>"
    operation = "tenant_week"
    answer = TenantWeek

    def show(self, name: str, slug: str) -> TenantWeek:
        facts, tenant = self.there(name, slug)
        simulates = executor_traits(facts.executor).simulates
        with tenant_scope(tenant.pk):
            at = read_clock(facts.id).pool_at
            return read_week(facts.id, tenant.pk, at=at, simulates=simulates)
