"""The action on an existing job: cancel. (To clone a job is to submit another one.)"""

from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from portal.common.access import access, signed_in
from portal.jobs.views.jobs import job_or_404
from scheduling.engine.clock import read_clock
from scheduling.models import Job
from scheduling.services.jobs import cancel_job
from tenants.permissions import Action, may_in_tenant


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
        messages.success(request, f"{job.name} is stopping. It may save its state first.")
    elif job.state == Job.State.CANCELLED and was_active:
        messages.success(request, f"{job.name} is cancelled.")
    else:
        messages.info(request, f"{job.name} has already ended. Nothing was changed.")
    # Keep the focus where the button was.
    return redirect(reverse("job", args=[job.uid]) + "#cancelled")
