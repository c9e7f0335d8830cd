"""Refusals for the audit log: attempts of signed-in people at more than their role allows.

Operators decide about people, tokens, memberships and the site, so they should see such attempts.
The number of records is limited: see `MOST`.
"""

from collections.abc import Mapping
from datetime import timedelta

import structlog
from django.db.models.functions import Now

from tenants.audit import SUBJECT_MAX, Actor, write_audit
from tenants.models import AuditRecord, User
from tenants.scopes import site_scope

ACTION = "access.refused"
ROLE_GONE = "The site role was removed meanwhile."
# At most one record is kept per person, URL and window, and at most this many per person and
# window.
WINDOW, MOST = timedelta(days=1), 20
# Fields of a form that show the attempt. Never a password.
ASKED = ("do", "username", "role", "site_role", "slug", "name", "scopes")
ASKED_MAX = 100
log = structlog.get_logger(__name__)


def record_refusal(
    actor: Actor, subject: str, why: str, asked: Mapping[str, object] | None = None
) -> bool:
    """Record a refused change, in its own transaction; return whether it was new.

    `subject`: method and URL; `asked` is reduced to the fields of `ASKED`. Each refusal is also
    written to the process's log, even if the audit log omits it.
    """
    subject = subject[:SUBJECT_MAX]
    log.info(ACTION, person=actor.user.get_username(), subject=subject, reason=why)
    wanted = {
        name: str(value)[:ASKED_MAX]
        for name, value in (asked or {}).items()
        if name in ASKED and value not in ("", None)
    }
    if not _is_new(actor.user, subject):
        return False
    with site_scope():
        # Serialized per person: concurrent attempts count each other.
        User.objects.select_for_update(no_key=True).get(pk=actor.user.pk)
        known = _recent(actor.user)
        if subject in known or len(known) >= MOST:
            return False
        if len(known) == MOST - 1:
            why = f"{why} More refusals of this person on this day are only in the process's log."
        write_audit(actor, ACTION, subject, after=wanted, reason=why)
    return True


def _is_new(user: User, subject: str) -> bool:
    """Return whether a record would be written.

    This takes no lock, so a flood of attempts is stopped early.
    """
    with site_scope():
        known = _recent(user)
    return subject not in known and len(known) < MOST


def _recent(user: User) -> list[str]:
    rows = AuditRecord.objects.filter(actor=user, action=ACTION, at__gt=Now() - WINDOW)
    return list(rows.order_by("-id").values_list("subject", flat=True)[:MOST])
