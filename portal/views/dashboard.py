"""A tenant's dashboard: have, use, deserve, owe; what waits and why; what runs."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.access import signed_in, tenant_or_404


@signed_in
@require_safe
def dashboard(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Four questions in one glance."""
    tenant = tenant_or_404(request, slug)
    return render(request, "portal/dashboard.html", {"tenant": tenant, "nav_key": "overview"})
