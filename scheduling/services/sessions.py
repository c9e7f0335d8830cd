"""Opens interactive jobs in a browser: links, one-time codes, tokens, and the proxy's questions.

A session has its own origin, `https://<job>.<SESSIONS_DOMAIN>`, where the portal's cookies do not
exist. A code enters it, once. It becomes a signed token, in a cookie of that origin only. The
proxy asks for every request whether the token is still good, and where the session's server is.
"""

import hashlib
import re
import secrets
from datetime import datetime, timedelta
from typing import Annotated, NamedTuple
from uuid import UUID

from django.conf import settings
from django.core import signing
from django.utils.translation import gettext as _

from scheduling.engine.executors.session_files import (
    SessionReport,
    idle_limit_s,
    read_session,
    session_secret,
    upstream,
)
from scheduling.models import Job, Lease, LeaseSlot, SessionCode
from tenants.answers import Answer, about, one_of
from tenants.input.errors import invalid
from tenants.language import gettext_noop
from tenants.models import User
from tenants.permissions import Action, may_in_tenant
from tenants.scopes import site_scope, tenant_scope
from tenants.selectors.access import Access, access_of

CODE_S = 60
# A token is good for this long; then its holder opens the session again.
TOKEN_S = 12 * 3600
OFF = gettext_noop("This portal has no domain for sessions. An operator sets SESSIONS_DOMAIN.")
_SALT = "evenshare.session"
_LABEL = re.compile(r"[0-9a-f]{32}")


class SessionState(Answer, frozen=True, rename={"is_ready": "ready"}):
    """Whether an interactive job can be opened now."""

    serves: Annotated[str, one_of(*Job.Session.values)]
    is_ready: Annotated[bool, about("Its server runs, and can be opened.")] = False
    idle_left_s: Annotated[
        int | None,
        about("Seconds until it has been idle for too long; null: unknown."),
    ] = None
    time_left_s: Annotated[int | None, about("Seconds until its time limit; null: none.")] = None
    problem: Annotated[str, about("Why its server does not run, as far as it reported.")] = ""


class SessionLink(Answer, frozen=True, rename={"is_ready": "ready"}):
    """A link that enters the session once, within a minute. null: it is not ready."""

    url: str | None
    session: SessionState


class SessionTarget(NamedTuple):
    """The address of a session's server, and the header that authenticates the proxy there."""

    address: str
    authorization: str


def session_state(job: Job) -> SessionState | None:
    """Return the state of an interactive job; None for other jobs."""
    if not job.session:
        return None
    lease, report = _lease_and_report(job)
    if report is None:
        return SessionState(job.session)
    is_open = lease is not None and _address(lease, report) != ""
    return SessionState(
        job.session,
        is_open,
        max(0, round(idle_limit_s(job) - report.unused_s)) if is_open else None,
        max(0, round(job.session_s - report.used_s)) if is_open and job.session_s else None,
        report.problem,
    )


def may_open(access: Access, job: Job) -> bool:
    """Return whether a person may open a session: its submitter, or all members if it is shared.

    Both must still be able to submit jobs for the tenant. Roles for the site do not count.
    """
    if access.membership_of(job.tenant_id) is None or access.user_id is None:
        return False
    is_own = job.submitted_by_id == access.user_id
    return (is_own or job.session_shared) and may_in_tenant(access, Action.SUBMIT, job.tenant_id)


def open_session(*, job: Job, user: User, now: datetime) -> SessionLink:
    """Return a link that enters a session, for a person who may open it. `now`: wall time.

    Raises:
        InvalidInputError: the job is not interactive, or sessions are off.
    """
    with tenant_scope(job.tenant_id):
        state = session_state(job)
        if state is None:
            raise invalid(
                "session", _("is not interactive"), _("Submit it with session: notebook.")
            )
        if not settings.SESSIONS_DOMAIN:
            raise invalid("session", _(OFF))
        if not state.is_ready:
            return SessionLink(None, state)
        code = secrets.token_urlsafe(32)
        SessionCode.objects.filter(job=job, expires_at__lt=now).delete()
        SessionCode.objects.create(
            code_hash=_hash(code), job=job, user=user, expires_at=now + timedelta(seconds=CODE_S)
        )
    return SessionLink(f"https://{_host(job)}/.evenshare/enter?code={code}", state)


def enter_session(*, host: str, code: str, now: datetime) -> str | None:
    """Exchange a code, once, for a token of the session on `host`; None if it is invalid there."""
    uid = session_job(host)
    with site_scope():
        held = SessionCode.objects.select_for_update(of=("self",)).select_related("job", "user")
        row = held.filter(code_hash=_hash(code)).first()
        if row is None:
            return None
        row.delete()  # also if it comes late, or to the wrong place
        if uid != row.job.uid or row.expires_at <= now:
            return None
        said = {"job": row.job.uid.hex, "user": row.user_id, "mark": _mark(row.user)}
    return signing.dumps(said, salt=_SALT)


def find_target(*, host: str, token: str) -> SessionTarget | None:
    """Return the server of the session on `host`; None if the token may not open it now."""
    uid = session_job(host)
    try:
        said = signing.loads(token, salt=_SALT, max_age=TOKEN_S)
    except signing.BadSignature:
        return None
    if uid is None or said["job"] != uid.hex:
        return None
    with site_scope():
        user = User.objects.filter(pk=said["user"], is_active=True).first()
        job = Job.objects.filter(uid=uid).first()
        # The mark changes with the person's password.
        if user is None or job is None or not secrets.compare_digest(said["mark"], _mark(user)):
            return None
        lease, report = _lease_and_report(job) if may_open(access_of(user), job) else (None, None)
        address = "" if lease is None or report is None else _address(lease, report)
    if lease is None or not address:
        return None
    return SessionTarget(address, f"token {session_secret(job, lease.number)}")


def session_job(host: str) -> UUID | None:
    """Return the id of the job whose session has this host name; None for any other host."""
    label, _, domain = host.lower().partition(".")
    if not settings.SESSIONS_DOMAIN or domain != settings.SESSIONS_DOMAIN:
        return None
    return UUID(label) if _LABEL.fullmatch(label) else None


def _lease_and_report(job: Job) -> tuple[Lease | None, SessionReport | None]:
    """Return the running lease of a job, and its newest lease's report."""
    lease = Lease.objects.filter(job=job).select_related("job", "pool").order_by("-number").first()
    if lease is None:
        return None, None
    report = read_session(job.pk, lease.number)
    return (lease if lease.state == Lease.State.RUNNING else None), report


def _address(lease: Lease, report: SessionReport) -> str:
    slots = LeaseSlot.objects.filter(lease=lease, holding=True)
    return upstream(lease, report, sorted(set(slots.values_list("node__name", flat=True))))


def _host(job: Job) -> str:
    return f"{job.uid.hex}.{settings.SESSIONS_DOMAIN}"


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def _mark(user: User) -> str:
    return str(user.get_session_auth_hash())[:16]
