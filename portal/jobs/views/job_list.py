"""A tenant's jobs: the list with its filters, and what people do with it."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from evenshare_core.units import HOUR_US
from portal.charts.figures import duration
from portal.charts.notes import Instant
from portal.common.access import access, signed_in, tenant_or_404, tenant_pool
from portal.common.clocks import Clocks, clocks_by_pool
from portal.common.compare_links import COMPARED_MAX, compare_url
from portal.common.forms import whole
from portal.common.standings import standing_badge
from portal.common.submit_links import submit_links
from portal.jobs.text.acted import AskedCancel, acted_title, asked_cancel
from portal.jobs.text.job import state_badge
from portal.jobs.text.job_list import (
    COLUMNS,
    SORT_TEXTS,
    SORTS,
    USUAL,
    column_heads,
    columns_of,
    ignored_text,
    match_text,
    state_label,
)
from portal.jobs.text.start import queues_text
from portal.jobs.text.sweeps import sweep_views
from portal.site.request_id import request_id_of
from scheduling.engine.clock import read_clock
from scheduling.models import Job
from scheduling.requests.job_filters import ME, OLDEST, TEXT_MAX, read_job_query, refuse_active
from scheduling.requests.job_tags import split_tags
from scheduling.selectors.deadlines.answers import DeadlineStory
from scheduling.selectors.jobs import tenant_jobs as read
from scheduling.selectors.jobs.lists import find_visible_jobs
from scheduling.selectors.jobs.phases import phase_named
from scheduling.selectors.jobs.queue_order import QueueKey, QueueMark
from scheduling.selectors.jobs.sorted_jobs import SortMark
from scheduling.selectors.jobs.sweeps import active_sweeps, sweep_rows
from scheduling.selectors.pools.executors import pools_by_name
from scheduling.selectors.pools.lines import pools_named
from scheduling.services.job_actions import ACTIONS, JOBS_MAX, act_on_jobs
from tenants.audit import Actor
from tenants.input.errors import FieldErrors, InvalidInputError
from tenants.models import Tenant, User
from tenants.permissions import Action, may_in_tenant, seen_tenants
from tenants.rate import RateError
from tenants.scopes import site_scope, tenant_scope, tenants_scope
from tenants.selectors.job_lists import saved_filters
from tenants.selectors.people import member_names, person_id_named
from tenants.selectors.quotas import pools_of
from tenants.services.job_lists import choose_columns, delete_filter, save_filter

# Filters for ended jobs. With such a filter, the list shows no warning of a silent cluster.
OVER = frozenset({"succeeded", "failed", "cancelled"})
_SORT_MARK = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})\.([0-9]{1,18})")
_MARK = re.compile(r"([0-9]{1,18})\.([0-2])\.([0-9]{1,18})\.([0-9]{1,18})\.([-a-zA-Z0-9_]{1,63})")


@signed_in
@require_safe
def job_list(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Show the jobs of a tenant, newest first, filtered by the query."""
    tenant = tenant_or_404(request, slug)
    errors = FieldErrors()
    wanted = _filter(request, errors)
    pool = tenant_pool(request, tenant, wanted.pool)
    query = urlencode(_kept(wanted))
    with tenant_scope(tenant.pk):
        page = read.jobs_page(tenant.pk, wanted)
        counts = read.active_counts(tenant.pk)
        matches = read.count_matches(tenant.pk, wanted) if query else 0
        pools = pools_by_name(pools_of(tenant.pk))
        has_sweeps = not (wanted.is_later or wanted.is_narrowed)
        sweeps = active_sweeps(tenant.pk, pool=wanted.pool) if has_sweeps else []
        sweep_panels = sweep_views(sweep_rows(sweeps, ""))
    silent = [
        one
        for name, one in pools.items()
        if one and wanted.pool in ("", name) and wanted.state not in OVER
    ]
    on_page = {row.job.pool.name for row in page.rows}
    times = clocks_by_pool(pools_named(on_page)) if on_page else {}
    with tenant_scope(tenant.pk):
        standings = page.standings({name: clock.now.pool_at for name, clock in times.items()})
    return render(
        request,
        "jobs/job_list.html",
        {
            "tenant": tenant,
            **submit_links(access(request), tenant, pool.name if pool else ""),
            **_choices(request, tenant, wanted, errors),
            **_columns(request, wanted, page),
            "nav_key": "jobs",
            # Ended jobs do not change.
            "live": not (wanted.is_later or wanted.query.is_by_value),
            "wanted": wanted,
            "narrowed": bool(query),
            "unknown_state": request.GET.get("state", "")[:TEXT_MAX] if not wanted.state else "",
            "ignored": [(ignored_text(one), one.hint) for one in errors],
            "match_text": match_text(wanted, matches),
            "query": query,
            "counts": counts,
            "page": page,
            "next_after": _mark_text(page.next_after),
            "next_mark": ".".join(map(str, page.next_beyond or ())),
            "goes_on": page.queues.get(wanted.after.pool) if wanted.after else None,
            "queues_text": queues_text(page.queues),
            "pools": list(pools),
            "silent": silent,
            "sweeps": sweep_panels,
            "names_pool": len(pools) > 1,
            "states": {state: state_label(state) for state in read.STATES},
            "rows": _rows(page, standings, times, wanted),
            "has_deadlines": bool(standings),
        },
    )


