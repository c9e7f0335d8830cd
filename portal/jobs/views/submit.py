"""The submit page: the form and the YAML, the dry run's answer, the submission."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from evenshare_core.policies import registry
from evenshare_core.units import SECOND_US
from portal.charts.figures import thousands
from portal.charts.notes import LineItem, Note
from portal.charts.speeds import profile_texts
from portal.common.access import (
    View,
    access,
    pools_of_tenant,
    signed_in,
    tenant_or_404,
    tenant_pool,
)
from portal.common.clocks import clocks
from portal.common.submit_links import submit_command
from portal.jobs.forms.fields import (
    CHOSEN,
    HIDDEN,
    LABELED,
    TYPED,
    Draft,
    draft_of,
    field_groups,
    submit_fields,
)
from portal.jobs.forms.submit import (
    FORM,
    YAML,
    JobForm,
    form_of_draft,
    form_of_text,
)
from portal.jobs.views.feasibility import Feasibility, answer_feasibility
from scheduling.engine.clock import read_clock
from scheduling.engine.executors.base import executor_traits
from scheduling.requests.job_deadline import TEXT_MAX
from scheduling.requests.jobs import DURATION_S
from scheduling.requests.sweeps import is_sweep
from scheduling.selectors.jobs.clones import free_job_name, submitted_duration_us
from scheduling.selectors.jobs.requests import job_as_request
from scheduling.selectors.jobs.sweeps import find_visible_sweep, stored_request
from scheduling.selectors.jobs.tenant_jobs import (
    find_tenant_job,
    pool_names,
)
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.pools.offers import PoolOffer, pool_offer
from scheduling.selectors.tenants.prospects import StartProspect, prospects
from scheduling.services.submit import PendingLimitError, submit_job
from scheduling.services.sweeps import submit_sweep
from tenants.idempotency import InFlightError, MismatchError
from tenants.input.errors import InvalidInputError
from tenants.models import Tenant, User
from tenants.permissions import Action, may_in_tenant
from tenants.rate import RateError
from tenants.scopes import tenant_scope
from tenants.selectors.quotas import pools_of

_KEY = re.compile(r"[0-9a-f-]{36}")


@dataclass
class SubmitContext:
    """The tenant and the pool of a submission. `types`: what each GPU type offers the tenant."""

    tenant: Tenant
    pools: list[str]
    facts: PoolFacts | None
    offer: PoolOffer | None
    types: list[StartProspect]


def submitters_only(view: View) -> View:
    """Restrict a view to users who may submit for the tenant; other members see why (403)."""

    @wraps(view)
    def guarded(request: HttpRequest, slug: str) -> HttpResponseBase:
        tenant = tenant_or_404(request, slug)
        if not may_in_tenant(access(request), Action.SUBMIT, tenant.pk):
            pool = request.GET.get("pool", "")
            if pool in pools_of_tenant(request, tenant.pk):
                tenant_pool(request, tenant, pool)
            context = {"tenant": tenant, "nav_key": "jobs"}
            return render(request, "jobs/submit_refused.html", context, status=403)
        return view(request, tenant)

    return guarded


@signed_in
@require_http_methods(["GET", "HEAD", "POST"])
@submitters_only
def job_new(request: HttpRequest, tenant: Tenant) -> HttpResponseBase:
    """Show an empty form, a clone's (`?from=`, with a new `deadline`), or handle a submission."""
    if request.method == "POST":
        return _sent(request, tenant)
    pools = _pools(tenant)
    source = request.GET.get("from", "")
    draft = _cloned(tenant, source) if source else _blank(request, tenant, pools)
    if of := request.GET.get("sweep", ""):
        draft = _sweep_draft(tenant, of)
    if source and (due := request.GET.get("deadline", "")[:TEXT_MAX]):
        draft = Draft({**draft, "deadline": due})
    form = form_of_draft(draft, tenant=tenant.slug)
    target = _target(request, tenant, pools, draft["pool"])
    answer = _answer(request, form, target) if source else None
    return _page(request, target, form, answer)


