"""A tenant's jobs, and one job."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.access import signed_in, tenant_or_404


@signed_in
@require_safe
def job_list(request: HttpRequest, slug: str) -> HttpResponseBase:
    """The jobs of a tenant, newest first."""
    tenant = tenant_or_404(request, slug)
    return render(request, "portal/job_list.html", {"tenant": tenant, "nav_key": "jobs"})


@signed_in
@require_safe
def job_page(_request: HttpRequest, uid: UUID) -> HttpResponseBase:
    """One job."""
    raise Http404(uid)
