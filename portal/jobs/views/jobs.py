"""A tenant's jobs, and a job's page."""

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from billing.selectors.prices import price_history
from billing.selectors.usage import job_charges
from portal.common.access import about, access, signed_in
from portal.common.clocks import Clocks, clocks
from portal.common.submit_links import submit_links
from portal.jobs.forms.submit import spec_context
from portal.jobs.text.answer import answer_context
from portal.jobs.text.charges import charge_rows, charged_title
from portal.jobs.text.curves import axis_named, curves_context
from portal.jobs.text.deadline import deadline_context
from portal.jobs.text.estimates import declared_apart, estimate_text
from portal.jobs.text.failure import failure_context
from portal.jobs.text.fairness import fairness_context
from portal.jobs.text.held import held_spans
from portal.jobs.text.job import job_context
from portal.jobs.text.log import job_log, with_changes
from portal.jobs.text.losses import WorkLoss, work_losses
from portal.jobs.text.metric import metric_context
from portal.jobs.text.needs import needs_context
from portal.jobs.text.output import output_context
from portal.jobs.text.start import start_context
from portal.jobs.text.usage import usage_context
from scheduling.engine.executors.base import executor_traits
from scheduling.models import Job, Sweep
from scheduling.requests.job_queue import PRIORITY_MAX
from scheduling.selectors.deadlines.plans import read_plan
from scheduling.selectors.jobs import tenant_jobs as read
from scheduling.selectors.jobs.changes import job_changes
from scheduling.selectors.jobs.estimates import read_estimate
from scheduling.selectors.jobs.fairness import read_job_rho
from scheduling.selectors.jobs.lists import find_visible_job
from scheduling.selectors.jobs.preemption_costs import read_job_cost
from scheduling.selectors.jobs.preemptions import preemptions_among, preemptions_for
from scheduling.selectors.jobs.queue_order import (
    is_queued,
    read_queue_order,
)
from scheduling.selectors.jobs.reasons import resources_text
from scheduling.selectors.jobs.start_estimates import read_starts
from scheduling.selectors.pools.executors import silent_pools
from scheduling.selectors.pools.lines import PoolFacts, pool_facts
from scheduling.selectors.rounds.promised_starts import pinned_until, read_latest_starts
from scheduling.selectors.speeds.profiling import find_active_run
from scheduling.selectors.visibility import read_visibility
from scheduling.services.holds import side_of
from scheduling.services.priorities import may_boost, may_set_priority
from scheduling.services.sessions import may_open, session_state
from tenants.permissions import Action, may_in_tenant, seen_tenants
from tenants.scopes import tenant_scope, tenants_scope

Seen = TypeVar("Seen", Job, Sweep)
CHARGE_ROWS, LOG_ROWS = 24, 6
# Prices are read from this long before the submission on, to include the price at the submission.
PRICE_LEAD = timedelta(hours=1)


@signed_in
@require_safe
def job_page(request: HttpRequest, uid: UUID) -> HttpResponseBase:
    """Show a job: its state, its history, its cost."""
    job = job_or_404(request, uid)
    with tenant_scope(job.tenant_id):
        pool = pool_facts(job.pool_id)
        if pool is None:
            raise Http404
        context = _job_context(request, job, pool) | needs_context(job)
        context["session"] = session_state(job)
    about(request).pool = pool
    context |= submit_links(access(request), job.tenant)
    context |= {
        "may_open": may_open(access(request), job),
        "may_hold": side_of(access(request), job) is not None,
        "submitter": _other_submitter(request, job),
        "may_order": may_set_priority(access(request), job),
        "priority_most": PRIORITY_MAX if may_boost(access(request), job.tenant_id) else 0,
    }
    context |= spec_context(job, request.build_absolute_uri("/api/v1/jobs"))
    context |= output_context(job, number_asked(request, "lease"))
    context |= failure_context(job, context["story"], context.get("output"), context["clock"])
    return render(request, "jobs/job.html", context)


def _other_submitter(request: HttpRequest, job: Job) -> str:
    """Return who submitted another person's job; empty for a viewer's own job, or if unknown."""
    person = job.submitted_by
    if person is None or person.pk == access(request).user_id:
        return ""
    return person.get_full_name() or person.username


def number_asked(request: HttpRequest, name: str) -> int | None:
    """Return a whole number of the query, or None if it has none."""
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def job_or_404(request: HttpRequest, uid: UUID) -> Job:
    return seen_or_404(request, uid, find_visible_job)


def seen_or_404(
    request: HttpRequest, uid: UUID, find: Callable[[UUID, Collection[int] | None], Seen | None]
) -> Seen:
    """Return a job or a sweep that the viewer may see.

    Raises:
        Http404: it does not exist or is not visible.
    """
    tenants = seen_tenants(access(request))
    with tenants_scope(tenants):
        row = find(uid, tenants)
    if row is None or not may_in_tenant(access(request), Action.SEE_TENANT, row.tenant_id):
        raise Http404
    about(request).tenant = row.tenant
    return row


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
    named: dict[int | None, str] = {**names, None: _("the operator")}
    rows = charge_rows(charges, names=named, clocks=clock, pool=pool.name)
    shown = rows[-CHARGE_ROWS:]
    leases = [hold.lease for hold in story.holds]
    early = preemptions_among(story.events, leases, visibility)
    losses = work_losses(story)
    log = job_log(story, clock, losses, early, preemptions_for(job, visibility))
    changes = job_changes(job)
    log = with_changes(log, changes, clock)
    context = job_context(story, clock, posted, early, held_spans(job, changes, clock))
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
        "charged_title": charged_title(rows),
        "unsettled": sum((c.charge for c in charges if not c.settled), Decimal(0)),
        "rounds_url": reverse("round-list", args=[pool.name]),
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
        **curves_context(job, axis_named(request.GET.get("x", ""))),
        **usage_context(job, leases, clock),
        **_fairness_context(story, losses, clock),
        "queued": _queued_context(job, pool, clock) if is_queued(job) else None,
    }
    context["earlier_sum"] = _sum_row(context["earlier"])
    return context


def _queued_context(job: Job, pool: PoolFacts, clock: Clocks) -> dict[str, Any]:
    start = read_starts({pool.id: clock.now.pool_at}, [job.pk]).get(job.pk)
    order = read_queue_order(pool.id)
    return start_context(job.pk, order, start, clock, reverse("starts", args=[pool.name]))


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
