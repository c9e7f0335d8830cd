"""The audit log: the actor, the time, and the values before and after each change.

A record is written in the transaction of its change. The table is append-only: Postgres refuses
UPDATE, DELETE and TRUNCATE.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.utils.translation import gettext as _

from tenants.answers import Answer, answer_of
from tenants.input.errors import invalid
from tenants.input.readers import REASON_MAX
from tenants.models import AuditRecord, User
from tenants.selectors.quota_records import name_periods

PAGE, SUBJECT_MAX = 50, 140


@dataclass(frozen=True, slots=True)
class Actor:
    """The user who makes a change, and the id of the request."""

    user: User
    request_id: str = ""


def write_audit(
    actor: Actor,
    action: str,
    subject: str,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    reason: str = "",
) -> AuditRecord:
    """Record a change in the running transaction.

    Raises:
        RuntimeError: no transaction is open, so record and change could be separated.
        InvalidInputError: the reason is longer than the log allows.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("an audit record must be in the transaction of its change")
    if len(reason) > REASON_MAX:
        raise invalid("reason", _("Enter at most {most} characters.").format(most=REASON_MAX))
    return AuditRecord.objects.create(
        actor=actor.user,
        action=action,
        subject=subject,
        before=dict(before or {}),
        after=dict(after or {}),
        reason=reason,
        request_id=actor.request_id,
    )


def changed(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields in which two states differ, from each of them."""
    names = [name for name in after if before.get(name) != after[name]]
    return {name: before.get(name) for name in names}, {name: after[name] for name in names}


class AuditRow(Answer, frozen=True):
    """An audit record: the actor, the time (wall time), and the values that differ."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    before: dict[str, Any]
    after: dict[str, Any]
    reason: str
    request_id: str


def audit_page(
    *,
    action: str = "",
    subject: str = "",
    actor: str = "",
    before_id: int | None = None,
    limit: int = PAGE,
) -> tuple[list[AuditRow], int | None]:
    """Return records, newest first, and the key of the next page (None on the last page).

    Empty arguments match all; `action` may be a prefix, `subject` is a part of the subject.
    """
    rows = AuditRecord.objects.select_related("actor").order_by("-id")
    if action:
        rows = rows.filter(action__startswith=action)
    if subject:
        rows = rows.filter(subject__contains=subject)
    if actor:
        rows = rows.filter(actor__username=actor)
    if before_id is not None:
        rows = rows.filter(pk__lt=before_id)
    page = list(rows[: limit + 1])
    name_periods(page[:limit])
    return list(map(_row, page[:limit])), page[limit - 1].pk if len(page) > limit else None


def _row(row: AuditRecord) -> AuditRow:
    return answer_of(AuditRow, row, actor=row.actor.get_username())


def last_record(subject: str, actions: Collection[str]) -> AuditRecord | None:
    """Return the newest record of some actions on a subject, or None, with one query."""
    rows = AuditRecord.objects.filter(subject=subject, action__in=actions)
    return rows.order_by("-id").first()
