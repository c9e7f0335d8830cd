"""The plan of a job, where it says something of what the job is doing now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from evenshare_core.domain.decision import PlanKind
from evenshare_core.domain.reasons import Reason
from scheduling.models import Job, JobPlan, Lease

_OF_REFUSED = {Reason.PRICE_ABOVE_VALUE.value}
_OF_LATER = {Reason.PLANNED_LATER.value}


@dataclass(frozen=True, slots=True)
class PlanView:
    """When a job is to start or started, on what, and what that costs; or why it is refused.

    Instants of pool time; credits, prices per GPU-hour. `gain`: `value` less `cost`.
    """

    kind: str
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
    needed: Decimal
    lowest: Decimal

    @property
    def gain(self) -> Decimal:
        """What it is worth less what it costs."""
        return self.value - self.cost

    @property
    def is_refused(self) -> bool:
        """Whether its price is what keeps it waiting."""
        return self.kind == PlanKind.REFUSED.value


def read_plan(job: Job) -> PlanView | None:
    """Return the plan by which a job waits or runs; None where something else decides.

    One that waits has a plan while its reason is the plan's; one that runs, of its present lease.
    """
    row = JobPlan.objects.filter(job=job).first()
    if row is None or not _is_of_now(row, job):
        return None
    return PlanView(
        row.kind, row.round, row.at, row.gpu_type, row.gpus, row.borrowed, row.starts_at,
        row.ends_at, row.price, row.cost, row.value, row.needed, row.lowest,
    )  # fmt: skip # rows of what belongs together


def _is_of_now(plan: JobPlan, job: Job) -> bool:
    is_refused = plan.kind == PlanKind.REFUSED.value
    if job.state == Job.State.PENDING:
        return job.reason_code in (_OF_REFUSED if is_refused else _OF_LATER)
    if job.state != Job.State.RUNNING or is_refused:
        return False
    leases = Lease.objects.filter(job=job).exclude(state="ended")
    return leases.filter(granted_round=plan.round).exists()