def _choices(
    request: HttpRequest, tenant: Tenant, wanted: read.JobFilter, errors: FieldErrors
) -> dict[str, Any]:
    """Return what the viewer may choose: submitters, kept filters, columns and actions."""
    user, asked = _person(request), wanted.query
    with site_scope():
        names = member_names(tenant.pk)
    with tenant_scope(tenant.pk):
        kept = saved_filters(user.pk, tenant.pk)
    known = (*names, ME, "")
    kept_values = _kept(wanted)
    unset = {"q", "sort", *(error.top_field for error in errors)}
    may_act = may_in_tenant(access(request), Action.CANCEL, tenant.pk)
    return {
        "submitters": names if asked.submitter in known else [*names, asked.submitter],
        "is_mine": asked.submitter in (ME, user.username) and wanted.submitter == user.pk,
        "is_member": access(request).membership_of(tenant.pk) is not None,
        "active_filters": len(kept_values.keys() - unset),
        "everyone_query": urlencode(
            {name: value for name, value in kept_values.items() if name != "submitter"}
        ),
        "is_oldest_first": asked.sort == OLDEST,
        "sorts": {name: _(text) for name, text in SORTS.items()},
        "sort_text": _(SORT_TEXTS.get(asked.sort, "")),
        "saved": [(one.name, one.query) for one in kept],
        "actions": ACTIONS if may_act else {},
    }


def _columns(
    request: HttpRequest, wanted: read.JobFilter, page: read.JobListPage
) -> dict[str, Any]:
    """Return the columns that the viewer chose, and that of the list's order."""
    is_queue = wanted.state == "pending" and any(one.is_ordered for one in page.queues.values())
    order = "position" if is_queue else wanted.query.sort
    columns = columns_of(_person(request).job_columns, order)
    return {
        "columns": columns,
        "heads": column_heads(columns, _kept(wanted)),
        "all_columns": {name: _(text) for name, text in COLUMNS.items()},
    }


def _filter(request: HttpRequest, errors: FieldErrors) -> read.JobFilter:
    """Return the filter of the query; unknown values are ignored."""
    get = request.GET
    state = _state_named(get.get("state", ""))
    before = get.get("before", "") if state != "pending" else ""
    query = read_job_query({name: ",".join(get.getlist(name)) for name in get}, errors)
    query = refuse_active(query, errors, has_ended=not state or state in OVER)
    return read.JobFilter(
        state=state,
        pool=get.get("pool", ""),
        before=int(before) if _is_key(before) and not query.is_by_value else None,
        after=_mark(get.get("after", "")) if state == "pending" else None,
        beyond=_sort_mark(get.get("beyond", "")) if query.is_by_value else None,
        query=query,
        submitter=_submitter(request, query.submitter),
    )


def _submitter(request: HttpRequest, name: str) -> int | None:
    """Return the id of the person with this login name; 0 if no person has it."""
    if not name or name == ME:
        return _person(request).pk if name else None
    with site_scope():
        return person_id_named(name)


