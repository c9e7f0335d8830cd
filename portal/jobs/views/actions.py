"""Actions on an existing job: cancel, hold, release, priority."""

import re
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from portal.charts.figures import thousands
from portal.common.access import access, signed_in
from portal.jobs.views.jobs import job_or_404
from portal.site.request_id import request_id_of
from scheduling.engine.clock import read_clock
from scheduling.models import Job
from scheduling.services.holds import Side, hold_job, release_hold, side_of
from scheduling.services.jobs import cancel_job
from scheduling.services.priorities import may_set_priority, set_priority
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError, invalid
from tenants.models import User
from tenants.permissions import Action, may_in_tenant

WHOLE = re.compile(r"-?[0-9]{1,4}")


@signed_in
@require_POST
def cancel(request: HttpRequest, uid: UUID) -> HttpResponseBase:
    """Cancel a job and show the result; to cancel it again does no harm."""
    job = job_or_404(request, uid)
    if not may_in_tenant(access(request), Action.CANCEL, job.tenant_id):
        raise PermissionDenied
    was_active = job.is_active
    job = cancel_job(job=job, now=read_clock(job.pool_id))
    if job.is_active:
        text = _("{name} is stopping. It may save its state first.")
        messages.success(request, text.format(name=job.name))
    elif job.state == Job.State.CANCELLED and was_active:
        messages.success(request, _("{name} is cancelled.").format(name=job.name))
    else:
        text = _("{name} has already ended. Nothing was changed.")
        messages.info(request, text.format(name=job.name))
    # Keep the focus where the button was.
    return redirect(reverse("job", args=[job.uid]) + "#cancelled")


@signed_in
@require_POST
def hold(request: HttpRequest, uid: UUID) -> HttpResponseBase:
    """Hold a waiting job; to hold it again does no harm."""
    job, side = _job_and_side(request, uid)
    try:
        hold_job(job=job, actor=_actor(request), side=side)
    except InvalidInputError as error:
        text = _("{name} is not held. {reason}")
        messages.error(request, text.format(name=job.name, reason=error.errors[0].reason))
    else:
        text = _("{name} is held: it waits until it is released.")
        messages.success(request, text.format(name=job.name))
    return _back(job)


@signed_in
@require_POST
def release(request: HttpRequest, uid: UUID) -> HttpResponseBase:
    """Release a held job; to release it again does no harm."""
    job, side = _job_and_side(request, uid)
    try:
        release_hold(job=job, actor=_actor(request), side=side, now=read_clock(job.pool_id))
    except InvalidInputError as error:
        text = _("{name} is not released. {reason}")
        messages.error(request, text.format(name=job.name, reason=error.errors[0].reason))
    else:
        messages.success(request, _("{name} is released.").format(name=job.name))
    return _back(job)


@signed_in
@require_POST
def priority(request: HttpRequest, uid: UUID) -> HttpResponseBase:
    """Set a job's priority among the jobs of its tenant."""
    job = job_or_404(request, uid)
    if not may_set_priority(access(request), job):
        raise PermissionDenied
    text = request.POST.get("priority", "").strip()
    try:
        if not WHOLE.fullmatch(text):
            raise invalid("priority", _("must be a whole number"))
        set_priority(job=job, actor=_actor(request), access=access(request), priority=int(text))
    except InvalidInputError as error:
        first = error.errors[0]
        refused = _("The priority {reason}.").format(reason=first.reason)
        messages.error(request, f"{refused} {first.hint}")
    else:
        done = _("{name} has priority {priority}.")
        messages.success(request, done.format(name=job.name, priority=thousands(int(text))))
    return _back(job)


def _back(job: Job) -> HttpResponse:
    """Return to the job's page, where its buttons are."""
    return redirect(reverse("job", args=[job.uid]) + "#acts")


def _actor(request: HttpRequest) -> Actor:
    assert isinstance(request.user, User)  # noqa: S101 - `signed_in` checked it
    return Actor(request.user, request_id_of(request))


def _job_and_side(request: HttpRequest, uid: UUID) -> tuple[Job, Side]:
    """Return a visible job, and the side on which the viewer may hold it.

    Raises:
        Http404: the viewer may not see it.
        PermissionDenied: the viewer may not hold it.
    """
    job = job_or_404(request, uid)
    side = side_of(access(request), job)
    if side is None:
        raise PermissionDenied
    return job, side
