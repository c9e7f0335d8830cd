"""The submit page: both sides in step, the dry run's answer, the submission itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any
from uuid import UUID, uuid4

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from evenshare_core.units import SECOND_US
from portal.charts.notes import Addend, Note
from portal.charts.speeds import profile_words
from portal.jobs.submit_answer import Answer, answer
from portal.jobs.submit_context import (
    FORM,
    LABELS,
    YAML,
    Draft,
    Sheet,
    draft_of,
    job_spec,
    sheet_of_draft,
    sheet_of_text,
)
from portal.site.access import View, access, signed_in, tenant_or_404, tenant_pool
from portal.site.submit_links import submit_command
from scheduling.engine.clock import read_clock
from scheduling.selectors.jobs import find_tenant_job, pool_names, submitted_duration_us
from scheduling.selectors.lines import PoolFacts
from scheduling.selectors.offers import PoolOffer, pool_offer
from scheduling.selectors.prospects import StartProspect, prospects
from scheduling.services import PendingLimitError, submit_job
from scheduling.services.spec import DURATION_S
from tenants.idempotency import InFlightError, MismatchError
from tenants.input.errors import InvalidInputError
from tenants.models import Tenant, User
from tenants.permissions import Action, may_in_tenant
from tenants.scopes import site_scope, tenant_scope
from tenants.selectors.quotas import pools_of

_KEY = re.compile(r"[0-9a-f-]{36}")


@dataclass
class Desk:
    """What a tenant may submit to. `types`: (GPU type, what the tenant finds of it)."""

    tenant: Tenant
    pools: list[str]
    facts: PoolFacts | None
    offer: PoolOffer | None
    types: list[StartProspect]


def submitters_only(view: View) -> View:
    """Let in who may submit for the tenant; others of the tenant learn why not (403)."""

    @wraps(view)
    def guarded(request: HttpRequest, slug: str) -> HttpResponseBase:
        tenant = tenant_or_404(request, slug)
        if not may_in_tenant(access(request), Action.SUBMIT, tenant.pk):
            context = {"tenant": tenant, "nav_key": "jobs"}
            return render(request, "jobs/submit_refused.html", context, status=403)
        return view(request, tenant)

    return guarded


@signed_in
@require_http_methods(["GET", "HEAD", "POST"])
@submitters_only
def job_new(request: HttpRequest, tenant: Tenant) -> HttpResponseBase:
    """An empty sheet, a clone's (`?from=`), or the one that was sent."""
    if request.method == "POST":
        return _sent(request, tenant)
    pools = _pools(tenant)
    source = request.GET.get("from", "")
    draft = _cloned(tenant, source) if source else _blank(request, pools)
    sheet = sheet_of_draft(draft, tenant=tenant.slug)
    desk = _desk(request, tenant, pools, draft.pool)
    found = None
    if source:
        found = _answer(sheet, desk)
    return _page(request, desk, sheet, found)


