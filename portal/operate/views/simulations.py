"""Simulations of a pool's next hours or last days: request, watch, read, cancel, show."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from evenshare_core.policies.registry import POLICIES
from evenshare_core.units import ONE_MILLI
from portal.charts.bars import wide_bar
from portal.charts.glyphs import StateBadge
from portal.common.clocks import clocks
from portal.common.forms import text, typed_request, whole
from portal.common.tenant_badges import tenant_badge
from portal.operate.forms.history import history_form
from portal.operate.forms.settings import option_fields, options_typed, policy_choices
from portal.operate.text.history import view_history
from portal.operate.text.lease_lengths import view_lease_lengths
from portal.operate.text.simulation import view_simulation
from portal.operate.views.console import (
    actor_of,
    console,
    console_act,
    console_read,
    nothing_differed,
    page,
    pool_of_console,
    tell,
)
from scheduling.models import Pool, Simulation
from scheduling.requests.simulations import HOURS, HistoryRequest, SimulationRequest
from scheduling.selectors.pools.simulations import open_jobs, simulation_of, simulations_of
from scheduling.services.simulations import (
    cancel_simulation,
    request_history,
    request_simulation,
    show_simulation,
)
from tenants.input.errors import InvalidInputError
from tenants.scopes import site_scope
from tenants.selectors.tenants import all_tenants

KEY = "simulations"
STATES = {
    "queued": StateBadge("waiting", gettext_noop("queued")),
    "running": StateBadge("running", gettext_noop("running")),
    "done": StateBadge("ok", gettext_noop("done")),
    "failed": StateBadge("bad", gettext_noop("failed")),
    "cancelled": StateBadge("ended", gettext_noop("cancelled")),
}
DEFAULT_HOURS = 24


@console
def simulations(request: HttpRequest, name: str) -> HttpResponse:
    """Show the request forms and the existing simulations."""
    facts, pool = pool_of_console(request, name)
    errors: dict[str, str] = {}
    of_history = text(request.POST, "do") == "history"
    if request.method == "POST":
        try:
            row = _replay(request, pool) if of_history else _ask(request, pool)
        except InvalidInputError as error:
            errors = error.by_field
        else:
            return redirect("operate-simulation", name, row.pk)
    of_hours, of_days = (request.POST, errors), (QueryDict(), dict[str, str]())
    if of_history:
        of_hours, of_days = of_days, of_hours
    typed, wrong = of_hours
    asked = text(typed, "policy") or text(request.GET, "policy")
    policy = asked if asked in POLICIES else pool.policy
    stored = pool.options if policy == pool.policy else {}
    with site_scope():
        past = simulations_of(pool.pk)
        jobs = open_jobs(pool.pk)
    context: dict[str, Any] = {
        "pool": facts,
        "row": pool,
        "policy": policy,
        "policies": policy_choices(pool.policy),
        "option_fields": [one.field for one in option_fields(policy, stored, typed, wrong)],
        "hours": HOURS,
        "chosen_hours": whole(typed.get("hours") or request.GET.get("hours")) or DEFAULT_HOURS,
        "errors": wrong,
        "trouble": next((errors[one] for one in ("", "policy", "again") if one in errors), ""),
        "history": history_form(pool, *of_days),
        "jobs": jobs,
        "past": [(one, _badge(one)) for one in past],
    }
    return page(request, "simulations.html", context, key=KEY, status=422 if errors else 200)


def _badge(one: Simulation) -> StateBadge:
    state = STATES[one.state]
    return state._replace(text=_(state.text))


def _ask(request: HttpRequest, pool: Pool) -> Simulation:
    policy = text(request.POST, "policy")
    options = options_typed(policy, request.POST) if policy in POLICIES else {}
    wanted = typed_request(SimulationRequest, request.POST, options=options)
    return request_simulation(actor=actor_of(request), pool_id=pool.pk, request=wanted)


def _replay(request: HttpRequest, pool: Pool) -> Simulation:
    wanted = typed_request(HistoryRequest, request.POST)
    return request_history(actor=actor_of(request), pool_id=pool.pk, request=wanted)


@console_read
def simulation(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Show a simulation's progress or result."""
    facts, pool = pool_of_console(request, name)
    with site_scope():
        row = simulation_of(pool.pk, number)
        tenants = all_tenants()
    if row is None:
        raise Http404
    context: dict[str, Any] = {
        "pool": facts,
        "one": row,
        "state": _badge(row),
        "bar": wide_bar(row.progress_milli / ONE_MILLI),
        "percent": row.progress_percent,
    }
    is_done = row.state == Simulation.State.DONE
    if row.kind == Simulation.Kind.LEASE_LENGTHS:
        recommended = row.result["recommended"]["lease_s"] if row.result else None
        context |= {
            "days": row.hours // 24,
            "result": view_lease_lengths(row) if is_done else None,
            "suggestion": f"?lease_s={recommended}" if recommended else "",
        }
        return page(request, "lease_lengths.html", context, key=KEY)
    badges = {one.pk: tenant_badge(one) for one in tenants}
    if row.kind == Simulation.Kind.HISTORY:
        context |= {
            "days": row.hours // 24,
            "result": view_history(row, badges, clocks(facts)) if is_done else None,
        }
        return page(request, "history.html", context, key=KEY)
    slugs = {one.pk: one.slug for one in tenants}
    view = view_simulation(row, badges, slugs) if is_done else None
    both = view is not None and len(view.names) > 1
    context |= {
        "at": clocks(facts).instant(row.at),
        "result": view,
        "figures_title": _("Figures of both") if both else _("Figures"),
    }
    return page(request, "simulation.html", context, key=KEY)


@console_act
def cancel(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Cancel a queued or running simulation."""
    row = _simulation_or_404(request, name, number)
    if cancel_simulation(actor=actor_of(request), simulation_id=row.pk):
        messages.success(request, _("Cancelled, without a result."))
    else:
        messages.info(request, _("It has already ended."))
    return redirect("operate-simulation", name, number)


@console_act
def show(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Show each tenant its own result of a replay, or hide these."""
    row = _simulation_or_404(request, name, number)
    is_shown = text(request.POST, "is_shown") == "yes"
    try:
        changed = show_simulation(actor=actor_of(request), simulation_id=row.pk, is_shown=is_shown)
    except InvalidInputError as error:
        messages.error(request, error.by_field[""])
    else:
        shown = _("Each tenant is shown its own result.")
        hidden = _("Tenants are not shown their results.")
        tell(request, (shown if is_shown else hidden) if changed else nothing_differed())
    return redirect("operate-simulation", name, number)


def _simulation_or_404(request: HttpRequest, name: str, number: int) -> Simulation:
    pool = pool_of_console(request, name)[1]
    with site_scope():
        row = simulation_of(pool.pk, number)
    if row is None:
        raise Http404
    return row
