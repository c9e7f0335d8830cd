"""The quota grid: a draft, its preview, the save, and the undo until the next round."""

import json
from dataclasses import dataclass
from hashlib import sha256

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from portal.common.clocks import clocks, pool_now
from portal.common.forms import instant_text, text, whole
from portal.common.quota_promises import pool_promise_text
from portal.common.tenant_badges import tenant_badge
from portal.operate.forms.quotas import (
    NAMES,
    NOW,
    QuotaForm,
    columns,
    grids,
    headline,
    input_errors,
    input_id,
    mode_choices,
    read_edits,
    read_since,
    tomorrow,
)
from portal.operate.text.impact import Preview, preview
from portal.operate.views.console import (
    actor_of,
    console,
    console_act,
    nothing_differed,
    page,
    pool_of_console,
    tell,
)
from scheduling.engine.clock import PoolNow
from scheduling.engine.snapshots import next_number
from scheduling.selectors.pools.capacity import type_capacities
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.sharing.quota_requests import count_open_requests
from scheduling.services.quota_impact import Impact, quota_impact
from tenants.audit import last_record
from tenants.input.errors import InvalidInputError
from tenants.models import AuditRecord
from tenants.periods import Key
from tenants.scopes import site_scope
from tenants.selectors.quota_records import dilution_text
from tenants.selectors.tenants import all_tenants
from tenants.services.quotas import (
    PAST,
    SAVED,
    UNDONE,
    QuotaEdit,
    basis_of,
    quota_periods,
    save_quotas,
    undo_quotas,
)


@dataclass
class GridRequest:
    """A request to the grid: the draft and its errors."""

    facts: PoolFacts
    now: PoolNow
    form: QuotaForm
    since_text: str
    basis: str
    added: list[Key]
    errors: dict[str, str]
    preview: Preview[Impact] | None = None


@console
def grid(request: HttpRequest, name: str) -> HttpResponse:
    """Show tenants' quotas by period; with a posted draft also its effect."""
    facts = pool_of_console(request, name)[0]
    asked = _read_request(request, facts)
    if request.method == "POST" and not asked.errors and _posted(request, asked):
        query = urlencode({"since": asked.since_text})
        return redirect(f"{reverse('operate-quotas', args=[name])}?{query}")
    return _show(request, asked)


def _read_request(request: HttpRequest, facts: PoolFacts) -> GridRequest:
    now = pool_now(facts)
    typed = text(request.POST if request.method == "POST" else request.GET, "since") or NOW
    since = read_since(typed, now.pool_at)
    errors = {}
    if since is None:
        example = instant_text(tomorrow(now.pool_at))
        errors["since"] = _("Enter date and time, such as {example}.").format(example=example)
    elif since < now.pool_at:
        errors["since"] = _(PAST)
    if errors or since is None:
        typed, since = NOW, now.pool_at
    with site_scope():
        form = QuotaForm(
            periods=quota_periods(facts.id, now.pool_at),
            types={one.id: (one.name, one.gpus) for one in type_capacities(facts.id)},
            tenants={one.pk: (one.slug, tenant_badge(one)) for one in all_tenants()},
            now=now.pool_at,
            since=since,
        )
        basis = basis_of(facts.id, now.pool_at)
    return GridRequest(facts, now, form, typed, basis, _added(request, form), errors)


def _added(request: HttpRequest, form: QuotaForm) -> list[Key]:
    """Return rows that the grid shows although they have no quota yet.

    They are those of `?tenant=` and those in the posted draft.
    """
    wanted = text(request.GET, "tenant")
    return [
        (tenant, type_id)
        for tenant, (slug, _badge) in form.tenants.items()
        for type_id in form.types
        if slug == wanted or input_id((tenant, type_id), "gpus") in request.POST
    ]


def _posted(request: HttpRequest, asked: GridRequest) -> bool:
    """Save the draft if it was previewed, else estimate its effect; return whether it was saved.

    Errors are stored in `asked.errors`.
    """
    edits, asked.errors = read_edits(asked.form, request.POST)
    if not edits and not asked.errors:
        asked.errors = {"draft": _("The draft is empty: change a cell first.")}
    if asked.errors:
        return False
    digest = _digest(request, asked)
    saving = text(request.POST, "do") == "save"
    try:
        if saving and text(request.POST, "previewed") == digest:
            _save(request, asked, edits)
            return True
        asked.preview = _estimate(asked, edits, digest)
    except InvalidInputError as error:
        asked.errors = input_errors(error, edits)
        return False
    if saving:
        message = _("The draft was changed after the preview: check the new preview first.")
        asked.errors = {"previewed": message}
    return False


