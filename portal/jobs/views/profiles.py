"""A tenant's job types and their speeds by GPU type: declare, change and drop them."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from portal.charts.figures import thousands
from portal.charts.speeds import value_text
from portal.common.access import access, signed_in, tenant_or_404, tenant_pool
from portal.common.forms import Field, whole
from portal.jobs.text.speeds import source_text
from portal.site.request_id import request_id_of
from scheduling.models import Profile
from scheduling.requests.profiles import ProfileRequest, read_profile_request
from scheduling.selectors.jobs.tenant_jobs import pool_names
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.speeds.profiles import (
    first_profiled,
    list_profiles,
    pool_types,
)
from scheduling.services.profiles import InUseError, drop_profile, put_profile
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError
from tenants.input.requests import request_fields
from tenants.models import Tenant, User
from tenants.permissions import Action, may_in_tenant
from tenants.scopes import tenant_scope
from tenants.selectors.quotas import pools_of

SPEED = "speed-"


@signed_in
@require_http_methods(["GET", "HEAD", "POST"])
def profiles(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Show the table, with a form for users who may submit."""
    tenant = tenant_or_404(request, slug)
    facts = tenant_pool(request, tenant, _wanted(request, tenant))
    may = may_in_tenant(access(request), Action.SUBMIT, tenant.pk)
    errors: list[str] = []
    if request.method == "POST":
        if not may:
            raise PermissionDenied
        if facts is not None:
            errors = _change(request, tenant, facts)
            if not errors:
                return redirect(f"{reverse('profiles', args=[slug])}?pool={facts.name}")
    context = _context(request, tenant, facts, errors)
    status = 422 if request.method == "POST" else 200
    return render(request, "jobs/profiles.html", {**context, "may_submit": may}, status=status)


def _wanted(request: HttpRequest, tenant: Tenant) -> str:
    """Return the requested pool, by default the first in which the tenant has job types."""
    with tenant_scope(tenant.pk):
        return request.GET.get("pool", "") or first_profiled(tenant.pk)


def _change(request: HttpRequest, tenant: Tenant, facts: PoolFacts) -> list[str]:
    """Put or drop the form's job type; return the errors."""
    assert isinstance(request.user, User)  # noqa: S101 - `signed_in` has seen to it
    actor = Actor(request.user, request_id_of(request))
    name = request.POST.get("name", "").strip()[:80]
    if request.POST.get("act") == "drop":
        try:
            if drop_profile(tenant=tenant, actor=actor, pool_id=facts.id, name=name):
                messages.success(request, _("{name} is deleted.").format(name=name))
        except InUseError as error:
            text = _(
                "{name} cannot be deleted. Jobs of this type that wait or run: {count}. Cancel"
                " them, or wait until they end."
            )
            return [text.format(name=name, count=thousands(error.jobs))]
        return []
    speeds = {
        key.removeprefix(SPEED): value.strip()[:40]
        for key, value in list(request.POST.items())[:80]
        if key.startswith(SPEED) and isinstance(value, str) and value.strip()
    }
    raw: dict[str, Any] = {"speeds": speeds}
    priority = request.POST.get("priority", "").strip()
    if priority:
        number = whole(priority)
        raw["priority"] = priority[:40] if number is None else number
    try:
        wanted = read_profile_request(name, raw)
        put_profile(tenant=tenant, actor=actor, pool_id=facts.id, name=name, request=wanted)
    except InvalidInputError as error:
        return [f"{one.field} {one.reason}. {one.hint}".strip() for one in error.errors]
    messages.success(request, _("{name} is declared. The next round uses it.").format(name=name))
    return []


def _context(
    request: HttpRequest, tenant: Tenant, facts: PoolFacts | None, errors: list[str]
) -> dict[str, Any]:
    context: dict[str, Any] = {
        "tenant": tenant, "pool": facts, "nav_key": "jobs", "errors": errors, "rows": [],
    }  # fmt: skip # a table
    if facts is None:
        return context
    with tenant_scope(tenant.pk):
        types = pool_types(facts.id)
        rows = list_profiles(facts.id, [tenant.pk])
        names = pool_names(pools_of(tenant.pk))
    typed = request.POST if errors else {}
    labels = {name: one.input.label for name, one in request_fields(ProfileRequest).items()}
    return {
        **context,
        "types": types,
        "rows": [_row(row, types) for row in rows],
        "pools": names,
        "fields": [
            Field("name", _("Job type"), typed.get("name", ""), required=True),
            Field("priority", _(labels["priority"]), typed.get("priority", "1"), kind="number"),
            *(
                Field(SPEED + kind, f"{_(labels['speeds'])} {kind}", typed.get(SPEED + kind, ""))
                for kind in types
            ),
        ],
    }


def _row(row: Profile, types: list[str]) -> tuple[Profile, list[tuple[str, str | None]], str]:
    """Return a job type, its speeds by GPU type, and their source.

    A speed is None if the job type cannot run there.
    """
    speeds = ((kind, row.speedups.get(kind)) for kind in types)
    shown = [(kind, None if milli is None else value_text(milli, 3)) for kind, milli in speeds]
    return row, shown, source_text(row)
