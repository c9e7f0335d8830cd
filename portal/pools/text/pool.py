"""A pool in words and charts: who is where, and what the last rounds left unused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from portal.charts.figures import clock, credits_text, plural, thousands
from portal.charts.nodemap import MapLease, MapNode, node_map
from portal.charts.notes import Addend, Link, Note, count_note
from portal.charts.pricechart import PRICE_FORMULA
from portal.charts.roundstrip import RoundBar, round_strip
from portal.charts.svg import Markup
from portal.charts.tenants import TenantMark
from portal.site.tenant_marks import HIDDEN, map_marks
from scheduling.models import Node
from scheduling.selectors.pools import (
    ClaimUse,
    HeldGpus,
    NodeUse,
    PoolOverview,
    PriceNow,
    RoundSummary,
    TypeUse,
)

Marks = dict[int, TenantMark]


_STATES = {Node.State.UP: "up", Node.State.DRAINED: "drained", Node.State.LOST: "down"}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table beside the map."""

    mark: TenantMark
    claim: ClaimUse
    href: str = ""

    @property
    def changing(self) -> str:
        """What makes the row flash when it changes."""
        return f"{self.claim.own} {self.claim.borrowed} {self.claim.quota}"


@dataclass(frozen=True, slots=True)
class Part:
    """One GPU type: its map and its rows."""

    use: TypeUse
    words: str
    svg: Markup
    rows: tuple[Row, ...]


def charts_of(view: PoolOverview) -> Marks:
    """Marks by tenant: those that use most have their own."""
    uses: Counter[int] = Counter()
    seen = {}
    for claim in (claim for type_ in view.types for claim in type_.claims):
        if claim.tenant is not None:
            uses[claim.tenant.id] += claim.uses
            seen[claim.tenant.id] = claim.tenant
    return map_marks(seen.values(), uses)


def pool_context(name: str, view: PoolOverview, marks: Marks) -> dict[str, Any]:
    """Return what templates/pools/pool.html reads of the pool's state."""
    used, idle, blocked = (view.total(key) for key in ("used", "idle", "blocked"))
    last = view.rounds[-1] if view.rounds else None
    return {
        "parts": [_part(type_, marks) for type_ in view.types],
        "gpus": view.total("gpus"),
        "nodes": sum(len(type_.nodes) for type_ in view.types),
        "used": used,
        "used_note": _used_note(view),
        "idle": idle,
        "idle_note": _idle_note(name, view, last),
        "blocked": blocked,
        "blocked_note": _blocked_note(view),
        "quota": view.total("quota"),
        "own": view.total("own"),
        "borrowed": view.total("borrowed"),
        "unassigned": view.total("unassigned"),
        "out": view.total("out"),
        "left": view.total("quota") - view.total("own"),
        "off": [(node, len(node.holds)) for node in view.off],
        "last": last,
        "strip": _strip(name, view.rounds) if view.rounds else None,
        "prices": [(price, price_note(price)) for price in view.prices],
        "grouped": any(mark.css == HIDDEN.css for mark in marks.values()),
    }


def _used_note(view: PoolOverview) -> Note:
    return count_note(
        "GPUs that leases hold",
        [("within own quota", view.total("own")), ("borrowed", view.total("borrowed"))],
        total="in use",
    )


def _idle_note(name: str, view: PoolOverview, last: RoundSummary | None) -> Note:
    holes: Counter[int] = Counter()
    for node in (node for type_ in view.types for node in type_.nodes):
        if node.free and node.state == Node.State.UP:
            holes[node.free] += 1
    waits = ""
    if last and last.waiting:
        waits = f" {plural(last.waiting, 'job')} queued after round {thousands(last.number)}."
    links = (
        (Link("Why they are queued", reverse("round", args=[name, last.number])),) if last else ()
    )
    return count_note(
        "GPUs that are free",
        [
            (f"{count} \N{MULTIPLICATION SIGN} {size} on one node", count * size)
            for size, count in sorted(holes.items())
        ],
        total="idle",
        words=f"The most free on one node is {max(holes, default=0)}.{waits}",
        links=links,
    )


