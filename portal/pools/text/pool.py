"""Texts and charts of a pool: the GPU map, and unused GPUs of the last rounds."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext, pgettext

from evenshare_core.domain.reasons import Reason
from portal.charts.deficits import deficit_of
from portal.charts.explore.uses import (
    pool_quota_chart,
    pool_rho_chart,
    pool_use_chart,
    tells_rho,
)
from portal.charts.figures import (
    clock,
    credits_text,
    gpu_hours,
    percent,
    plural,
    thousands,
    utc,
)
from portal.charts.nodemap import MapHeldBack, MapLease, MapNode, map_shapes, node_map
from portal.charts.notes import PRICE_FORMULA, LineItem, Link, Note, count_note
from portal.charts.page import LinkChoice
from portal.charts.roundstrip import RoundBar, round_strip, unused_text
from portal.charts.svg import Markup
from portal.charts.tenants import HIDDEN, TenantBadge, hidden_badge
from portal.common.tenant_badges import badge_of, map_badges
from scheduling.models import Node
from scheduling.selectors.jobs.reasons import ReasonText, why
from scheduling.selectors.pools.now import (
    ClaimUse,
    HeldBackGpus,
    HeldGpus,
    NodeUse,
    PoolOverview,
    PriceNow,
    RoundSummary,
    TypeUse,
)
from scheduling.selectors.rounds.histories import PoolHistory
from scheduling.selectors.visibility import VisibleTenant

Badges = dict[int, TenantBadge]
# States of nodes and their phases, in the order of a node's life.
PHASES = (
    gettext_noop("up"),
    gettext_noop("in maintenance"),
    gettext_noop("draining"),
    gettext_noop("drained"),
    gettext_noop("down"),
)


@dataclass(frozen=True, slots=True)
class TenantUseRow:
    """A row of the table next to the map."""

    badge: TenantBadge
    claim: ClaimUse
    href: str = ""

    @property
    def changing(self) -> str:
        """Return the values whose change makes the row flash."""
        return f"{self.claim.own} {self.claim.borrowed} {self.claim.quota} {self.claim.swapped}"


@dataclass(frozen=True, slots=True)
class TypeSection:
    """A GPU type: its map and its rows."""

    use: TypeUse
    text: str
    svg: Markup
    rows: tuple[TenantUseRow, ...]


def badges_of(view: PoolOverview) -> Badges:
    """Return badges by tenant: the largest users have their own, all others share one."""
    uses: Counter[int] = Counter()
    seen = {}
    for claim in (claim for type_ in view.types for claim in type_.claims):
        if claim.tenant is not None:
            uses[claim.tenant.id] += claim.uses
            seen[claim.tenant.id] = claim.tenant
    return map_badges(seen.values(), uses)


def history_context(
    history: PoolHistory,
    badges: Badges,
    view: PoolOverview,
    name: str,
    now: datetime,
    *,
    gpu_type: str = "",
) -> dict[str, Any]:
    """Return the charts of use and rho by tenant, the choices of GPU types, and a headline.

    No charts before the first round. `gpu_type`: the type of `history`, which adds the chart of
    quotas.
    """
    if not history.tenants:
        return {"charts": [], "type_choices": [], "headline": _("No round yet.")}
    badges = _charted_badges(history, badges)
    gpus = next((one.gpus for one in view.types if one.name == gpu_type), view.total("gpus"))
    charts = [pool_use_chart(history, badges, now, pool=name, gpus=gpus, gpu_type=gpu_type)]
    if gpu_type:
        charts.append(pool_quota_chart(history, badges, now, pool=name, gpu_type=gpu_type))
    if tells_rho(history):
        charts.append(pool_rho_chart(history, badges, now, pool=name, of_all=bool(gpu_type)))
    choices = _type_choices(view, name, gpu_type)
    return {"charts": charts, "type_choices": choices, "headline": f"{charts[-1].title}."}


def _type_choices(view: PoolOverview, name: str, chosen: str) -> list[LinkChoice]:
    """Return all types, then each type; empty if there is only one."""
    if len(view.types) < 2:
        return []
    here = reverse("pool-history", args=[name])
    every = [(_("All types"), ""), *((one.name, one.name) for one in view.types)]
    return [
        LinkChoice(
            text,
            f"{here}?{urlencode({'gpu_type': key})}" if key else here,
            key == chosen,
        )
        for text, key in every
    ]


@dataclass(frozen=True, slots=True)
class DeficitRow:
    """A tenant's last day, in GPU-hours."""

    badge: TenantBadge
    short: str
    deserved: str
    share: str


