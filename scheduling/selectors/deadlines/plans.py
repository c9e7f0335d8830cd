"""A job's plan, if it is valid for the job's present state."""

from datetime import datetime
from decimal import Decimal

from evenshare_core.domain.decision import PlanKind
from evenshare_core.domain.reasons import Reason
from scheduling.models import Job, JobPlan, Lease
from tenants.answers import Answer, answer_of

_OF_REFUSED = {Reason.PRICE_ABOVE_VALUE.value}
_OF_LATER = {Reason.PLANNED_LATER.value}


class PlanRow(Answer, frozen=True):
    """When a job is planned to start, or started, with its cost and gain; times are pool time.

    If the plan is a refusal, the job would start at the price `needed` per GPU-hour; the lowest
    price offered to it is `lowest`. Plans are not binding: each batch plans again.
    """

    kind: PlanKind
    round: int
    at: datetime
    gpu_type: str
    gpus: int
    borrowed: int
    starts_at: datetime | None
    ends_at: datetime | None
    price: Decimal
    cost: Decimal
    value: Decimal
    gain: Decimal
    needed: Decimal
    lowest: Decimal

    @property
    def is_refused(self) -> bool:
        """Whether the job waits because of its price."""
        return self.kind is PlanKind.REFUSED


def read_plan(job: Job) -> PlanRow | None:
    """Return the plan that a job currently follows, or None if no plan is valid.

    The plan of a waiting job is valid if it is the reason for the wait. The plan of a running job
    is valid if its present lease follows it.
    """
    row = JobPlan.objects.filter(job=job).first()
    if row is None or not _is_of_now(row, job):
        return None
    return answer_of(PlanRow, row, kind=PlanKind(row.kind), gain=row.value - row.cost)


def _is_of_now(plan: JobPlan, job: Job) -> bool:
    is_refused = plan.kind == PlanKind.REFUSED.value
    if job.state == Job.State.PENDING:
        return job.reason_code in (_OF_REFUSED if is_refused else _OF_LATER)
    if job.state != Job.State.RUNNING or is_refused:
        return False
    leases = Lease.objects.filter(job=job).exclude(state="ended")
    return leases.filter(granted_round=plan.round).exists()
