"""The holds, releases and priorities that people set on a job, from the audit log."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef

from scheduling.models import Job
from tenants.models import AuditRecord, Membership

HELD, RELEASED, PRIORITY = "job.held", "job.unheld", "job.priority"
SHOWN = 50


@dataclass(frozen=True, slots=True)
class JobChange:
    """A change of a job by a person: `at` is wall time, `person` is empty for an operator."""

    at: datetime
    action: str
    person: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def job_subject(job: Job) -> str:
    """Return the name of a job in the audit log."""
    return f"job {job.uid}"


def job_changes(job: Job) -> list[JobChange]:
    """Return a job's last `SHOWN` changes, oldest first. A single query."""
    rows = AuditRecord.objects.filter(
        subject=job_subject(job), action__in=(HELD, RELEASED, PRIORITY)
    )
    member = Membership.objects.filter(tenant=job.tenant_id, user=OuterRef("actor"))
    rows = rows.annotate(is_member=Exists(member)).select_related("actor").order_by("-id")
    return [
        JobChange(
            at=row.at,
            action=row.action,
            person=(row.actor.get_full_name() or row.actor.username) if row.is_member else "",
            before=row.before,
            after=row.after,
        )
        for row in list(rows[:SHOWN])[::-1]
    ]
