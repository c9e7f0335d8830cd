"""Lending and borrowing of a tenant's quota: its settings, its offers, its price limit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from evenshare_core.money.fixed_point import to_credits
from portal.charts.figures import thousands
from portal.charts.notes import Note
from portal.charts.sentences import local_sentence
from portal.common.access import access, signed_in, tenant_or_404, tenant_pool
from portal.common.clocks import clocks, pool_now
from portal.common.forms import Field, text, typed_fields, typed_request
from portal.overview.forms import (
    BY_OFFER,
    end_errors,
    limit_fields,
    offer_fields,
    settings_fields,
    with_pool_time,
)
from portal.overview.text.sharing import limits_text, sharing_headline
from portal.site.request_id import request_id_of
from scheduling.requests.sharing import (
    OfferRequest,
    PeopleRequest,
    PeopleRule,
    PriceLimitRequest,
    SharingRequest,
)
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.sharing.settings import people_rule, price_limit_of
from scheduling.selectors.sharing.views import (
    OfferRow,
    SharingRow,
    list_offers,
    promised_return,
    sharing_views,
)
from scheduling.selectors.tenants.dashboard import last_round
from scheduling.selectors.visibility import read_visibility
from scheduling.services.sharing import (
    make_offer,
    revoke_offer,
    set_people,
    set_price_limit,
    set_sharing,
)
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError
from tenants.input.requests import read_request
from tenants.models import Tenant, User
from tenants.permissions import Action, may_in_tenant
from tenants.scopes import tenant_scope

OFFERS = 50  # rows of the table, newest first


@dataclass(frozen=True, slots=True)
class SharingTableRow:
    """A quota as a row: its settings, the operator's limits, and the form."""

    view: SharingRow
    holds: str
    about: Note
    fields: list[Field]


@dataclass(frozen=True, slots=True)
class SharingChange:
    """A change of sharing: the request, the tenant, the pool and the actor."""

    request: HttpRequest
    tenant: Tenant
    facts: PoolFacts
    actor: Actor

    def back(self, gpu_type: str) -> str:
        """Return when the tenant gets back GPUs of a type that it no longer lends."""
        times = clocks(self.facts)
        with tenant_scope(self.tenant.pk):
            now = times.now.pool_at
            promised = promised_return(self.facts, self.tenant.pk, gpu_type, now)
        return local_sentence(promised.text, times)

    def row(self, gpu_type: str) -> SharingRow | None:
        """Return the present quota of a type."""
        with tenant_scope(self.tenant.pk):
            rows = sharing_views(self.facts.id, self.tenant.pk, pool_now(self.facts).pool_at)
        return next((row for row in rows if row.gpu_type == gpu_type), None)


