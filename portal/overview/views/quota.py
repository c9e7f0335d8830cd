"""A tenant's requests for quota: managers ask, with an estimate of the next round, or withdraw."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from portal.charts.figures import plural
from portal.common.access import access, signed_in, tenant_or_404, tenant_pool
from portal.common.clocks import clocks, pool_now
from portal.common.forms import day_typed, text, typed_request
from portal.common.impact import ImpactLine
from portal.common.lists import key_asked
from portal.common.tenant_badges import tenant_badge
from portal.overview.forms import ASK_FIELDS, ask_fields, end_errors, total_errors, with_pool_time
from portal.overview.text.quota import change_text, impact_sentence, scaled_text
from portal.site.request_id import request_id_of
from scheduling.requests.quota_requests import QuotaAskRequest
from scheduling.selectors.pools.capacity import type_capacities
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.sharing.quota_requests import count_open_requests, list_quota_requests
from scheduling.selectors.sharing.quota_use import list_quota_use
from scheduling.selectors.sharing.quotas import counted_quotas
from scheduling.services.quota_requests import ask_quota, preview_quota, withdraw_quota
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError, invalid
from tenants.models import Tenant, User
from tenants.permissions import Action, may_in_tenant
from tenants.rate import Rate, RateError, take
from tenants.scopes import site_scope, tenant_scope

LISTED = 50
# An estimate decides a round twice. Per person: five at once, then one every 2 s.
PREVIEWS = Rate(per_s=0.5, full=5)


@signed_in
@require_http_methods(["GET", "HEAD", "POST"])
def quota(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Show a tenant's requests for quota; managers also get the form."""
    tenant = tenant_or_404(request, slug)
    facts = tenant_pool(request, tenant, request.GET.get("pool", ""))
    may = may_in_tenant(access(request), Action.ASK_QUOTA, tenant.pk)
    errors: dict[str, str] = {}
    preview: dict[str, Any] = {}
    if request.method == "POST":
        if not may:
            raise PermissionDenied
        try:
            preview = _act(request, tenant, facts)
        except InvalidInputError as error:
            errors = {
                one.field: f"{one.reason.rstrip('.')}. {one.hint}".strip() for one in error.errors
            }
            if facts is not None:
                errors |= end_errors(request.POST, pool_now(facts).pool_at)
                errors |= total_errors(request.POST, _quotas(tenant, facts))
        else:
            if not preview:
                query = f"?pool={facts.name}" if facts else ""
                return redirect(f"{reverse('quota', args=[slug])}{query}")
    context = _context(request, tenant, facts, errors)
    context |= {"may_ask": may, "preview": preview}
    return render(request, "overview/quota.html", context, status=422 if errors else 200)


def _act(request: HttpRequest, tenant: Tenant, facts: PoolFacts | None) -> dict[str, Any]:
    """Do what the button names; return the estimate if it asks for one, else an empty mapping.

    Raises:
        InvalidInputError: by field of the form.
    """
    assert isinstance(request.user, User)  # noqa: S101 - `signed_in` has seen to it
    actor, do = Actor(request.user, request_id_of(request)), text(request.POST, "do")
    if do == "withdraw":
        _withdraw(request, tenant, actor)
        return {}
    if facts is None or do not in {"preview", "ask"}:
        raise invalid("do", _("Unknown action. Reload the page."))
    posted = request.POST.copy()
    posted["until"] = day_typed(posted.get("until"))
    wanted = typed_request(QuotaAskRequest, posted, tenant=tenant.slug, pool=facts.name)
    if do == "preview":
        return _preview(request, tenant, facts, wanted)
    ask_quota(actor=actor, tenant=tenant, pool_id=facts.id, request=wanted)
    said = _("Requested a quota of {gpus} of {gpu_type}. An operator decides.")
    gpus = plural(wanted.gpus, "GPU")
    messages.success(request, said.format(gpus=gpus, gpu_type=wanted.gpu_type))
    return {}


def _withdraw(request: HttpRequest, tenant: Tenant, actor: Actor) -> None:
    try:
        uid = UUID(text(request.POST, "request"))
    except ValueError as error:
        raise Http404 from error
    if withdraw_quota(actor=actor, tenant=tenant, uid=uid) is None:
        raise Http404
    messages.success(request, _("Request withdrawn. The quota does not change."))


def _preview(
    request: HttpRequest, tenant: Tenant, facts: PoolFacts, wanted: QuotaAskRequest
) -> dict[str, Any]:
    try:
        take(f"quota-preview:{access(request).user_id}", PREVIEWS)
    except RateError as error:
        reason = _("Wait {seconds} s before another preview.")
        raise invalid("do", reason.format(seconds=error.retry_after_s)) from error
    impact = preview_quota(tenant=tenant, pool_id=facts.id, request=wanted, now=pool_now(facts))
    badge = tenant_badge(tenant)
    lines = [ImpactLine(badge, row, row.gpu_type == wanted.gpu_type) for row in impact.rows]
    return {
        "change": change_text(wanted, _quotas(tenant, facts)),
        "sentence": impact_sentence(impact, lines, wanted),
        "scaled": scaled_text(lines, wanted),
        "lines": lines,
        "number": impact.number,
        "is_estimated": impact.is_estimated,
    }


def _quotas(tenant: Tenant, facts: PoolFacts) -> dict[str, int]:
    """Return the tenant's present GPUs of quota by type."""
    with tenant_scope(tenant.pk):
        use = list_quota_use([tenant.pk], {facts.id: pool_now(facts).pool_at})
    return {row.gpu_type: row.gpus for row in use if row.gpus}


def _context(
    request: HttpRequest, tenant: Tenant, facts: PoolFacts | None, errors: dict[str, str]
) -> dict[str, Any]:
    context: dict[str, Any] = {
        "tenant": tenant, "pool": facts, "nav_key": "overview", "errors": errors,
        "trouble": " ".join(text for name, text in errors.items() if name not in ASK_FIELDS),
    }  # fmt: skip # a table
    if facts is None:
        return context
    now, quotas = pool_now(facts).pool_at, _quotas(tenant, facts)
    with tenant_scope(tenant.pk):
        counted = counted_quotas(facts.id, tenant.pk, now)
        rows, older = list_quota_requests(
            [tenant.pk], pool=facts.name, before=key_asked(request), limit=LISTED
        )
        waiting = count_open_requests(tenant.pk).get(facts.id, 0)
    with site_scope():
        kinds = [one.name for one in type_capacities(facts.id)]
    typed = request.POST if request.method == "POST" and "gpus" in request.POST else {}
    return {
        **context,
        "quotas": [(name, gpus, counted.get(name, 0)) for name, gpus in quotas.items()],
        "open_types": [row.gpu_type for row in rows if row.is_open],
        "rows": rows,
        "times": clocks(facts),
        "open": waiting,
        "older": older,
        "fields": with_pool_time(
            ask_fields(kinds, text(request.GET, "gpu_type"), typed, errors, quotas=quotas), now
        ),
    }