def deficit_rows(day: PoolHistory, badges: Badges, now: datetime) -> list[DeficitRow]:
    """Return the hourly deficit of the last day of each tenant with a fair share, by name."""
    badges = _charted_badges(day, badges)
    rows = []
    for course in day.tenants:
        if course.tenant is None or course.tenant.id not in badges:
            continue
        deficit = deficit_of(tuple(zip(day.at, course.sums, strict=True)), now)
        if deficit is not None:
            gpu_h = (gpu_hours(deficit.short_gpu_s), gpu_hours(deficit.deserved_gpu_s))
            rows.append(DeficitRow(badges[course.tenant.id], *gpu_h, percent(deficit.share, 1)))
    return rows


def _charted_badges(history: PoolHistory, badges: Badges) -> Badges:
    """Return badges of the tenants in the table, and then of others of the last week.

    A tenant is not in the table if, for example, its GPU type has no node any more.
    """
    seen = [one.tenant for one in history.tenants if one.tenant is not None]
    return map_badges(seen, dict.fromkeys(badges, 1)) | badges


def pool_context(name: str, view: PoolOverview, badges: Badges) -> dict[str, Any]:
    """Return the data of the part of templates/pools/pool.html that shows the pool's state."""
    used, idle, blocked = (view.total(key) for key in ("used", "idle", "blocked"))
    last = view.rounds[-1] if view.rounds else None
    return {
        "parts": [_part(type_, badges, name) for type_ in view.types],
        "map_shapes": map_shapes(),
        "gpus": view.total("gpus"),
        "nodes": sum(len(type_.nodes) for type_ in view.types),
        "used": used,
        "used_note": _used_note(view),
        "idle": idle,
        "idle_note": _idle_note(name, view, last),
        "idle_reasons": idle_reasons(view, last),
        "held_back": view.total("held_back"),
        "blocked": blocked,
        "blocked_note": _blocked_note(view),
        "quota": view.total("quota"),
        "own": view.total("own"),
        "borrowed": view.total("borrowed"),
        "unassigned": view.total("unassigned"),
        "out": view.total("out"),
        "left": view.total("quota") - view.total("own"),
        # Maintenance has its own banner.
        "off": [
            (node, capfirst(_(_state(node))), len(node.holds)) for node in view.off if not node.away
        ],
        "last": last,
        "strip": _strip(name, view.rounds) if view.rounds else None,
        "prices": [(price, price_note(price)) for price in view.prices],
        "grouped": any(badge.css == HIDDEN.css for badge in badges.values()),
    }


def _used_note(view: PoolOverview) -> Note:
    return count_note(
        _("GPUs that leases hold"),
        [(_("within own quota"), view.total("own")), (_("borrowed"), view.total("borrowed"))],
        total=_("in use"),
    )