@signed_in
@require_POST
@submitters_only
def dry_run(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """The answer, and the side that follows: fragments for the page that is open."""
    sheet = _sheet(request, tenant)
    desk = _desk(request, tenant, _pools(tenant), sheet.draft.pool)
    found = _answer(sheet, desk)
    return render(request, "jobs/submit_step.html", _context(request, desk, sheet, found))


def _sent(request: HttpRequest, tenant: Tenant) -> HttpResponseBase:
    sheet = _sheet(request, tenant)
    desk = _desk(request, tenant, _pools(tenant), sheet.draft.pool)
    notice = ""
    if "act" in request.POST and not sheet.wrong and sheet.spec is not None:
        assert isinstance(request.user, User)  # noqa: S101 - `signed_in` has seen to it
        try:
            job = submit_job(
                tenant=tenant,
                user=request.user,
                spec=sheet.spec,
                now=read_clock,
                key=_key(request),
                source="web",
            )
        except InvalidInputError as error:
            sheet.refuse(error, desk.pools)
        except MismatchError:
            notice = "used"
        except InFlightError:
            notice = "in_flight"
        except PendingLimitError as error:
            notice = f"{error.limit:,}"
        else:
            return redirect("job", job.uid)
    found = _answer(sheet, desk)
    status = 422 if "act" in request.POST else 200
    return _page(request, desk, sheet, found, notice=notice, status=status)


def _sheet(request: HttpRequest, tenant: Tenant) -> Sheet:
    """Both sides from what was sent; the side edited last counts."""
    post = request.POST
    names = (*(name for name in LABELS if name != "gpu_types"), "weight")
    typed = {name: post.get(name, "").replace("\r\n", "\n") for name in names}
    draft = Draft(**typed, gpu_types=tuple(post.getlist("gpu_types")[:16]))
    if post.get("side") == YAML and "use" not in post:
        return sheet_of_text(post.get("yaml", "").replace("\r\n", "\n"), draft, tenant=tenant.slug)
    changed = post.get("changed", "")
    if "use" in post:
        draft, changed = _resized(draft, post["use"]), "gpus"
    return sheet_of_draft(draft, tenant=tenant.slug, changed=changed if changed in LABELS else "")


def _resized(draft: Draft, gpus: str) -> Draft:
    return replace(draft, gpus=gpus[:18])


def _blank(request: HttpRequest, pools: list[str]) -> Draft:
    wanted = request.GET.get("pool", "")
    pool = wanted if wanted in pools else next(iter(pools), "")
    return Draft(pool=pool, gpus="1")


def _cloned(tenant: Tenant, source: str) -> Draft:
    """The sheet of a job of this tenant.

    Raises:
        Http404: there is none.
    """
    try:
        uid = UUID(source)
    except ValueError:
        raise Http404 from None
    with tenant_scope(tenant.pk):
        job = find_tenant_job(tenant.pk, uid)
        if job is None:
            raise Http404
        duration_us = submitted_duration_us(job)
    seconds = None if duration_us is None else duration_us // SECOND_US
    return draft_of(job_spec(job, duration_s=seconds))


def _pools(tenant: Tenant) -> list[str]:
    with site_scope():
        return pool_names(pools_of(tenant.pk))


def _desk(request: HttpRequest, tenant: Tenant, pools: list[str], pool: str) -> Desk:
    facts = tenant_pool(request, tenant, pool if pool in pools else "")
    offer, types = None, []
    if facts is not None and pool in pools:
        with tenant_scope(tenant.pk):
            offer = pool_offer(pool, tenant.pk)
            types = prospects(facts.id, tenant.pk, at=read_clock(facts.id).pool_at)
    return Desk(tenant, pools, facts, offer, types)


def _answer(sheet: Sheet, desk: Desk) -> Answer:
    free = max((kind.free for kind in desk.types), default=0)
    return answer(
        sheet, desk.offer, tenant=desk.tenant, now=read_clock, pools=desk.pools, free=free
    )


def _key(request: HttpRequest) -> str:
    sent = request.POST.get("key", "")
    return sent if _KEY.fullmatch(sent) else str(uuid4())


def _page(
    request: HttpRequest,
    desk: Desk,
    sheet: Sheet,
    found: Answer | None,
    *,
    notice: str = "",
    status: int = 200,
) -> HttpResponse:
    context = _context(request, desk, sheet, found)
    # A key that has made its job cannot make another one.
    fresh = notice == "used" or request.method != "POST"
    context |= {"key": str(uuid4()) if fresh else _key(request), "notice": notice}
    return render(request, "jobs/submit.html", context, status=status)


def _context(
    request: HttpRequest, desk: Desk, sheet: Sheet, found: Answer | None
) -> dict[str, Any]:
    from_form = sheet.side == FORM
    return {
        "tenant": desk.tenant,
        "nav_key": "jobs",
        "pool": desk.facts,
        "pools": desk.pools,
        "offer": desk.offer,
        "types": [(kind, _type_note(kind)) for kind in desk.types],
        "profiles": [] if desk.offer is None else profile_words(desk.offer.profiles),
        "known_profile": desk.offer is not None and sheet.draft.profile in desk.offer.profiles,
        "virtual": desk.offer is not None and desk.offer.executor == "virtual",
        "default_s": DURATION_S,
        "sheet": sheet,
        "error_fields": [(name, sheet.errors.get(name, [])) for name in LABELS],
        "answer": found,
        "from_form": from_form,
        "new_pool": from_form and sheet.changed == "pool",
        "source": request.GET.get("from", ""),
        "cli": submit_command({"tenant": desk.tenant.slug, **sheet.spec}) if sheet.spec else "",
    }


def _type_note(kind: StartProspect) -> Note:
    """What the tenant has of a GPU type, and what it could borrow."""
    limit = "no limit" if kind.may_borrow is None else f"{kind.may_borrow:,}"
    return Note(
        f"{kind.gpu_type} for this tenant",
        (
            Addend("quota, free of charge", f"{kind.quota:,}"),
            Addend("of it held by jobs", f"{kind.own_held:,}"),
            Addend("borrowed now", f"{kind.borrowed_held:,}"),
            Addend("may borrow at most", limit),
            Addend("free in the pool now", f"{kind.free:,}"),
        ),
        words="Whatever a job holds beyond the quota is borrowed, at the posted price.",
    )
