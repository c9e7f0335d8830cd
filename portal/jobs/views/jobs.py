"""A tenant's jobs, and a job's page."""

import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from billing.selectors.prices import price_history
from billing.selectors.usage import job_charges
from portal.charts.figures import plural, thousands
from portal.common.access import about, access, signed_in, tenant_or_404, tenant_pool
from portal.common.clocks import Clocks, clocks, clocks_by_pool
from portal.common.standings import standing_badge
from portal.common.submit_links import submit_links
from portal.jobs.forms.submit import spec_context
from portal.jobs.text.answer import answer_context
from portal.jobs.text.charges import charge_rows
from portal.jobs.text.deadline import deadline_context
from portal.jobs.text.estimates import declared_apart, estimate_text
from portal.jobs.text.failure import failure_context
from portal.jobs.text.fairness import fairness_context
from portal.jobs.text.job import STATE_BADGES, job_context, state_badge
from portal.jobs.text.log import job_log
from portal.jobs.text.losses import WorkLoss, work_losses
from portal.jobs.text.metric import metric_context
from portal.jobs.text.output import output_context
from portal.jobs.text.start import queues_text, start_context
from portal.jobs.text.usage import usage_context
from scheduling.engine.executors.base import executor_traits
from scheduling.models import Job
from scheduling.requests.job_queue import PRIORITY_MAX
from scheduling.selectors.deadlines.answers import DeadlineStory
from scheduling.selectors.deadlines.plans import read_plan
from scheduling.selectors.jobs import tenant_jobs as read
from scheduling.selectors.jobs.estimates import read_estimate
from scheduling.selectors.jobs.fairness import read_job_rho
from scheduling.selectors.jobs.lists import TEXT_MAX, find_visible_job
from scheduling.selectors.jobs.phases import phase_named
from scheduling.selectors.jobs.preemption_costs import read_job_cost
from scheduling.selectors.jobs.preemptions import preemptions_among, preemptions_for
from scheduling.selectors.jobs.queue_order import (
    QueueKey,
    QueueMark,
    is_queued,
    read_queue_order,
)
from scheduling.selectors.jobs.reasons import resources_text
from scheduling.selectors.jobs.start_estimates import read_starts
from scheduling.selectors.pools.executors import pools_by_name, silent_pools
from scheduling.selectors.pools.lines import PoolFacts, pool_facts, pools_named
from scheduling.selectors.rounds.promised_starts import pinned_until, read_latest_starts
from scheduling.selectors.speeds.profiling import find_active_run
from scheduling.selectors.visibility import read_visibility
from scheduling.services.holds import side_of
from scheduling.services.priorities import may_boost, may_set_priority
from tenants.permissions import Action, may_in_tenant, seen_tenants
from tenants.scopes import tenant_scope, tenants_scope
from tenants.selectors.quotas import pools_of

CHARGE_ROWS, LOG_ROWS = 24, 20
# Filters for ended jobs. With such a filter, the list shows no warning of a silent cluster.
OVER = frozenset({"succeeded", "failed", "cancelled"})
# Prices are read from this long before the submission on, to include the price at the submission.
PRICE_LEAD = timedelta(hours=1)
_MARK = re.compile(r"([0-9]{1,18})\.([0-2])\.([0-9]{1,18})\.([0-9]{1,18})\.([-a-zA-Z0-9_]{1,63})")


