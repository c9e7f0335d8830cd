"""A job compared with its fair share, and the cost of its preemptions, over REST."""

from uuid import UUID

from msgspec.structs import asdict

from scheduling.api.base import JobView
from scheduling.engine.executors.base import executor_traits
from scheduling.selectors.jobs.fairness import JobFairness, read_job_rho
from scheduling.selectors.jobs.preemption_costs import read_job_cost
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
