"""`{% load evenshare %}`: number formats, and the components of the look.

docs/look.md has the usage of every tag, with its arguments. Filters only format; they never compute
a figure of a page. All data is escaped: tags use templates, `format_html` or the builders of
portal.charts, which escape their texts.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from hashlib import blake2s
from typing import Any, Protocol

from django import template
from django.template.context import Context
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_noop

from portal.charts import bars, figures, glyphs
from portal.charts.explore.chart import PageChart
from portal.charts.explore.still import still
from portal.charts.notes import (
    UNPROMISED,
    CertificatePanel,
    Instant,
    Note,
    Promise,
    Stat,
)
from portal.charts.page import VerifyPanel
from portal.charts.svg import Markup
from portal.charts.tenants import TenantBadge, swatch
from portal.charts.zones import full_text, local_text, viewers_zone

register = template.Library()

VERDICTS = {
    "holds": ("ok", gettext_noop("holds")),
    "note": ("note", gettext_noop("holds, with a note")),
    "violated": ("bad", gettext_noop("violated")),
    "unclaimed": ("unclaimed", gettext_noop("not claimed")),
    "unpromised": ("unclaimed", gettext_noop("not promised")),
    "not_applicable": ("unclaimed", gettext_noop("not applicable")),
    "unmeasured": ("unclaimed", gettext_noop("not measured")),
}


# ---- filters: numbers, money, time ----


@register.filter
def num(value: figures.Number | None, places: int | None = None) -> str:
    """`{{ 4211|num }}`: 4,211; `{{ x|num:2 }}` with decimals."""
    return figures.thousands(value, places)


@register.filter
def signed(value: figures.Number | None, places: int | None = None) -> str:
    """`{{ 13|signed }}`: +13, with a true minus."""
    return figures.thousands(value, places, signed=True)


@register.filter(name="credits")
def credits_filter(value: Decimal | int | str | None, places: int = 2) -> str:
    """Format credits with fixed decimals; a float raises TypeError."""
    return figures.credits_text(value, places)


@register.filter
def credits_signed(value: Decimal | int | str | None, places: int = 2) -> str:
    """Format credits with their sign: +96.10 or a true minus."""
    return figures.credits_text(value, places, signed=True)


@register.filter
def duration(seconds: figures.Number | None) -> str:
    """Format seconds in two units: 8 min 57 s."""
    return figures.duration(seconds)


@register.filter
def elapsed(seconds: figures.Number | None) -> str:
    """Format seconds as 0:08:57, for columns."""
    return figures.elapsed(seconds)


@register.filter
def ago(seconds: figures.Number | None) -> str:
    """Format seconds since an instant: 3 s ago; negative is "in 3 s"."""
    return figures.relative(seconds)


@register.filter
def rho(value: figures.Number | None) -> str:
    """Format a ratio with two decimals; undefined is a dash."""
    return figures.ratio(value)


@register.filter
def pct(fraction: figures.Number | None, places: int = 0) -> str:
    """Format 0.68 as 68 %."""
    return figures.percent(fraction, places)


@register.filter
def plural(count: int, forms: str) -> str:
    """`{{ 12|plural:"job" }}`: 12 jobs; an irregular plural after a comma: "entry,entries"."""
    one, _, many = forms.partition(",")
    return figures.plural(count, one, many or None)


@register.filter
def at(values: Sequence[Any], place: int) -> Any:
    """`{{ names|at:forloop.counter0 }}`: the item of a list at an index."""
    return values[place]


@register.filter
def utc(at: datetime | None) -> str:
    """Format an aware instant in full, UTC."""
    return figures.utc(at)


@register.filter
def toast_kind(level: str) -> str:
    """Return the state kind of a Django message's level."""
    return {"success": "ok", "warning": "warn", "error": "bad"}.get(level, "note")


# ---- the dotted number ----


