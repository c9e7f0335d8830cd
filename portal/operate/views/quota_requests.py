"""Requests of tenants for quota: a list, and each with its estimate, to approve or decline."""

from collections.abc import Callable
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from portal.charts.figures import plural
from portal.common.clocks import clocks, pool_now
from portal.common.forms import request_inputs, text, typed_request, whole
from portal.common.lists import key_asked
from portal.common.tenant_badges import tenant_badge
from portal.operate.text.impact import Preview, preview
from portal.operate.text.quota_requests import open_text
from portal.operate.views.console import (
    actor_of,
    console,
    console_read,
    may_change,
    no_such_button,
    page,
    pool_of_console,
)
from scheduling.engine.clock import PoolNow
from scheduling.requests.quota_requests import QuotaApprovalRequest, QuotaDeclineRequest
from scheduling.selectors.sharing.quota_requests import (
    count_open_requests,
    find_quota_request,
    list_quota_requests,
    quota_request_row,
)
from scheduling.services.quota_impact import Impact, quota_impact
from scheduling.services.quota_requests import approve_quota, decline_quota, quota_edit
from tenants.input.errors import InvalidInputError, invalid
from tenants.models import QuotaChangeRequest
from tenants.scopes import site_scope
from tenants.selectors.tenants import all_tenants
from tenants.services.quotas import GPUS_MAX, basis_of

LISTED = 50
FIELDS = ("gpus", "answer")


@console_read
def requests(request: HttpRequest) -> HttpResponse:
    """Show the requests of all tenants, newest first."""
    state, pool = request.GET.get("state", ""), request.GET.get("pool", "")
    if state not in {"", *QuotaChangeRequest.State.values}:
        raise Http404
    with site_scope():
        rows, older = list_quota_requests(
            None, pool=pool, state=state, before=key_asked(request), limit=LISTED
        )
        waiting = sum(count_open_requests().values())
    context = {
        "rows": rows,
        "older": older,
        "state": state,
        "asked_pool": pool,
        "headline": open_text(waiting),
    }
    return page(request, "quota_requests.html", context, key="quota-requests")


@console
def one(request: HttpRequest, uid: UUID) -> HttpResponse:
    """Show a request with its effect on the next round, to approve or decline it."""
    with site_scope():
        asked = find_quota_request(uid)
    if asked is None:
        raise Http404
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            act = _ACTS.get(text(request.POST, "do"), no_such_button)
            if said := act(request, asked):
                messages.success(request, said)
                return redirect("operate-quota-requests")
        except InvalidInputError as error:
            errors = error.by_field
    return _show(request, asked, errors)


def _approve(request: HttpRequest, asked: QuotaChangeRequest) -> str:
    wanted = typed_request(QuotaApprovalRequest, request.POST)
    gpus = asked.gpus if wanted.gpus is None else wanted.gpus
    if whole(request.POST.get("previewed")) != gpus:
        raise invalid("gpus", _("This number has no preview yet: check the preview first."))
    approve_quota(
        actor=actor_of(request),
        uid=asked.uid,
        basis=text(request.POST, "basis"),
        gpus=gpus,
        answer=wanted.answer,
    )
    said = _("Approved: {tenant} has a quota of {gpus} of {gpu_type}. The next round uses it.")
    return said.format(
        tenant=asked.tenant.name, gpus=plural(gpus, "GPU"), gpu_type=asked.gpu_type.name
    )


def _decline(request: HttpRequest, asked: QuotaChangeRequest) -> str:
    wanted = typed_request(QuotaDeclineRequest, request.POST)
    decline_quota(actor=actor_of(request), uid=asked.uid, answer=wanted.answer)
    said = _("Declined the request of {tenant}. Its quota does not change.")
    return said.format(tenant=asked.tenant.name)


def _preview(request: HttpRequest, _asked: QuotaChangeRequest) -> str:
    typed_request(QuotaApprovalRequest, request.POST)
    return ""


_ACTS: dict[str, Callable[[HttpRequest, QuotaChangeRequest], str]] = {
    "approve": _approve,
    "decline": _decline,
    "preview": _preview,
}


def _show(request: HttpRequest, asked: QuotaChangeRequest, errors: dict[str, str]) -> HttpResponse:
    facts = pool_of_console(request, asked.pool.name)[0]
    now = pool_now(facts)
    typed = whole(request.POST.get("gpus"))
    gpus = typed if typed is not None and 1 <= typed <= GPUS_MAX else asked.gpus
    with site_scope():
        row = quota_request_row(asked.uid)
        basis = basis_of(facts.id, now.pool_at)
    if row is None:
        raise Http404
    estimate = None
    # An estimate decides a round twice, so readers do not start one.
    if row.is_open and may_change(request):
        try:
            estimate = _estimate(asked, gpus, now)
        except InvalidInputError as error:
            errors = {"quota": " ".join(error.by_field.values()), **errors}
    context = {
        "pool": facts,
        "row": row,
        "times": clocks(facts),
        "preview": estimate,
        "gpus": gpus,
        "basis": basis,
        "trouble": " ".join(text for name, text in errors.items() if name not in FIELDS),
        "fields": request_inputs(
            QuotaApprovalRequest, FIELDS, request.POST, errors, defaults={"gpus": str(row.gpus)}
        ),
    }
    status = 422 if errors and request.method == "POST" else 200
    return page(request, "quota_request.html", context, key="quota-requests", status=status)


def _estimate(asked: QuotaChangeRequest, gpus: int, now: PoolNow) -> Preview[Impact]:
    with site_scope():
        edit = quota_edit(asked, gpus, now.pool_at)
        badges = {tenant.pk: tenant_badge(tenant) for tenant in all_tenants()}
    impact = quota_impact(pool_id=asked.pool_id, edits=[edit], since=now.pool_at, now=now)
    return preview(impact, badges, {asked.gpu_type_id: asked.gpu_type.name}, "")
