"""A sweep's page, and its actions: cancel, run failed jobs again."""

import re
from uuid import UUID, uuid4

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from portal.charts.figures import thousands
from portal.common.access import about, access, signed_in
from portal.common.clocks import clocks
from portal.common.compare_links import COMPARED_MAX, compare_url
from portal.common.submit_links import submit_links
from portal.jobs.text.sweeps import (
    STATES,
    headline,
    parameter_names,
    sweep_job_views,
    sweep_views,
)
from portal.jobs.views.jobs import seen_or_404
from scheduling.engine.clock import read_clock
from scheduling.selectors.jobs.sweeps import find_visible_sweep, sweep_jobs, sweep_rows
from scheduling.selectors.pools.lines import pool_facts
from scheduling.services.submit import PendingLimitError
from scheduling.services.sweeps import cancel_sweep, resubmit_failed
from tenants.idempotency import InFlightError
from tenants.input.errors import InvalidInputError
from tenants.models import User
from tenants.permissions import Action, may_in_tenant
from tenants.rate import RateError
from tenants.scopes import tenant_scope

# A longer table opens when chosen.
ROWS, OPEN_ROWS = 100, 12
_KEY = re.compile(r"[0-9a-f-]{36}")


@signed_in
@require_safe
def sweep_page(request: HttpRequest, sweep: UUID) -> HttpResponseBase:
    """Show a sweep: the states of its jobs, and a table of parameters against results."""
    row = seen_or_404(request, sweep, find_visible_sweep)
    state = request.GET.get("state", "")
    state = state if state in STATES else ""
    text = request.GET.get("after", "")
    after = int(text) if text.isascii() and text.isdecimal() and len(text) < 5 else None
    with tenant_scope(row.tenant_id):
        pool = pool_facts(row.pool_id)
        if pool is None:
            raise Http404
        (answer,) = sweep_rows([row], "")
        jobs = sweep_jobs(row, "", after=after, limit=ROWS, state=state)
    about(request).pool = pool
    clock = clocks(pool)
    shown = jobs[:ROWS]
    names = parameter_names(shown)
    context = {
        "sweep": row,
        "nav_key": "jobs",
        "live": bool(answer.counts.active),
        "headline": headline(answer.counts),
        "view": sweep_views([answer])[0],
        "submitted": clock.instant(row.submitted_at),
        "cancelled": clock.instant(row.cancel_asked_at),
        "state": state,
        "names": names,
        "jobs": sweep_job_views(shown, names),
        "is_open": bool(state) or after is not None or answer.jobs <= OPEN_ROWS,
        "compare": compare_url(job.id for job in shown[:COMPARED_MAX]) if shown else "",
        "next_after": shown[-1].sweep_index if len(jobs) > ROWS else None,
        "key": str(uuid4()),
        **submit_links(access(request), row.tenant),
    }
    return render(request, "jobs/sweep.html", context)


@signed_in
@require_POST
def cancel(request: HttpRequest, sweep: UUID) -> HttpResponseBase:
    """Cancel a sweep's jobs; to cancel them again does no harm."""
    row = seen_or_404(request, sweep, find_visible_sweep)
    if not may_in_tenant(access(request), Action.CANCEL, row.tenant_id):
        raise PermissionDenied
    cancel_sweep(sweep=row, now=read_clock(row.pool_id))
    text = _("{name}: waiting jobs are cancelled, running ones stop.")
    messages.success(request, text.format(name=row.name))
    return redirect("sweep", row.uid)


@signed_in
@require_POST
def resubmit(request: HttpRequest, sweep: UUID) -> HttpResponseBase:
    """Submit the failed jobs again, and show the new sweep."""
    row = seen_or_404(request, sweep, find_visible_sweep)
    if not may_in_tenant(access(request), Action.SUBMIT, row.tenant_id):
        raise PermissionDenied
    assert isinstance(request.user, User)  # noqa: S101 - `signed_in` has seen to it
    sent = request.POST.get("key", "")
    key = sent if _KEY.fullmatch(sent) else str(uuid4())
    try:
        made = resubmit_failed(sweep=row, user=request.user, now=read_clock, key=key, source="web")
    except InvalidInputError as error:
        messages.error(request, f"{error}.")
    except (RateError, InFlightError):
        messages.error(request, _("The tenant submits too fast: try again in a moment."))
    except PendingLimitError as error:
        text = _("The tenant has {count} queued jobs, the maximum.")
        messages.error(request, text.format(count=thousands(error.limit)))
    else:
        return redirect("sweep", made.row.uid)
    return redirect("sweep", row.uid)