def _idle_note(name: str, view: PoolOverview, last: RoundSummary | None) -> Note:
    holes: Counter[int] = Counter()
    for node in (node for type_ in view.types for node in type_.nodes):
        if node.free and node.takes_leases:
            holes[node.free] += 1
    sentences = [_("At most {count} free on one node.").format(count=max(holes, default=0))]
    if held_back := view.total("held_back"):
        text = _("{count} of them held back for promised starts.")
        sentences.append(text.format(count=thousands(held_back)))
    if last and last.waiting:
        text = _("{jobs_are_queued} after round {number}.")
        sentences.append(
            text.format(
                jobs_are_queued=plural(last.waiting, "job is queued", "jobs are queued"),
                number=thousands(last.number),
            )
        )
    part = _("{count} \N{MULTIPLICATION SIGN} {size} on one node")
    return count_note(
        _("GPUs that are free"),
        [
            (part.format(count=count, size=size), count * size)
            for size, count in sorted(holes.items())
        ],
        total=_("idle"),
        text=" ".join(sentences),
        links=(Link(_("Reasons"), reverse("round", args=[name, last.number])),) if last else (),
    )


def idle_reasons(
    view: PoolOverview, last: RoundSummary | None
) -> list[tuple[int, ReasonText, str]]:
    """Return why the last round left jobs queued although GPUs are idle; most jobs first.

    For each reason: the number of jobs, its text, and the owners of quota that is not lent.
    """
    if last is None or not last.waiting or not view.total("idle"):
        return []
    return [
        (jobs, why(code), _kept_text(view) if code == Reason.RESERVED_QUOTA else "")
        for code, jobs in sorted(last.reasons, key=lambda item: (-item[1], item[0]))
    ]


def _kept_text(view: PoolOverview) -> str:
    """Return the owners of idle quota that is not lent, as far as the viewer may know."""
    kept: Counter[str] = Counter()
    for claim in (claim for type_ in view.types for claim in type_.claims if claim.kept):
        others = pgettext("from or to", "other tenants")
        kept[claim.tenant.name if claim.tenant else others] += claim.kept
    text = _("{tenant}: {count}")
    parts = (text.format(count=thousands(gpus), tenant=name) for name, gpus in kept.items())
    return ", ".join(parts)


def _blocked_note(view: PoolOverview) -> Note:
    return count_note(
        _("GPUs that no lease may take"),
        [(f"{node.name}, {_(_state(node))}", node.free) for node in view.off],
        total=_("unavailable"),
    )


def price_note(price: PriceNow) -> Note:
    """Return how the present price was computed."""
    text = _("Computed from {used} of {gpus} used: {formula}. Only borrowed GPUs cost credits.")
    return Note(
        _("Price of one {gpu_type} GPU-hour").format(gpu_type=price.gpu_type),
        (LineItem(_("posted after the last round"), credits_text(price.price, 6)),),
        text=text.format(
            used=thousands(price.used), gpus=plural(price.capacity, "GPU"), formula=_(PRICE_FORMULA)
        ),
    )


def _part(type_: TypeUse, badges: Badges, pool: str) -> TypeSection:
    parts = [
        _("{gpu_type}: {used} of {gpus} in use").format(
            gpu_type=type_.name, used=thousands(type_.used), gpus=thousands(type_.gpus)
        )
    ]
    if type_.held_back:
        text = _("{count} idle ({held_back} of them held back)")
        parts.append(text.format(count=thousands(type_.idle), held_back=thousands(type_.held_back)))
    elif type_.idle:
        parts.append(_("{count} idle").format(count=thousands(type_.idle)))
    if type_.blocked:
        parts.append(_("{count} unavailable").format(count=thousands(type_.blocked)))
    text = ", ".join(parts)
    return TypeSection(
        use=type_,
        text=text,
        svg=node_map([_node(node, badges) for node in type_.nodes], label=text),
        rows=tuple(_row(claim, badges, pool) for claim in type_.claims),
    )


def _row(claim: ClaimUse, badges: Badges, pool: str) -> TenantUseRow:
    if claim.tenant is None:
        return TenantUseRow(hidden_badge(), claim)
    slug = claim.tenant.slug
    href = reverse("dashboard", args=[slug]) if slug else ""
    # Without quota in the pool, the tenant has no overview of the pool.
    href += f"?pool={pool}" if slug and claim.quota else ""
    return TenantUseRow(badges[claim.tenant.id], claim, href)