@signed_in
@require_POST
@submitters_only
def dry_run(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Return the answer and the updated form or YAML, as fragments for the open page."""
    form = _form(request, tenant)
    target = _target(request, tenant, _pools(tenant), form.draft["pool"])
    answer = _answer(request, form, target)
    return render(request, "jobs/submit_step.html", _context(request, target, form, answer))


def _sent(request: HttpRequest, tenant: Tenant) -> HttpResponseBase:
    form = _form(request, tenant)
    target = _target(request, tenant, _pools(tenant), form.draft["pool"])
    notice, wait_s = "", 0
    if "act" in request.POST and not form.wrong and form.spec is not None:
        assert isinstance(request.user, User)  # noqa: S101 - `signed_in` has seen to it
        try:
            place = _submitted(request, tenant, request.user, form.spec)
        except InvalidInputError as error:
            form.refuse(error, target.pools)
        except MismatchError:
            notice = "used"
        except InFlightError:
            notice = "in_flight"
        except RateError as error:
            notice, wait_s = "too_fast", error.retry_after_s
        except PendingLimitError as error:
            notice = thousands(error.limit)
        else:
            return place
    answer = _answer(request, form, target)
    status = 429 if wait_s else 422 if "act" in request.POST else 200
    page = _page(request, target, form, answer, notice=notice, status=status)
    if wait_s:
        page["Retry-After"] = str(wait_s)
    return page


def _submitted(
    request: HttpRequest, tenant: Tenant, user: User, spec: Mapping[str, object]
) -> HttpResponseBase:
    """Submit a job or a sweep, and redirect to its page."""
    given: dict[str, Any] = {
        "tenant": tenant, "user": user, "spec": spec, "now": read_clock, "key": _key(request),
        "source": "web",
    }  # fmt: skip # rows of what belongs together
    if is_sweep(spec):
        return redirect("sweep", submit_sweep(**given).row.uid)
    return redirect("job", submit_job(**given).row.uid)


def _form(request: HttpRequest, tenant: Tenant) -> JobForm:
    """Return the form and the YAML from the request; the one edited last counts."""
    post = request.POST
    typed = {name: post.get(name, "").replace("\r\n", "\n") for name in TYPED}
    draft = Draft({**typed, CHOSEN: tuple(post.getlist(CHOSEN)[:16])})
    if post.get("side") == YAML and "use" not in post:
        return form_of_text(post.get("yaml", "").replace("\r\n", "\n"), draft, tenant=tenant.slug)
    changed = post.get("changed", "")
    if "use" in post:
        draft, changed = _resized(draft, post["use"]), "gpus"
    return form_of_draft(draft, tenant=tenant.slug, changed=changed if changed in LABELED else "")


def _resized(draft: Draft, gpus: str) -> Draft:
    return Draft({**draft, "gpus": gpus[:18]})


def _blank(request: HttpRequest, tenant: Tenant, pools: list[str]) -> Draft:
    """Return an empty form for the pool in the query, by default the tenant's first."""
    wanted = request.GET.get("pool", "")
    pool = wanted if wanted in pools else next(iter(pools_of_tenant(request, tenant.pk)), "")
    return Draft(pool=pool, gpus="1")


def _cloned(tenant: Tenant, source: str) -> Draft:
    """Return a form with the fields of a job of this tenant, and a new name.

    Raises:
        Http404: the job does not exist.
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
        duration_s = None if duration_us is None else duration_us // SECOND_US
        named = {"name": free_job_name(tenant.pk, job.name)} if job.name else {}
        return draft_of({**job_as_request(job, duration_s=duration_s), **named})


def _sweep_draft(tenant: Tenant, source: str) -> Draft:
    """Return a form with the request of a sweep of this tenant.

    Raises:
        Http404: the sweep does not exist.
    """
    try:
        uid = UUID(source)
    except ValueError:
        raise Http404 from None
    with tenant_scope(tenant.pk):
        sweep = find_visible_sweep(uid, [tenant.pk])
    if sweep is None:
        raise Http404
    return draft_of(stored_request(sweep))


def _pools(tenant: Tenant) -> list[str]:
    with tenant_scope(tenant.pk):
        return pool_names(pools_of(tenant.pk))


def _target(request: HttpRequest, tenant: Tenant, pools: list[str], pool: str) -> SubmitContext:
    facts = tenant_pool(request, tenant, pool if pool in pools else "")
    offer, types = None, []
    if facts is not None and pool in pools:
        with tenant_scope(tenant.pk):
            offer = pool_offer(pool, tenant.pk)
            types = prospects(facts.id, tenant.pk, at=read_clock(facts.id).pool_at)
    return SubmitContext(tenant, pools, facts, offer, types)


def _answer(request: HttpRequest, form: JobForm, target: SubmitContext) -> Feasibility:
    assert isinstance(request.user, User)  # noqa: S101 - the views are `signed_in`
    return answer_feasibility(
        form, target.offer, tenant=target.tenant, user=request.user, now=read_clock,
        pools=target.pools, free=max((kind.free for kind in target.types), default=0),
    )  # fmt: skip # rows of what belongs together


def _key(request: HttpRequest) -> str:
    sent = request.POST.get("key", "")
    return sent if _KEY.fullmatch(sent) else str(uuid4())


def _page(
    request: HttpRequest,
    target: SubmitContext,
    form: JobForm,
    answer: Feasibility | None,
    *,
    notice: str = "",
    status: int = 200,
) -> HttpResponse:
    context = _context(request, target, form, answer)
    # A key that has made a job cannot make another.
    fresh = notice == "used" or request.method != "POST"
    context |= {"key": str(uuid4()) if fresh else _key(request), "notice": notice}
    return render(request, "jobs/submit.html", context, status=status)


def _context(
    request: HttpRequest, target: SubmitContext, form: JobForm, answer: Feasibility | None
) -> dict[str, Any]:
    from_form = form.side == FORM
    offer = target.offer
    is_simulated = offer is not None and executor_traits(offer.executor).simulates
    fields = submit_fields(
        form.draft,
        form.errors,
        is_simulated=is_simulated,
        has_sessions=bool(settings.SESSIONS_DOMAIN) and not is_simulated,
    )
    return {
        "tenant": target.tenant,
        "nav_key": "jobs",
        "pool": target.facts,
        "pools": target.pools,
        "offer": offer,
        "types": [(kind, _type_note(kind)) for kind in target.types],
        "profiles": [] if offer is None else profile_texts(offer.profiles),
        "known_profile": target.offer is not None
        and form.draft["profile"] in target.offer.profiles,
        "is_simulated": is_simulated,
        "default_s": DURATION_S,
        "form": form,
        "fields": fields,
        "groups": field_groups(fields, opened=_opened(offer)),
        "hidden": [(name, form.draft[name]) for name in HIDDEN],
        "error_fields": [(name, form.errors[name]) for name in fields],
        "answer": answer,
        "times": None if target.facts is None else clocks(target.facts),
        "from_form": from_form,
        # A later edit may replace the request of the edit that chose the pool.
        "new_pool": from_form and request.POST.get("shown_pool") != form.draft["pool"],
        "source": request.GET.get("from", ""),
        **_shell(target.tenant, form),
    }


def _opened(offer: PoolOffer | None) -> tuple[str, ...]:
    """Return the groups of inputs that the pool's policy uses."""
    is_known = offer is not None and offer.policy in registry.POLICIES
    if offer is None or not is_known:
        return ()
    return ("deadlines",) if registry.traits(offer.policy).answers_deadlines else ()


def _shell(tenant: Tenant, form: JobForm) -> dict[str, Any]:
    """Return the equivalent command line; empty without a command, which `evenshare` requires."""
    if not form.spec:
        return {"cli": "", "needs_command": False}
    if not form.spec.get("command"):
        return {"cli": "", "needs_command": True}
    cli = submit_command({"tenant": tenant.slug, **form.spec})
    return {"cli": cli, "needs_command": False}


def _type_note(kind: StartProspect) -> Note:
    """Return the tenant's quota of a GPU type, and how much of the type it may borrow."""
    limit = _("no limit") if kind.may_borrow is None else thousands(kind.may_borrow)
    return Note(
        _("{gpu_type} for this tenant").format(gpu_type=kind.gpu_type),
        (
            LineItem(_("quota, free of charge"), thousands(kind.quota)),
            LineItem(_("of the quota, in use"), thousands(kind.own_held)),
            LineItem(_("borrowed now"), thousands(kind.borrowed_held)),
            LineItem(_("may borrow at most"), limit),
            LineItem(_("free in the pool now"), thousands(kind.free)),
        ),
        text=_("GPUs beyond the quota are borrowed at the posted price."),
    )
