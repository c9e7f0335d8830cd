"""Refusals for the audit log: somebody signed in asked for more than their role covers.

What a person may do to people, tokens, memberships and the site is the operators' to decide, so an
attempt is theirs to see. Nobody can fill the log with it: see `MOST`. ADR 0127.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import structlog
from django.db.models.functions import Now

from tenants.audit import SUBJECT_MAX, Actor, write_audit
from tenants.models import AuditRecord, User
from tenants.scopes import site_scope

ACTION = "access.refused"
ROLE_GONE = "The role for the site was taken away meanwhile."
# A person's attempts at one address are one record of a window, and at all addresses so many.
WINDOW, MOST = timedelta(days=1), 20
# What of a form says what was wanted. Never a password.
ASKED = ("do", "username", "role", "site_role", "slug", "name", "scopes")
ASKED_MAX = 100
log = structlog.get_logger(__name__)


def record_refusal(
    actor: Actor, subject: str, why: str, asked: Mapping[str, object] | None = None
) -> bool:
    """Record that a change was refused, in a transaction of its own; return whether it was new.

    `subject`: what was asked for, as method and address; `asked` is cut to the fields of `ASKED`.
    Each refusal is a line of the process's log as well, so what the audit log leaves out is there.
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
        # One at a time of a person: many at once count each other.
        User.objects.select_for_update(no_key=True).get(pk=actor.user.pk)
        known = _recent(actor.user)
        if subject in known or len(known) >= MOST:
            return False
        if len(known) == MOST - 1:
            why = f"{why} More of this person's refusals of this day are in the process's log only."
        write_audit(actor, ACTION, subject, after=wanted, reason=why)
    return True


def _is_new(user: User, subject: str) -> bool:
    """Whether a record would be written, without a lock: a flood is turned away here."""
    with site_scope():
        known = _recent(user)
    return subject not in known and len(known) < MOST


def _recent(user: User) -> list[str]:
    rows = AuditRecord.objects.filter(actor=user, action=ACTION, at__gt=Now() - WINDOW)
    return list(rows.order_by("-id").values_list("subject", flat=True)[:MOST])