def _person(request: HttpRequest) -> User:
    user = request.user
    if not isinstance(user, User):
        raise PermissionDenied
    return user


def _kept(wanted: read.JobFilter) -> dict[str, str]:
    """Return the filter as the values of a URL, without the page."""
    asked = dict(wanted.query.kept)
    kept = {"state": wanted.state, "q": asked.pop("q", ""), "pool": wanted.pool, **asked}
    return {key: value for key, value in kept.items() if value}


def _state_named(text: str) -> str:
    """Return the filter of this name, in any letter case; empty for unknown names."""
    word = text.strip().lower()
    word = word if word in read.STATES else phase_named(word) or ""
    return word if word in read.STATES else ""


def _is_key(text: str) -> bool:
    return text.isdecimal() and len(text) < 19


def _sort_mark(text: str) -> SortMark | None:
    """Return the mark of a query value, or None if it is missing or malformed."""
    match = _SORT_MARK.fullmatch(text)
    return SortMark(*map(int, match.groups())) if match else None


def _mark_text(mark: QueueMark | None) -> str:
    """Return the query value of a queue mark: numbers, and the pool's name."""
    return "" if mark is None else ".".join(map(str, (mark.round, *mark.key, mark.pool)))


def _mark(text: str) -> QueueMark | None:
    """Return the queue mark of a query value, or None if it is missing or malformed."""
    match = _MARK.fullmatch(text)
    if match is None:
        return None
    *numbers, pool = match.groups()
    round_, *key = map(int, numbers)
    return QueueMark(pool, round_, QueueKey(*key))


def _rows(
    page: read.JobListPage,
    standings: Mapping[int, DeadlineStory],
    times: Mapping[str, Clocks],
    wanted: read.JobFilter,
) -> list[dict[str, Any]]:
    """Return the rows of a page, by the wall time of submission if the list is in that order."""
    rows = [_row(row, standings.get(row.job.pk), times[row.job.pool.name]) for row in page.rows]
    if wanted.state == "pending" or wanted.query.is_by_value:
        return rows
    # Pages follow ids, but a trace's job may be submitted by its pool's clock before it is created.
    newest_first = wanted.query.sort != OLDEST
    return sorted(rows, key=lambda row: row["submitted"].wall, reverse=newest_first)


def _row(row: read.JobListRow, story: DeadlineStory | None, clock: Clocks) -> dict[str, Any]:
    """Return a job's row, on the clock of its pool."""
    job = row.job
    end = job.first_started_at or job.ended_at or clock.now.pool_at
    return {
        "listed": row,
        "job": job,
        "standing": standing_badge(story, clock) if story is not None else None,
        "badge": state_badge(row.phase, is_quarantined=bool(job.quarantine), is_held=job.is_held),
        "submitted": _submitted(job, clock),
        "ended": clock.instant(job.ended_at),
        "gpu_hours": None if job.received_gpu_us is None else job.received_gpu_us / HOUR_US,
        "waited_s": max(0.0, (end - job.arrived_at).total_seconds()),
    }


def _submitted(job: Job, clock: Clocks) -> Instant | None:
    """Return the submission; its wall time is the row's if the pool's clock was set again since."""
    at = clock.instant(job.submitted_at)
    return replace(at, wall=job.created_at) if at is not None and at.wall is None else at