def _digest(request: HttpRequest, asked: GridRequest) -> str:
    """Return a digest of the estimate's inputs: the draft, its start, the present quotas."""
    names = sorted(name for name in request.POST if name.split("-")[0] in NAMES)
    drafted = [(name, text(request.POST, name)) for name in names]
    drawn_from = json.dumps([drafted, asked.since_text, asked.basis])
    return sha256(drawn_from.encode()).hexdigest()[:16]


def _estimate(asked: GridRequest, edits: list[QuotaEdit], digest: str) -> Preview[Impact]:
    impact = quota_impact(
        pool_id=asked.facts.id, edits=edits, since=asked.form.since, now=asked.now
    )
    badges = {tenant: badge for tenant, (_slug, badge) in asked.form.tenants.items()}
    types = {type_id: name for type_id, (name, _gpus) in asked.form.types.items()}
    return preview(impact, badges, types, digest)


def _save(request: HttpRequest, asked: GridRequest, edits: list[QuotaEdit]) -> None:
    with site_scope():
        number = next_number(asked.facts.id)
    record = save_quotas(
        actor=actor_of(request),
        pool_id=asked.facts.id,
        pool_name=asked.facts.name,
        book=asked.facts.book,
        edits=edits,
        since=asked.form.since,
        now=asked.now.pool_at,
        basis=text(request.POST, "basis"),
        next_round=number,
        capacity={type_id: gpus for type_id, (_name, gpus) in asked.form.types.items()},
        reason=text(request.POST, "reason"),
    )
    if record is None:
        tell(request, nothing_differed())
        return
    for row in record.after.get("dilutes", ()):
        messages.warning(request, dilution_text(row))


def _show(request: HttpRequest, asked: GridRequest) -> HttpResponse:
    posted = request.POST if request.method == "POST" else {}
    types = grids(asked.form, posted, asked.errors, asked.added)
    heads = columns(asked.form)
    shown = {row.key[0] for kind in types for row in kind.rows}
    context = {
        "pool": asked.facts,
        "promise": pool_promise_text(asked.facts),
        "types": types,
        "columns": heads,
        "headline": headline(types),
        "modes": mode_choices(),
        "since": asked.since_text,
        "since_at": clocks(asked.facts).instant(asked.form.since),
        "starts_now": asked.form.starts_now,
        "pool_at": asked.now.pool_at,
        "tomorrow": instant_text(tomorrow(asked.now.pool_at)),
        "basis": asked.basis,
        "others": [slug for key, (slug, _badge) in asked.form.tenants.items() if key not in shown],
        "errors": asked.errors,
        "field_errors": [field for kind in types for row in kind.rows for field in row.errors],
        "preview": asked.preview,
        "undo": _undoable(asked.facts),
        "requests": _open_requests(asked.facts),
    }
    # htmx shows only successful responses.
    failed = asked.errors and request.method == "POST" and "HX-Request" not in request.headers
    return page(request, "quotas.html", context, key="quotas", status=422 if failed else 200)


def _open_requests(facts: PoolFacts) -> int:
    with site_scope():
        return count_open_requests().get(facts.id, 0)


def _undoable(facts: PoolFacts) -> AuditRecord | None:
    """Return the last saved change, if no round has passed since."""
    with site_scope():
        last = last_record(f"pool {facts.name}", (SAVED, UNDONE))
        if last is None or last.action != SAVED:
            return None
        return last if last.after["next_round"] == next_number(facts.id) else None


@console_act
def undo(request: HttpRequest, name: str) -> HttpResponse:
    """Undo the last saved change."""
    facts = pool_of_console(request, name)[0]
    with site_scope():
        number = next_number(facts.id)
    try:
        undo_quotas(
            actor=actor_of(request),
            pool_id=facts.id,
            record_id=whole(request.POST.get("record")) or _last(facts),
            next_round=number,
        )
    except InvalidInputError as error:
        messages.error(request, " ".join(error.by_field.values()))
    else:
        messages.success(request, _("Undone: the old quotas are restored."))
    return redirect("operate-quotas", name)


def _last(facts: PoolFacts) -> int:
    record = _undoable(facts)
    return record.pk if record else 0