@register.simple_tag(takes_context=True)
def note(context: Context, text: object, about: Note | None, key: str = "") -> str:
    """`{% note "61" use_note %}`: a number that opens to its line items; plain if the note is None.

    The id comes from the content (or `key`), so that it is constant in a refreshed region.
    `{% note "61" use_note as used %}` keeps it for a translated sentence with `{{ used }}`.
    """
    values = {"text": text, "about": about, "id": _note_id(context, text, about, key)}
    return render_to_string("components/note.html", values)


def _note_id(context: Context, text: object, about: Note | None, key: str) -> str:
    digest = blake2s(f"{key or (text, about)}".encode(), digest_size=5).hexdigest()
    request = context.get("request")
    if request is None:
        return f"n-{digest}"
    seen: dict[str, int] = request.__dict__.setdefault("_evenshare_notes", {})
    seen[digest] = seen.get(digest, 0) + 1
    return f"n-{digest}" if seen[digest] == 1 else f"n-{digest}-{seen[digest]}"


@register.inclusion_tag("components/stat_strip.html", takes_context=True)
def stat_strip(context: Context, stats: Iterable[Stat], label: str = "") -> dict[str, Any]:
    """`{% stat_strip stats %}`: at most four figures, see portal.charts.notes.Stat."""
    label = label or gettext("In figures")
    return {"stats": tuple(stats), "label": label, "request": context.get("request")}


@register.inclusion_tag("components/certificate.html", takes_context=True)
def certificate(context: Context, cert: CertificatePanel) -> dict[str, Any]:
    """`{% certificate cert %}`: the panel of a round's promises, violated ones first."""
    return {
        "cert": cert,
        "rows": [(promise, *_verdict(promise)) for promise in cert.ordered],
        "rest": [(promise, *_verdict(promise)) for promise in cert.rest],
        "rest_counts": [
            (count, gettext(VERDICTS[verdict][1]))
            for verdict in UNPROMISED
            if (count := cert.count(verdict))
        ],
        "request": context.get("request"),
    }


ROW_CLASSES = {"ok": "holds", "note": "note-row", "bad": "violated", "unclaimed": "grey"}


def _verdict(promise: Promise) -> tuple[str, Markup, str]:
    kind, text = VERDICTS.get(promise.verdict, VERDICTS["unclaimed"])
    return ROW_CLASSES[kind], glyphs.state_icon(kind), gettext(text)


@register.inclusion_tag("components/chart.html")
def chart(shown: PageChart) -> dict[str, Any]:
    """`{% chart price_chart %}`: an interactive chart; the page also needs `{% chart_head %}`."""
    return {"chart": shown, "still": still(shown)}


@register.simple_tag
def sparkline(shown: PageChart) -> Markup:
    """`{% sparkline use_chart %}`: the series of a chart without axes and texts."""
    return still(shown, bare=True)


@register.inclusion_tag("components/chart_head.html")
def chart_head() -> dict[str, Any]:
    """`{% block head %}{% chart_head %}{% endblock %}`: for pages with charts."""
    return {}


# ---- small badges ----


@register.simple_tag
def state(kind: str, text: str, extra: str = "") -> SafeString:
    """`{% state "running" "Running" %}`: a shape and a word; kinds are in glyphs.STATES."""
    return format_html(
        '<span class="state {} {}">{}{}</span>', kind, extra, glyphs.state_icon(kind), text
    )


@register.simple_tag
def reason(code: str, text: str) -> SafeString:
    """`{% reason why.code why.text %}`: a glyph and a text."""
    return format_html('<span class="chip">{}{}</span>', glyphs.reason_icon(code), text)


@register.inclusion_tag("components/price.html", takes_context=True)
def price(
    context: Context,
    value: Decimal | None,
    *,
    unit: str = "/ GPU-h",
    about: Note | None = None,
    big: bool = False,
    places: int = 2,
) -> dict[str, Any]:
    """`{% price 1.4600 %}`: the figure after its accent bar; None reads "own quota"."""
    shown = None if value is None else figures.credits_text(value, places)
    request = context.get("request")
    return {"shown": shown, "unit": unit, "about": about, "big": big, "request": request}


