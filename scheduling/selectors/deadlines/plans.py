"""The plan of a job, where it says something of what the job is doing now."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from evenshare_core.domain.decision import PlanKind
from evenshare_core.domain.reasons import Reason
from scheduling.models import Job, JobPlan, Lease
from tenants.answers import Answer, answer_of

_OF_REFUSED = {Reason.PRICE_ABOVE_VALUE.value}
_OF_LATER = {Reason.PLANNED_LATER.value}


class PlanRow(Answer, frozen=True):
    """When a job is to start or started, and what it costs and gains; times are pool time.

    Of one that is refused: `needed`, the price per GPU-hour at which it would start, and `lowest`,
    the one that there was for it. A plan binds nobody: each batch makes it anew.
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
        """Whether its price is what keeps it waiting."""
        return self.kind is PlanKind.REFUSED


def read_plan(job: Job) -> PlanRow | None:
    """Return the plan by which a job waits or runs; None where something else decides.

    One that waits has a plan while its reason is the plan's; one that runs, of its present lease.
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