@signed_in
@require_http_methods(["GET", "HEAD", "POST"])
def sharing(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Show the quotas that are lent, and the offers; managers also get the forms."""
    tenant = tenant_or_404(request, slug)
    facts = tenant_pool(request, tenant, request.GET.get("pool", ""))
    may = may_in_tenant(access(request), Action.SHARE, tenant.pk)
    errors: dict[str, str] = {}
    if request.method == "POST":
        if not may:
            raise PermissionDenied
        if facts is not None:
            errors = _change(request, tenant, facts)
            if not errors:
                return redirect(f"{reverse('sharing', args=[slug])}?pool={facts.name}")
    context = _context(request, tenant, facts, errors)
    status = 422 if request.method == "POST" else 200
    return render(request, "overview/sharing.html", {**context, "may_share": may}, status=status)


def _change(request: HttpRequest, tenant: Tenant, facts: PoolFacts) -> dict[str, str]:
    """Make the form's change; return errors by field."""
    assert isinstance(request.user, User)  # noqa: S101 - `signed_in` has seen to it
    change = SharingChange(request, tenant, facts, Actor(request.user, request_id_of(request)))
    act = _ACTS.get(text(request.POST, "act"))
    if act is None:
        return {"act": _("Unknown action. Reload the page.")}
    try:
        messages.success(request, act(change))
    except InvalidInputError as error:
        errors = {one.field: f"{one.reason}. {one.hint}".strip() for one in error.errors}
        return errors | end_errors(request.POST, pool_now(facts).pool_at)
    return {}


def _set(change: SharingChange) -> str:
    posted = change.request.POST
    gpu_type = text(posted, "gpu_type")
    typed = {**typed_fields(SharingRequest, posted), "by_offer": posted.get("by_offer") == BY_OFFER}
    before = change.row(gpu_type)
    set_sharing(
        tenant=change.tenant, actor=change.actor, pool_id=change.facts.id, gpu_type=gpu_type,
        request=read_request(SharingRequest, typed), now=pool_now(change.facts).pool_at,
    )  # fmt: skip # rows of what belongs together
    after = change.row(gpu_type)
    said = _("Saved for {gpu_type}.").format(gpu_type=gpu_type)
    if before is not None and after is not None and after.lends_less_than(before):
        return f"{said} {change.back(gpu_type)}"
    return " ".join((said, _("The next round uses it.")))


def _offer(change: SharingChange) -> str:
    request = typed_request(OfferRequest, change.request.POST)
    before = change.row(request.gpu_type)
    make_offer(
        tenant=change.tenant,
        actor=change.actor,
        pool_id=change.facts.id,
        request=request,
        now=pool_now(change.facts).pool_at,
        sets_by_offer=True,
    )
    said = _("Offered {count} of {gpu_type}, from the next round on.")
    if before is not None and not before.own.by_offer:
        said = " ".join((said, _("Idle quota of {gpu_type} is lent only by offers now.")))
    return said.format(count=thousands(request.gpus), gpu_type=request.gpu_type)


def _revoke(change: SharingChange) -> str:
    try:
        uid = UUID(text(change.request.POST, "offer"))
    except ValueError as error:
        raise Http404 from error
    offer = revoke_offer(
        tenant=change.tenant,
        actor=change.actor,
        pool_id=change.facts.id,
        uid=uid,
        now=pool_now(change.facts).pool_at,
    )
    if offer is None:
        raise Http404
    return " ".join((_("Offer revoked."), change.back(offer.gpu_type.name)))


def _limit(change: SharingChange) -> str:
    typed: Mapping[str, object] = {
        "max_price": None,
        **typed_fields(PriceLimitRequest, change.request.POST),
    }
    wanted = read_request(PriceLimitRequest, typed)
    set_price_limit(
        tenant=change.tenant,
        actor=change.actor,
        pool_id=change.facts.id,
        max_price=wanted.max_price,
    )
    return _("Maximum price saved. It applies to grants and renewals from the next round on.")


def _people(change: SharingChange) -> str:
    wanted = typed_request(PeopleRequest, change.request.POST)
    set_people(
        tenant=change.tenant,
        actor=change.actor,
        pool_id=change.facts.id,
        rule=PeopleRule(wanted.people),
    )
    return _("Saved. The next round uses it.")


_ACTS: dict[str, Callable[[SharingChange], str]] = {
    "set": _set,
    "offer": _offer,
    "revoke": _revoke,
    "limit": _limit,
    "people": _people,
}


def _context(
    request: HttpRequest, tenant: Tenant, facts: PoolFacts | None, errors: dict[str, str]
) -> dict[str, Any]:
    context: dict[str, Any] = {
        "tenant": tenant, "pool": facts, "nav_key": "overview", "errors": errors, "rows": [],
    }  # fmt: skip # a table
    if facts is None:
        return context
    times = clocks(facts)
    now = times.now.pool_at
    with tenant_scope(tenant.pk):
        views = sharing_views(facts.id, tenant.pk, now)
        offers, more = list_offers(facts.id, tenant.pk, now, limit=OFFERS)
        most = price_limit_of(facts.id, tenant.pk)
        people = people_rule(facts.id, tenant.pk)
        last = last_round(facts.id, tenant.pk)
        visibility = read_visibility(facts.id, access(request))
    by_offer = [row.gpu_type for row in views if row.own.by_offer]
    typed, act = request.POST, text(request.POST, "act") if errors else ""
    here = text(typed, "gpu_type")
    of_set = {row.gpu_type for row in views if act == "set" and row.gpu_type == here}
    return {
        **context,
        "headline": sharing_headline(views, last, visibility),
        "act": act,
        "rows": [
            SharingTableRow(
                row,
                limits_text(row.effective, by_offer=row.own.by_offer),
                Note(_("The operator's limit"), text=limits_text(row.bounds)),
                settings_fields(row, typed, errors)
                if row.gpu_type in of_set
                else settings_fields(row, {}, {}),
            )
            for row in views
        ],
        "offers": offers,
        "has_more_offers": more,
        "times": times,
        "stands": _standing(offers),
        "by_offer": by_offer,
        "is_offering": act == "offer" or "offer" in request.GET,
        "max_price": None if most is None else to_credits(most),
        "is_equal": people is PeopleRule.EQUAL,
        "offer_fields": with_pool_time(
            offer_fields([row.gpu_type for row in views], typed if act == "offer" else {}, errors),
            now,
        ),
        "limit_fields": limit_fields(most, typed if act == "limit" else {}, errors),
    }


def _standing(offers: list[OfferRow]) -> int:
    return sum(offer.stands for offer in offers)