def _blocked_note(view: PoolOverview) -> Note:
    return count_note(
        "GPUs that no lease may take",
        [(f"{node.name}, {_STATES[Node.State(node.state)]}", node.free) for node in view.off],
        total="unavailable",
    )


def price_note(price: PriceNow) -> Note:
    """How the present price came about."""
    share = f"{thousands(price.used)} of {thousands(price.capacity)} GPUs used"
    return Note(
        f"Price of one {price.gpu_type} GPU-hour",
        (Addend("posted after the last round", credits_text(price.price, 6)),),
        words=f"It follows from {share}: {PRICE_FORMULA}. Only borrowed GPUs cost it.",
    )


def _part(type_: TypeUse, marks: Marks) -> Part:
    words = f"{type_.name}: {thousands(type_.used)} of {thousands(type_.gpus)} in use"
    if type_.idle:
        words += f", {thousands(type_.idle)} idle"
    if type_.blocked:
        words += f", {thousands(type_.blocked)} unavailable"
    return Part(
        use=type_,
        words=words,
        svg=node_map([_node(node, marks) for node in type_.nodes], label=words),
        rows=tuple(_row(claim, marks) for claim in type_.claims),
    )


def _row(claim: ClaimUse, marks: Marks) -> Row:
    if claim.tenant is None:
        return Row(HIDDEN, claim)
    href = reverse("dashboard", args=[claim.tenant.slug]) if claim.tenant.slug else ""
    return Row(marks[claim.tenant.id], claim, href)


def _node(node: NodeUse, marks: Marks) -> MapNode:
    return MapNode(
        name=node.name,
        gpus=node.gpus,
        leases=tuple(_lease(hold, marks) for hold in node.holds),
        state=_STATES[Node.State(node.state)],
    )


def _lease(hold: HeldGpus, marks: Marks) -> MapLease:
    mark = HIDDEN if hold.tenant is None else marks.get(hold.tenant.id, HIDDEN)
    words = [hold.tenant.name if hold.tenant else HIDDEN.name]
    if hold.name:
        words.append(hold.name)
    words.append(plural(len(hold.slots), "GPU"))
    if hold.gpus > len(hold.slots):
        words[-1] += f" of {hold.gpus}"
    if hold.borrowed:
        words.append(f"{hold.borrowed} borrowed")
    href = reverse("job", args=[hold.job]) if hold.job and hold.tenant and hold.tenant.you else ""
    return MapLease(hold.slots, mark, ", ".join(words), hold.borrowed, href)


def _strip(name: str, rounds: tuple[RoundSummary, ...]) -> Markup:
    bars = [
        RoundBar(
            number=bar.number,
            idle=bar.idle,
            blocked=bar.blocked,
            href=reverse("round", args=[name, bar.number]),
            words=f"round {thousands(bar.number)}, {clock(bar.at)}: {bar.idle} idle,"
            f" {bar.blocked} unavailable, {plural(bar.waiting, 'job')} queued",
        )
        for bar in rounds
    ]
    first = f"round {thousands(rounds[0].number)}, {clock(rounds[0].at)}"
    return round_strip(bars, first=first)


def strip_title(rounds: tuple[RoundSummary, ...], unit: str) -> str:
    """The finding of the strip of rounds."""
    if not rounds:
        return ""
    unused = [bar.idle + bar.blocked for bar in rounds]
    low, high = min(unused), max(unused)
    which = f"each of the last {len(rounds)} rounds" if len(rounds) > 1 else "the only round so far"
    if high == 0:
        return f"No {unit} went unused in {which}"
    if low == high:
        return f"{plural(high, unit)} went unused in {which}"
    return f"Between {low} and {high} {unit}s went unused in {which}"