def _node(node: NodeUse, badges: Badges) -> MapNode:
    return MapNode(
        name=node.name,
        gpus=node.gpus,
        leases=tuple(_lease(hold, badges) for hold in node.holds),
        state=_state(node),
        held_back=tuple(_held_back(row, badges) for row in node.held_back),
    )


def _held_back(row: HeldBackGpus, badges: Badges) -> MapHeldBack:
    badge = (
        hidden_badge() if row.tenant is None else badges.get(row.tenant.id) or badge_of(row.tenant)
    )
    if row.tenant is None:
        text = _("{gpus} held back for a job of another tenant, until {time}, pool time")
    elif row.name:
        text = _("{gpus} held back for {tenant}, {job}, until {time}, pool time")
    else:
        text = _("{gpus} held back for a job of {tenant}, until {time}, pool time")
    text = text.format(
        gpus=plural(row.gpus, "GPU"),
        tenant=row.tenant.name if row.tenant else "",
        job=row.name,
        time=utc(row.starts_at),
    )
    return MapHeldBack(row.gpus, badge, text, _job_href(row.job, row.tenant))


def _job_href(job: UUID | None, tenant: VisibleTenant | None) -> str:
    return reverse("job", args=[job]) if job and tenant and tenant.you else ""


def _state(node: NodeUse) -> str:
    return "down" if node.state == Node.State.LOST else node.phase


def _lease(hold: HeldGpus, badges: Badges) -> MapLease:
    badge = (badges.get(hold.tenant.id) if hold.tenant else None) or hidden_badge()
    parts = [hold.tenant.name if hold.tenant else _("other tenants")]
    if hold.name:
        parts.append(hold.name)
    held = plural(len(hold.slots), "GPU")
    if hold.gpus > len(hold.slots):
        held = _("{gpus} of {count}").format(gpus=held, count=hold.gpus)
    if hold.borrowed == len(hold.slots):
        held = _("{count} borrowed").format(count=held)
    parts.append(held)
    if 0 < hold.borrowed < len(hold.slots):
        parts.append(_("{count} borrowed").format(count=hold.borrowed))
    href = _job_href(hold.job, hold.tenant)
    return MapLease(hold.slots, badge, ", ".join(parts), hold.borrowed, href)


def _strip(name: str, rounds: tuple[RoundSummary, ...]) -> Markup:
    text = _("round {number}, {time}: {unused}, {jobs_are_queued}")
    bars = [
        RoundBar(
            number=bar.number,
            idle=bar.idle,
            blocked=bar.blocked,
            href=reverse("round", args=[name, bar.number]),
            text=text.format(
                number=thousands(bar.number),
                time=f"{clock(bar.at)} UTC",
                unused=unused_text(bar.idle, bar.blocked),
                jobs_are_queued=plural(bar.waiting, "job is queued", "jobs are queued"),
            ),
        )
        for bar in rounds
    ]
    first = _("round {number}, {time}").format(
        number=thousands(rounds[0].number), time=f"{clock(rounds[0].at)} UTC"
    )
    return round_strip(bars, first=first)


def strip_title(rounds: tuple[RoundSummary, ...], unit: str) -> str:
    if not rounds:
        return ""
    unused = [bar.idle + bar.blocked for bar in rounds]
    low, high = min(unused), max(unused)
    is_only = len(rounds) == 1
    if high == 0:
        text = (
            _("The whole pool was in use in the only round so far")
            if is_only
            else _("The whole pool was in use in each of the last {count} rounds")
        )
    elif is_only:
        text = ngettext(
            "{gpus} was unused in the only round so far",
            "{gpus} were unused in the only round so far",
            high,
        )
    elif low == high:
        text = ngettext(
            "{gpus} was unused in each of the last {count} rounds",
            "{gpus} were unused in each of the last {count} rounds",
            high,
        )
    else:
        text = _("Between {low} and {gpus} were unused in each of the last {count} rounds")
    return text.format(low=thousands(low), gpus=plural(high, unit), count=thousands(len(rounds)))