@signed_in
@require_safe
def job_list(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Show the jobs of a tenant, newest first, filtered by the query."""
    tenant = tenant_or_404(request, slug)
    wanted = _filter(request)
    pool = tenant_pool(request, tenant, wanted.pool)
    kept = {"state": wanted.state, "q": wanted.text, "pool": wanted.pool}
    query = urlencode({key: value for key, value in kept.items() if value})
    with tenant_scope(tenant.pk):
        page = read.jobs_page(tenant.pk, wanted)
        counts = read.active_counts(tenant.pk)
        matches = read.count_matches(tenant.pk, wanted) if query else 0
        pools = pools_by_name(pools_of(tenant.pk))
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
            "nav_key": "jobs",
            "live": wanted.before is None and wanted.after is None,
            "wanted": wanted,
            "narrowed": bool(query),
            "unknown_state": request.GET.get("state", "")[:TEXT_MAX] if not wanted.state else "",
            "match_text": _match_text(wanted, matches),
            "query": query,
            "counts": counts,
            "page": page,
            "next_after": _mark_text(page.next_after),
            "goes_on": page.queues.get(wanted.after.pool) if wanted.after else None,
            "queues_text": queues_text(page.queues),
            "pools": list(pools),
            "silent": silent,
            "names_pool": len(pools) > 1,
            "states": {state: _label(state) for state in read.STATES},
            "rows": [
                _row(row, standings.get(row.job.pk), times[row.job.pool.name]) for row in page.rows
            ],
            "has_deadlines": bool(standings),
        },
    )


def _filter(request: HttpRequest) -> read.JobFilter:
    """Return the filter of the query; unknown values are ignored."""
    get = request.GET
    state = _state_named(get.get("state", ""))
    before = get.get("before", "") if state != "pending" else ""
    return read.JobFilter(
        state=state,
        text=get.get("q", "").replace("\x00", "").strip()[:TEXT_MAX],
        pool=get.get("pool", ""),
        before=int(before) if before.isdecimal() and len(before) < 19 else None,
        after=_mark(get.get("after", "")) if state == "pending" else None,
    )


def _state_named(text: str) -> str:
    """Return the filter of this name, in any letter case; empty if there is none."""
    word = text.strip().lower()
    word = word if word in read.STATES else phase_named(word) or ""
    return word if word in read.STATES else ""


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


def _match_text(wanted: read.JobFilter, matches: int) -> str:
    kind = f"{_label(wanted.state).lower()} job" if wanted.state else "job"
    count = f"{thousands(matches)} or more {kind}s" if matches >= read.COUNTED else ""
    named = f" with “{wanted.text}” in its name" if wanted.text else ""
    if matches > 1:
        named = named.replace("its name", "their names")
    pool = f" in {wanted.pool}" if wanted.pool else ""
    return f"{count or plural(matches, kind) if matches else f'No {kind}'}{named}{pool}."


def _label(state: str) -> str:
    return STATE_BADGES[state].text if state in STATE_BADGES else "Running or starting"


def _row(row: read.JobListRow, story: DeadlineStory | None, clock: Clocks) -> dict[str, Any]:
    """Return a job's row, on the clock of its pool."""
    job = row.job
    end = job.first_started_at or job.ended_at or clock.now.pool_at
    return {
        "listed": row,
        "job": job,
        "standing": standing_badge(story, clock) if story is not None else None,
        "badge": state_badge(row.phase, is_quarantined=bool(job.quarantine), is_held=job.is_held),
        "submitted": clock.instant(job.submitted_at),
        "ended": clock.instant(job.ended_at),
        "waited_s": max(0.0, (end - job.arrived_at).total_seconds()),
    }


@signed_in
@require_safe
def job_page(request: HttpRequest, uid: UUID) -> HttpResponseBase:
    """Show a job: its state, its history, its cost."""
    job = job_or_404(request, uid)
    with tenant_scope(job.tenant_id):
        pool = pool_facts(job.pool_id)
        if pool is None:
            raise Http404
        context = _job_context(request, job, pool)
    about(request).pool = pool
    context |= submit_links(access(request), job.tenant)
    context |= {
        "may_hold": side_of(access(request), job) is not None,
        "may_order": may_set_priority(access(request), job),
        "priority_most": PRIORITY_MAX if may_boost(access(request), job.tenant_id) else 0,
    }
    context |= spec_context(job, request.build_absolute_uri("/api/v1/jobs"))
    context |= output_context(job, number_asked(request, "lease"))
    context |= failure_context(job, context["story"], context.get("output"), context["clock"])
    return render(request, "jobs/job.html", context)


def number_asked(request: HttpRequest, name: str) -> int | None:
    """Return a whole number of the query, or None if it has none."""
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def job_or_404(request: HttpRequest, uid: UUID) -> Job:
    """Return a job that the viewer may see.

    Raises:
        Http404: it does not exist or is not visible.
    """
    tenants = seen_tenants(access(request))
    with tenants_scope(tenants):
        job = find_visible_job(uid, tenants)
    if job is None or not may_in_tenant(access(request), Action.SEE_TENANT, job.tenant_id):
        raise Http404
    about(request).tenant = job.tenant
    return job


def _job_context(request: HttpRequest, job: Job, pool: PoolFacts) -> dict[str, Any]:
    story = read.job_story(job)
    clock = clocks(pool, story.rounds)
    until = job.ended_at or clock.now.pool_at
    types = [hold.lease.gpu_type.name for hold in story.holds]
    since = job.submitted_at - PRICE_LEAD
    posted = price_history(pool.id, types[-1], since=since, until=until) if types else []
    charges = job_charges(job.pk)
    visibility = read_visibility(pool.id, access(request))
    names: dict[int | None, str] = {seen.id: seen.name for seen in visibility.known.values()}
    named: dict[int | None, str] = {**names, None: "the operator"}
    rows = charge_rows(charges, names=named, clocks=clock, pool=pool.name)
    shown = rows[-CHARGE_ROWS:]
    leases = [hold.lease for hold in story.holds]
    early = preemptions_among(story.events, leases, visibility)
    losses = work_losses(story)
    log = job_log(story, clock, losses, early, preemptions_for(job, visibility))
    context = job_context(story, clock, posted, early)
    estimate = read_estimate(job) if job.is_active else None
    context |= {
        "job": job,
        "pool": pool,
        "clock": clock,
        "nav_key": "jobs",
        "live": job.is_active,
        "story": story,
        "log": log[:LOG_ROWS],
        "older_log": log[LOG_ROWS:],
        "submitted": clock.instant(job.submitted_at),
        "charges": shown,
        "earlier": rows[: -len(shown)] if shown else [],
        "own_total": sum((row.own_gpu_h for row in rows), Decimal(0)),
        "borrowed_total": sum((row.borrowed_gpu_h for row in rows), Decimal(0)),
        "charged": sum((row.charge for row in rows), Decimal(0)),
        "unsettled": sum((c.charge for c in charges if not c.settled), Decimal(0)),
        "rounds_url": reverse("round-list", args=[pool.name]),
        "queued": None,
        "grace_s": job.pool.grace_s,
        "needs": resources_text(job.cpus, job.memory_mb),
        "expected": estimate_text(estimate),
        "declared_s": declared_apart(job, estimate),
        "profiled_by": find_active_run(job),
        "silent": silent_pools([pool.id]) if job.is_active else [],
        "names_pool": False,
        **_plan_context(job, clock),
        **_promise_context(job, pool, clock),
        **deadline_context(job, clock),
        **answer_context(story, clock),
        **metric_context(job),
        **usage_context(job, leases, clock),
        **_fairness_context(story, losses, clock),
    }
    context["earlier_sum"] = _sum_row(context["earlier"])
    if is_queued(job):
        start = read_starts({pool.id: clock.now.pool_at}, [job.pk]).get(job.pk)
        calibration_url = reverse("starts", args=[pool.name])
        order = read_queue_order(pool.id)
        context |= {"queued": start_context(job.pk, order, start, clock, calibration_url)}
    return context


def _fairness_context(
    story: read.JobStory, losses: Mapping[int, WorkLoss], clock: Clocks
) -> dict[str, Any]:
    job = story.job
    cost = read_job_cost(job, simulates=executor_traits(job.pool.executor).simulates)
    return fairness_context(story, read_job_rho(job), cost, losses, clock)


def _plan_context(job: Job, clock: Clocks) -> dict[str, Any]:
    plan = read_plan(job)
    if plan is None or plan.starts_at is None or plan.ends_at is None:
        return {"plan": plan}
    starts, ends = clock.instant(plan.starts_at), clock.instant(plan.ends_at)
    return {"plan": plan, "plan_starts": starts, "plan_ends": ends}


def _promise_context(job: Job, pool: PoolFacts, clock: Clocks) -> dict[str, Any]:
    """Return by when a promised job starts, and when a lease ends for another job's promise."""
    may_be_pinned = pool.has_promises and job.state == Job.State.RUNNING
    return {
        "starts_by": clock.instant(read_latest_starts([job]).get(job.pk)),
        "pinned_until": clock.instant(pinned_until(pool.id, job.pk)) if may_be_pinned else None,
    }


def _sum_row(rows: list[Any]) -> dict[str, Decimal]:
    keys = ("own_gpu_h", "borrowed_gpu_h", "charge")
    return {key: sum((getattr(row, key) for row in rows), Decimal(0)) for key in keys}