@register.simple_tag
def tenant(badge: TenantBadge, href: str = "", text: str = "") -> SafeString:
    """`{% tenant badge %}`: flag and name; `href` makes the name a link."""
    name = text or badge.name
    shown = format_html('<span class="nm" title="{}">{}</span>', name, name)
    if href:
        shown = format_html('<a class="nm" href="{}" title="{}">{}</a>', href, name, name)
    return format_html('<span class="key">{}{}</span>', swatch(badge), shown)


@register.simple_tag
def lease_bar(left_s: float, total_s: float, protected_s: float = 0, scale: float = 1) -> Markup:
    """`{% lease_bar left total protected scale %}`: pool seconds; counts down in the browser."""
    return bars.lease_bar(left_s, total_s, protected_s, scale)


@register.simple_tag
def progress(fraction: float | None) -> Markup:
    """`{% progress 0.68 %}`: a thin bar and its percentage."""
    return bars.progress(fraction)


@register.simple_tag
def share_bar(badge: TenantBadge, got: float, quota: float, demand: float, most: float) -> Markup:
    """`{% share_bar badge got quota demand most %}`: `most` is the table's largest value."""
    return bars.share_bar(badge, got, quota, demand, most=most)


@register.simple_tag
def countdown(ticks: int, of: int = 12) -> Markup:
    """`{% countdown 5 %}`: 5 of 12 ticks elapsed."""
    return bars.countdown(ticks, of)


@register.simple_tag
def icon(kind: str) -> Markup:
    """`{% icon "running" %}`: only the shape of a state, for use next to its word."""
    return glyphs.state_icon(kind)


class _Clocks(Protocol):
    def instant(self, at: datetime | None) -> Instant | None: ...


@register.filter
def on(at: datetime | None, clocks: _Clocks) -> Instant | None:
    """`{% when line.ends_at|on:times %}`: an instant of pool time on its pool's clock."""
    return clocks.instant(at)


@register.simple_tag
def wall(at: datetime | None) -> SafeString:
    """`{% wall token.expires_at %}`: a wall-clock instant in the viewer's zone, UTC on hover."""
    if at is None:
        return SafeString(figures.NONE)
    return _time(at, figures.utc(at), "full", full_text(at))


# The texts of an instant by style. In the viewer's zone they change with it.
_LOCAL: dict[str, Callable[[Instant], str]] = {
    "clock": lambda at: at.clock,
    "seconds": lambda at: at.seconds,
    "full": lambda at: at.full,
}
_UTC: dict[str, Callable[[Instant], str]] = {
    "hour": lambda at: at.utc_clock,
    "utc": lambda at: f"{at.utc_clock} UTC",
    "utc-seconds": lambda at: f"{at.utc_seconds} UTC",
}


@register.simple_tag
def when(at: Instant | None, style: str = "ago") -> SafeString:
    """`{% when instant %}`: "3 s ago" by pool time; on hover the time in the viewer's zone and UTC.

    `style` "clock" writes 14:06 in the viewer's zone, "seconds" 14:06:00, "full" also the date. If
    the pool's clock is not the wall clock, they are pool time, with both clocks on hover. Accounts
    use "utc" and "utc-seconds", with the word UTC; "hour" is for a place that says UTC itself.
    "wall" is the wall time since, for places that are labelled so. "viewer" is the wall time in the
    viewer's zone on any pool. It is "ago" if the wall time is unknown.
    """
    if at is None or (style == "wall" and at.wall_ago_s is None):
        return format_html('<span class="mut">{}</span>', figures.NONE)
    if style == "viewer" and at.wall is not None:
        text = local_text(at.wall, at.wall_now or at.wall, viewers_zone())
        return _time(at.wall, at.title, "viewer", text)
    if style == "wall" and at.wall_ago_s is not None:
        return _age(at, at.wall_ago_s, SafeString(""))
    title = f"{at.relative} \N{MIDDLE DOT} {at.title}"
    if style in _LOCAL:
        return _time(at.pool, title, style if at.is_wall else "", _LOCAL[style](at))
    if style in _UTC:
        return _time(at.pool, title, "", _UTC[style](at))
    return _age(at, at.ago_s, format_html(' data-scale="{}"', at.scale))