@signed_in
@require_POST
def act(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Act on the checked jobs, and show what was done to each; a cancellation asks before."""
    tenant = tenant_or_404(request, slug)
    if request.POST.get("action") == "compare":
        return _compare(request, tenant)
    if not may_in_tenant(access(request), Action.CANCEL, tenant.pk):
        raise PermissionDenied
    name = request.POST.get("action", "")
    action = ACTIONS.get(name)
    raw = {
        "action": name,
        "jobs": request.POST.getlist("job"),
        **_value_of(request, action.takes if action else ""),
    }
    if name == "cancel" and (asked := _question(request)):
        context = {
            "tenant": tenant,
            "nav_key": "jobs",
            "asked": asked,
            "jobs": raw["jobs"],
            "query": request.POST.get("query", ""),
            "back": _back_url(request, tenant),
        }
        return render(request, "jobs/cancel_many.html", context)
    try:
        actor = Actor(_person(request), request_id_of(request))
        rows = act_on_jobs(actor=actor, access=access(request), raw=raw, now=read_clock)
    except InvalidInputError as error:
        has_jobs = bool(raw["jobs"])
        messages.error(request, f"{error}." if has_jobs else _("Select at least one job."))
        return _back(request, tenant)
    except RateError as error:
        wait = duration(error.retry_after_s)
        messages.error(request, _("Too many actions: try again in {time}.").format(time=wait))
        return _back(request, tenant)
    context = {
        "tenant": tenant,
        "nav_key": "jobs",
        "action": action,
        "title": acted_title(name, rows),
        "rows": rows,
        "back": _back_url(request, tenant),
    }
    return render(request, "jobs/acted.html", context)


def _question(request: HttpRequest) -> AskedCancel | None:
    """Return the question before jobs are cancelled; None if it is answered, or none can be."""
    tenants = seen_tenants(access(request))
    with tenants_scope(tenants):
        jobs = [
            job
            for job in find_visible_jobs(_uids(request, "job")[:JOBS_MAX], tenants)
            if job.is_active
            and job.cancel_asked_at is None
            and may_in_tenant(access(request), Action.CANCEL, job.tenant_id)
        ]
    known = set(_uids(request, "running"))
    started = [job for job in jobs if job.state != Job.State.PENDING and job.uid not in known]
    is_asked = bool(request.POST.get("asked"))
    if not jobs or (is_asked and not started):
        return None
    return asked_cancel(jobs, started if is_asked else ())


def _compare(request: HttpRequest, tenant: Tenant) -> HttpResponseBase:
    """Open the comparison of the checked jobs, which shows only those that the viewer may see."""
    uids = _uids(request, "job")
    if 2 <= len(uids) <= COMPARED_MAX:
        return redirect(compare_url(uids))
    messages.error(request, _("Select 2 to {most} jobs to compare.").format(most=COMPARED_MAX))
    return _back(request, tenant)


def _uids(request: HttpRequest, field: str) -> list[UUID]:
    """Return the ids in a field of the form, each once; others are ignored."""
    named = (_uuid(text) for text in request.POST.getlist(field))
    return [uid for uid in dict.fromkeys(named) if uid is not None]


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _value_of(request: HttpRequest, name: str) -> dict[str, object]:
    """Return the value that an action takes."""
    text = request.POST.get(name, "")
    if name == "tags":
        return {name: split_tags(text)}
    number = whole(text)
    return {name: text if number is None else number} if name else {}


@signed_in
@require_POST
def keep_filter(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Keep the list's filters under a name, or delete the filters of this name."""
    tenant, post = tenant_or_404(request, slug), request.POST
    name, query = post.get("name", ""), urlencode(_asked(post))
    if post.get("act") == "delete":
        delete_filter(user=_person(request), tenant_id=tenant.pk, name=name)
        messages.success(request, _("“{name}” is deleted.").format(name=name[:TEXT_MAX]))
        return _back(request, tenant)
    try:
        save_filter(user=_person(request), tenant_id=tenant.pk, name=name, query=query)
        messages.success(request, _("Saved as “{name}”.").format(name=name.strip()))
    except InvalidInputError as error:
        messages.error(request, f"{error}.")
    return _back(request, tenant)


@signed_in
@require_POST
def keep_columns(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Keep the columns that the person chose for lists of jobs."""
    tenant = tenant_or_404(request, slug)
    chosen = [name for name in COLUMNS if name in request.POST.getlist("column")]
    usual = set(chosen) == set(USUAL)
    choose_columns(user=_person(request), columns=[] if usual else chosen)
    return _back(request, tenant)


def _back(request: HttpRequest, tenant: Tenant) -> HttpResponseBase:
    return redirect(_back_url(request, tenant))


def _back_url(request: HttpRequest, tenant: Tenant) -> str:
    """Return the address of the list from which a form was sent."""
    asked = urlencode(_asked(request.POST))
    return reverse("job-list", args=[tenant.slug]) + (f"?{asked}" if asked else "")


def _asked(post: Mapping[str, str]) -> list[tuple[str, str]]:
    return parse_qsl(post.get("query", "")[:1000], keep_blank_values=False, max_num_fields=20)
