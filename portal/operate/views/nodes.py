"""A pool's nodes: drain, resume, add, describe, remove, and maintenance windows."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from portal.charts.figures import duration, plural
from portal.common.clocks import Clocks, clocks, pool_now
from portal.common.forms import (
    Field,
    instant_text,
    request_inputs,
    text,
    typed_fields,
    typed_request,
    whole,
)
from portal.operate.views.console import (
    Unchanged,
    actor_of,
    console,
    no_such_button,
    page,
    pool_of_console,
    tell,
)
from scheduling.models import MaintenanceWindow, Node, Pool
from scheduling.requests.nodes import (
    DrainRequest,
    NodeChangeRequest,
    NodeRequest,
    WindowRequest,
)
from scheduling.selectors.pools.executors import silent_pools
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.pools.nodes import leases_into, near_of, node_statuses, windows_ahead
from scheduling.services import nodes as change
from tenants.input.errors import InvalidInputError
from tenants.scopes import site_scope

HOUR = timedelta(hours=1)
UP = Node.State.UP
SHOWN = 25


@console
def nodes(request: HttpRequest, name: str) -> HttpResponse:
    """Show all nodes of a pool with their leases, and its maintenance."""
    facts, pool = pool_of_console(request, name)
    errors: dict[str, str] = {}
    do = text(request.POST, "do")
    if request.method == "POST":
        try:
            tell(request, ACTS.get(do, no_such_button)(request, pool, facts))
        except InvalidInputError as error:
            errors = error.by_field
        else:
            return redirect("operate-nodes", name)
    now = pool_now(facts).pool_at
    with site_scope():
        windows = windows_ahead(facts.id, now)
        away = {row.node.name for row in near_of(windows, facts, now)}
        rows = node_statuses(facts.id, now, ahead=windows)
        silent = silent_pools([facts.id])
        into = {window.pk: leases_into(window) for window in windows}
    taking = [row for row in rows if row.takes_leases and row.name not in away]
    held = sum(row.held for row in rows)
    times = clocks(facts)
    # If there are too many nodes to show all, those that need attention come first.
    plain = {row.name for row in taking if not row.windows}
    order = sorted(rows, key=lambda row: row.name in plain) if len(rows) > SHOWN else rows
    listed = [(row, times.instant(row.last_expiry), row.name in away) for row in order]
    folded = [one for one in listed[SHOWN:] if one[0].name in plain]
    forms = {"add", "window", "drain", "change"}
    asked = text(request.POST if do == "drain" else request.GET, "node" if do else "drain")
    context = {
        "pool": facts,
        "now": now,
        "silent": silent,
        "names_pool": False,
        "nodes": listed[: len(listed) - len(folded)],
        "folded": folded,
        "folded_gpus": sum(one[0].gpus for one in folded),
        "folded_held": sum(one[0].held for one in folded),
        "all": len(rows),
        "held": held,
        "names": [row.name for row in rows],
        "up": len(taking),
        "gpus": sum(row.gpus for row in rows),
        "gpus_up": sum(row.gpus for row in taking),
        "held_off": held - sum(row.held for row in taking),
        "windows": [_window(window, into[window.pk], times) for window in windows],
        "trouble": _trouble(errors) if do not in forms or "node" in errors else "",
        "asked": next((row for row in rows if row.name == asked and row.state == UP), None),
        "drain_fields": _drain_fields(request, errors if do == "drain" else {}),
        "add_fields": _add_fields(request, errors if do == "add" else {}),
        "add_open": do == "add" or not rows,
        "window_fields": _window_fields(request, errors if do == "window" else {}, facts),
        "change_fields": _change_fields(request, errors if do == "change" else {}),
        "chosen": request.POST.getlist("nodes") if do in ("window", "change") else [],
        "window_error": errors.get("nodes", "") if do == "window" else "",
        "change_error": errors.get("nodes", "") if do == "change" else "",
        "lease_text": duration(facts.longest_lease_s),
    }
    return page(request, "nodes.html", context, key="nodes", status=422 if errors else 200)


def _trouble(errors: dict[str, str]) -> str:
    return " ".join(errors.values())


def _window(window: MaintenanceWindow, into: int, times: Clocks) -> dict[str, object]:
    return {
        "row": window,
        "starts": times.instant(window.starts_at),
        "ends": times.instant(window.ends_at),
        "runs": window.starts_at <= times.now.pool_at,
        "into": into,
    }


def _add_fields(request: HttpRequest, errors: dict[str, str]) -> list[Field]:
    typed = request.POST if errors else {}
    return request_inputs(
        NodeRequest, ("name", "gpu_type", "gpus", "cpus", "memory_mb"), typed, errors
    )


def _change_fields(request: HttpRequest, errors: dict[str, str]) -> list[Field]:
    typed = request.POST if errors else {}
    return request_inputs(NodeChangeRequest, ("cpus", "memory_mb"), typed, errors)


def _drain_fields(request: HttpRequest, errors: dict[str, str]) -> list[Field]:
    typed = request.POST if errors else {}
    return request_inputs(DrainRequest, ("reason",), typed, errors)


def _window_fields(request: HttpRequest, errors: dict[str, str], facts: PoolFacts) -> list[Field]:
    typed = request.POST if errors else {}
    now = pool_now(facts).pool_at
    begin = now.replace(minute=0, second=0, microsecond=0) + 2 * HOUR
    defaults = {"starts_at": instant_text(begin), "ends_at": instant_text(begin + 4 * HOUR)}
    names = ("starts_at", "ends_at", "reason")
    first, *others = request_inputs(WindowRequest, names, typed, errors, defaults=defaults)
    hint = _("The clock of {pool} shows {now} UTC.").format(
        pool=facts.name, now=f"{now:%Y-%m-%d %H:%M}"
    )
    return [replace(first, hint=hint), *others]


# ---- the buttons ----


def _drain(request: HttpRequest, pool: Pool, facts: PoolFacts) -> str:
    node = text(request.POST, "node")
    reason = typed_request(DrainRequest, request.POST).reason
    if not change.drain_node(actor=actor_of(request), pool=pool, name=node, reason=reason):
        known = _("{node} was already drained. Nothing was changed.")
        return Unchanged(known.format(node=node))
    drained = _("{node} takes no new lease. Those there end within {time}.")
    return drained.format(node=node, time=duration(facts.longest_lease_s))


def _resume(request: HttpRequest, pool: Pool, _facts: PoolFacts) -> str:
    node = text(request.POST, "node")
    if not change.resume_node(actor=actor_of(request), pool=pool, name=node):
        return Unchanged(_("{node} was not drained. Nothing was changed.").format(node=node))
    return _("{node} takes leases again, from the next round on.").format(node=node)


def _remove(request: HttpRequest, pool: Pool, _facts: PoolFacts) -> str:
    node = text(request.POST, "node")
    change.remove_node(actor=actor_of(request), pool=pool, name=node)
    return _("Removed {node} from {pool}.").format(node=node, pool=pool.name)


def _add(request: HttpRequest, pool: Pool, _facts: PoolFacts) -> str:
    wanted = typed_request(NodeRequest, request.POST, pool=pool.name)
    node = change.add_node(actor=actor_of(request), pool=pool, request=wanted)
    added = _("Added {node} with {gpus}: the next round counts them.")
    return added.format(node=node.name, gpus=plural(node.gpus, "GPU"))


def _change(request: HttpRequest, pool: Pool, _facts: PoolFacts) -> str:
    names = request.POST.getlist("nodes")
    wanted = typed_request(NodeChangeRequest, request.POST)
    changed = change.change_nodes(actor=actor_of(request), pool=pool, names=names, request=wanted)
    if not changed:
        return Unchanged(_("The values are the same. Nothing was changed."))
    text = _("Changed {nodes}: the next round uses the new values.")
    return text.format(nodes=plural(changed, "node"))


def _plan(request: HttpRequest, pool: Pool, facts: PoolFacts) -> str:
    typed = typed_fields(WindowRequest, request.POST)
    wanted = change.read_window_request({**typed, "pool": pool.name}, pool)
    windows = change.add_window(
        actor=actor_of(request), pool=pool, request=wanted, now=pool_now(facts).pool_at
    )
    planned = _("Planned maintenance of {nodes}: no new lease overlaps it.")
    return planned.format(nodes=plural(len(windows), "node"))


def _end(request: HttpRequest, pool: Pool, facts: PoolFacts) -> str:
    window_id = whole(request.POST.get("window")) or 0
    change.end_window(
        actor=actor_of(request), pool=pool, window_id=window_id, now=pool_now(facts).pool_at
    )
    return _("Maintenance is over: the node takes leases from the next round on.")


ACTS: dict[str, Callable[[HttpRequest, Pool, PoolFacts], str]] = {
    "drain": _drain,
    "resume": _resume,
    "remove": _remove,
    "add": _add,
    "change": _change,
    "window": _plan,
    "end": _end,
}