def _age(at: Instant, seconds: float, scale: SafeString) -> SafeString:
    """Return the time since an instant, on which the browser counts."""
    return format_html(
        '<time datetime="{}" title="{}" data-ago="{}"{}>{}</time>',
        at.iso,
        at.title,
        round(seconds),
        scale,
        figures.relative(seconds),
    )


def _time(at: datetime, title: str, style: str, text: str) -> SafeString:
    """Return an instant; without a zone, static/evenshare.js writes it in the viewer's `style`."""
    zone = SafeString("")
    if style and viewers_zone() is None:
        zone = format_html(' data-zone="{}"', style)
    return format_html(
        '<time datetime="{}" title="{}"{}>{}</time>', figures.iso(at), title, zone, text
    )


# ---- blocks ----


@register.inclusion_tag("components/command.html")
def command(text: str, *, is_shell: bool = True) -> dict[str, Any]:
    """`{% command "evenshare round verify 4211" %}`: a command with a copy button.

    `{% command link is_shell=False %}`: a text that is no command, without a prompt.
    """
    digest = blake2s(text.encode(), digest_size=5).hexdigest()
    return {"text": text, "id": f"c-{digest}", "is_shell": is_shell}


@register.inclusion_tag("components/verify.html")
def verify(panel: VerifyPanel) -> dict[str, Any]:
    """`{% verify panel %}`: the command that verifies the page, the head, the last verification."""
    return {"panel": panel}


@register.simple_block_tag
def section(
    content: str,
    title: str,
    *,
    sub: str = "",
    href: str = "",
    link: str = "",
    id: str = "",  # noqa: A002 - the name of the HTML attribute that it becomes
    live_url: str = "",
    css: str = "",
) -> SafeString:
    """`{% section "12 jobs wait, and why" href=url link="Queue" %}...{% endsection %}`.

    With `id` and `live_url` the section refreshes itself when the round changes.
    """
    opening = format_html('<section class="sec {}"{}>', css, _region(id, live_url))
    head = format_html("<h2>{}</h2>", title)
    if sub:
        head += format_html("<p>{}</p>", sub)
    if href:
        head += format_html('<a class="src" href="{}">{}</a>', href, link or gettext("More"))
    return format_html("{}<header>{}</header>{}</section>", opening, head, content)


@register.simple_block_tag
def fold(
    content: str,
    title: str,
    id: str,  # noqa: A002 - the name of the HTML attribute that it becomes
    *,
    sub: str = "",
    is_open: bool = False,
) -> SafeString:
    """`{% fold "In all pools" "pools" %}...{% endfold %}`: a section that opens by a click."""
    return format_html(
        '<details class="sec fold" id="{}"{}><summary><h2>{}</h2>{}</summary>{}</details>',
        *(id, SafeString(" open" if is_open else ""), title),
        *(format_html("<p>{}</p>", sub) if sub else "", content),
    )


def _region(element_id: str, live_url: str) -> SafeString:
    if not element_id:
        return SafeString("")
    if not live_url:
        return format_html(' id="{}"', element_id)
    return format_html(
        ' id="{0}" hx-get="{1}" hx-select="#{0}" hx-trigger="round-changed,'
        ' round-changed from:body" hx-target="this" hx-swap="outerHTML" hx-disinherit="*"',
        element_id,
        live_url,
    )


@register.simple_block_tag
def banner(content: str, kind: str, text: str, href: str = "", link: str = "") -> SafeString:
    """`{% banner "warn" "Maintenance" %}p100-31 until 16:00.{% endbanner %}`."""
    source = (
        format_html('<a class="src" href="{}">{}</a>', href, link or gettext("More"))
        if href
        else ""
    )
    return format_html(
        '<div class="ban {}" role="note">{}<span>{}</span>{}</div>',
        kind,
        state(kind, text),
        content,
        source,
    )
