"""The curves of a job's metrics, over REST."""

from uuid import UUID

from drf_spectacular.types import OpenApiTypes

from scheduling.api.base import JobView
from scheduling.services.job_metrics import POINTS, JobMetrics, job_metrics
from tenants.api.resources import query


class JobMetricsShow(JobView):
    """Show the curves of a job's metrics, as its program reports them, and its links."""

    address = "jobs/<uuid:uid>/metrics"
    operation = "job_metrics"
    answer = JobMetrics
    shows = ("Log.text",)
    parameters = (
        query("name", "One metric; default: all."),
        query("points", f"Points per metric, 2 to {POINTS}.", OpenApiTypes.INT),
    )

    def show(self, uid: UUID) -> JobMetrics:
        job = self.job(uid)
        points = self.number("points", least=2, most=POINTS) or POINTS
        return job_metrics(job, points=points, name=self.param("name"))
