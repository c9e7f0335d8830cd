"""An interactive chart: its series and their looks, the Plotly figure, and the table.

templates/components/chart.html shows it on a page and static/charts.js draws it; docs/look.md
documents both.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, pgettext

from portal.charts.explore.columns import ChartColumn, english, localized
from portal.charts.explore.looks import Look
from portal.charts.figures import DAY_S, HOUR_S, NONE, credits_text, thousands
from portal.charts.svg import Markup
from tenants.language import marked

Key = datetime | float | str
Value = Decimal | int | float | None

AT = gettext_noop("at, UTC on the pool's clock")
TABLE_ROWS = 24

BAR = 0.92  # Width of a bar as a part of its span; the rest is the gap to the next bar.
APART = 0.08  # Smallest distance of two labels, as a part of the axis.
RANGES = ((HOUR_S, "1 h"), (6 * HOUR_S, "6 h"), (DAY_S, "24 h"), (7 * DAY_S, "7 d"))
FONT = '"Source Sans 3", system-ui, sans-serif'


@dataclass(frozen=True, slots=True)
class Series:
    """A line, area or row of bars; a None value is a gap.

    `column` is the heading; a plain text is the same in all languages. `kind` is line, area
    (stacked) or bar. `steps`: a value holds until the next one. `also` are more columns of the same
    rows, by texts of the catalogue; they are shown on hover, too. If `shown` is False, the reader
    switches the series on. `dots` marks each value of a line, so that a single value is visible.
    `span_s`: the seconds that a bar covers from its key on. `key` identifies the series across
    refreshes of the chart; the default is the name, which is not unique for tenants. `digits`:
    significant digits of values, in place of `places`.
    """

    name: str
    column: ChartColumn | str
    keys: Sequence[Key]
    values: Sequence[Value]
    look: Look
    kind: str = "line"
    steps: bool = True
    places: int = 0
    also: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shown: bool = True
    dots: bool = False
    span_s: int = 0
    key: str = ""
    digits: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """A text at the height of a value: to the right of the chart, or `inside` at its left edge."""

    text: str
    value: float
    color: str = "var(--ink)"
    inside: bool = False


@dataclass(frozen=True, slots=True)
class Band:
    """A highlighted range of y."""

    low: float
    high: float
    fill: str


@dataclass(frozen=True, slots=True)
class Span:
    """A highlighted range of a numeric x axis."""

    first: float
    last: float
    fill: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A dashed vertical line at an instant, with the event's text."""

    at: datetime
    text: str


@dataclass(frozen=True)
class PageChart:
    """A chart with its texts. `key` is its id in the page; `file` starts the names of downloads.

    `key_column` is the heading of the first column; a plain text is one of the catalogue. `y` is
    the range of its axis, which zooming keeps. `sideways`: horizontal bars, one row per key.
    """

    key: str
    title: str
    text: str
    series: tuple[Series, ...]
    y: tuple[float, float]
    unit: str
    file: str
    key_column: ChartColumn | str = AT
    labels: tuple[Label, ...] = ()
    bands: tuple[Band, ...] = ()
    rules: tuple[Rule, ...] = ()
    spans: tuple[Span, ...] = ()
    sideways: bool = False
    key_unit: str = ""

    @property
    def is_time(self) -> bool:
        return any(isinstance(key, datetime) for one in self.series for key in one.keys)

    @property
    def figure(self) -> dict[str, Any]:
        """Return the figure for plotly.js. Tests validate it with the Python package `plotly`."""
        traces = [_trace(one, sideways=self.sideways) for one in self.series]
        return {"data": traces, "layout": _layout(self)}

    @cached_property
    def keys(self) -> list[Key]:
        """Return the distinct keys of all series; times and numbers are sorted."""
        every = dict.fromkeys(key for one in self.series for key in one.keys)
        return list(every) if self.sideways else sorted(every, key=key_number)

    @property
    def ranges(self) -> list[tuple[str, int]]:
        """Return (text, seconds) of the range buttons that are shorter than the whole chart."""
        if not self.is_time or not self.keys:
            return []
        span = key_number(self.keys[-1]) - key_number(self.keys[0])
        return [(text, seconds) for seconds, text in RANGES if seconds < span]

    @property
    def payload(self) -> Markup:
        """Return the JSON that static/charts.js reads, safe as text in a page."""
        figure = self.figure
        axes: list[Any] = []
        for trace in figure["data"]:
            if not self.sideways:
                trace["x"] = _shared(axes, trace["x"])
        payload = {
            "figure": figure,
            "axes": axes,
            "ranges": [] if self.sideways else [*self.ranges, (pgettext("range", "All"), 0)],
            "first": DAY_S if any(seconds == DAY_S for _text, seconds in self.ranges) else None,
            "end": _plain(self.keys[-1]) if self.is_time and self.keys else None,
            "file": self.file,
            "column": english(self.key_column),
            "title": self.title,
            "sideways": self.sideways,
        }
        text = json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
        return Markup(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))

    @property
    def heads(self) -> list[str]:
        """Return the headings of the table."""
        key = self.key_column
        first = _(key) if isinstance(key, str) else key.shown
        return [first, *(head for one in self.series for head, _values in _cells(one))]

    @cached_property
    def rows(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Return at most TABLE_ROWS evenly spaced table rows; times are newest first."""
        step = -(-len(self.keys) // TABLE_ROWS) or 1
        chosen = self.keys[::-1][::step] if self.is_time else self.keys[::step]
        cells = [cell for one in self.series for cell in _cells(one)]
        return [
            (key_text(key), [(head, cell.get(key, NONE)) for head, cell in cells]) for key in chosen
        ]

    @property
    def is_thinned(self) -> bool:
        """Return whether the table omits rows."""
        return len(self.rows) < len(self.keys)


def through(instants: Iterable[datetime], now: datetime) -> list[datetime]:
    """Return the sorted instants, and the end until which the last value holds: `now` or later."""
    keys = list(instants)
    return [*keys, max(now, keys[-1])]


def _shared(axes: list[Any], values: Any) -> int:
    """Return the index of the x values in `axes`; series with equal x values share one list."""
    if values not in axes:
        axes.append(values)
    return axes.index(values)


def _cells(one: Series) -> list[tuple[str, dict[Key, str]]]:
    own = {
        key: value_text(value, one.places, one.digits)
        for key, value in zip(one.keys, one.values, strict=True)
    }
    more = [
        (_(head), dict(zip(one.keys, map(localized, texts), strict=True)))
        for head, texts in one.also.items()
    ]
    return [(one.column if isinstance(one.column, str) else one.column.shown, own), *more]


def value_text(value: Value, places: int, digits: int = 0) -> str:
    if digits and value is not None:
        return marked(f"{value:.{digits}g}")
    if isinstance(value, Decimal):
        return credits_text(value, places)
    return thousands(value, places)


def key_text(key: Key) -> str:
    if isinstance(key, datetime):
        return f"{key.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    return str(key) if isinstance(key, str | int) else marked(f"{key:g}")


def key_number(key: Key) -> Any:
    """Return the place of a key on the x axis: seconds of an instant; a text itself."""
    return key.timestamp() if isinstance(key, datetime) else key


def _plain(key: Key) -> Any:
    """Return a JSON value; instants are milliseconds, which Plotly reads as UTC."""
    return round(key.timestamp() * 1000) if isinstance(key, datetime) else key


def _number(value: Value, digits: int = 0) -> str | float | int | None:
    """Return a JSON value: a Decimal as its digits, never as a float; a float with 6 places."""
    if isinstance(value, Decimal):
        return str(value)
    if digits and value is not None:
        return float(f"{value:.{digits}g}")
    return round(value, 6) if isinstance(value, float) else value


def _trace(one: Series, *, sideways: bool) -> dict[str, Any]:
    keys = [_plain(key) for key in one.keys]
    values = [_number(value, one.digits) for value in one.values]
    form = f".{one.digits}~g" if one.digits else f",.{one.places}f"
    more = "".join(
        f"<br>{said(_(head))}: %{{customdata[{place}]}}" for place, head in enumerate(one.also)
    )
    axis = "x" if sideways else "y"
    common: dict[str, Any] = {
        "name": one.name,
        "x": values if sideways else keys,
        "y": keys if sideways else values,
        "visible": True if one.shown else "legendonly",
        "hovertemplate": f"%{{{axis}:{form}}}{more}<extra>{said(one.name)}</extra>",
        "meta": {
            "key": one.key or one.name,
            "column": english(one.column),
            "also": list(one.also),
            "names": [_(head) for head in one.also],
            "swatch": one.look.swatch,
            "line": one.kind == "line",
        },
    }
    if one.also:
        common["customdata"] = [list(row) for row in zip(*one.also.values(), strict=True)]
    if one.kind == "bar":
        span = {"offset": 0, "width": 1000 * one.span_s * BAR} if one.span_s else {}
        return {
            **common,
            **span,
            "type": "bar",
            "orientation": "h" if sideways else "v",
            "marker": {
                "color": one.look.fill or one.look.color,
                "pattern": _pattern(one.look),
                "line": {"color": one.look.color, "width": 1},
            },
        }
    common["type"] = "scatter"
    shape = "hv" if one.steps else "linear"
    line = {"color": one.look.color, "dash": one.look.dash, "width": one.look.width, "shape": shape}
    if one.kind == "area":
        return {
            **common,
            "mode": "lines",
            "line": {**line, "dash": "solid", "width": 1},
            "stackgroup": "one",
            "fillcolor": one.look.fill,
            "fillpattern": _pattern(one.look),
        }
    mode = "lines+markers" if one.dots else "lines"
    return {**common, "mode": mode, "line": line, "connectgaps": False}


def _pattern(look: Look) -> dict[str, Any]:
    if not look.pattern:
        return {}
    return {
        "path": look.pattern,
        "size": 6,
        "fgcolor": look.color,
        "bgcolor": look.fill,
        "fgopacity": 0.55,
        "fillmode": "replace",
    }


def _layout(chart: PageChart) -> dict[str, Any]:
    line = {"gridcolor": "var(--rule)", "linecolor": "var(--ink)", "zerolinecolor": "var(--ink)"}
    values = {
        **line,
        "range": list(chart.y),
        "fixedrange": True,
        "type": "linear",
        "separatethousands": True,
        "nticks": 6,
        "zeroline": chart.y[0] < 0,
        "title": {"text": chart.unit, "standoff": 6, "font": {"size": 13}},
    }
    if any(one.digits for one in chart.series):
        values["exponentformat"] = "e"
    keys: dict[str, Any] = {**line, "showgrid": False, "showline": True, "zeroline": False}
    if chart.is_time:
        keys |= {"type": "date", "hoverformat": "%Y-%m-%d %H:%M:%S UTC", "nticks": 6}
        keys |= {"title": {"text": "UTC", "standoff": 4, "font": {"size": 13}}, "automargin": True}
    elif chart.sideways:
        keys |= {"type": "category", "autorange": "reversed", "fixedrange": True}
    elif chart.key_unit:
        keys |= {"ticksuffix": f" {chart.key_unit}", "rangemode": "tozero"}
    return {
        "font": {"family": FONT, "size": 14, "color": "var(--ink-2)"},
        "paper_bgcolor": "var(--paper)",
        "plot_bgcolor": "var(--paper)",
        "showlegend": False,
        "separators": marked(".,"),
        "barmode": "group" if chart.sideways else "overlay",
        "bargap": 0.35,
        "hovermode": "y unified" if chart.sideways else "x unified",
        "hoverlabel": {
            "bgcolor": "var(--sheet)",
            "bordercolor": "var(--ink)",
            "font": {"family": FONT, "color": "var(--ink)", "size": 14},
        },
        "margin": {"l": 56, "r": _room(chart), "t": _head_room(chart), "b": 44},
        "xaxis": {**values, "automargin": True} if chart.sideways else keys,
        "yaxis": {**keys, "automargin": True} if chart.sideways else values,
        "dragmode": False if chart.sideways else "zoom",
        "uirevision": chart.key,
        "shapes": [*map(_band, chart.bands), *map(_span, chart.spans), *map(_rule, chart.rules)],
        "annotations": [*map(_label, chart.labels), *map(_rule_label, chart.rules)],
    }


def _room(chart: PageChart) -> int:
    """Return the pixels for the longest label to the right of the chart."""
    longest = max((len(label.text) for label in chart.labels if not label.inside), default=0)
    return 12 + round(7.4 * longest)


def _head_room(chart: PageChart) -> int:
    """Return the pixels above the chart: one line if a rule has a name."""
    return 26 if any(rule.text for rule in chart.rules) else 16


def _band(band: Band) -> dict[str, Any]:
    return _FILLED | {**_WIDE, "y0": band.low, "y1": band.high, "fillcolor": band.fill}


def _span(span: Span) -> dict[str, Any]:
    return _FILLED | {**_HIGH, "x0": span.first, "x1": span.last, "fillcolor": span.fill}


def _rule(rule: Rule) -> dict[str, Any]:
    at = _plain(rule.at)
    line = {"color": "var(--ink-2)", "dash": "dash", "width": 1}
    return {**_HIGH, "type": "line", "x0": at, "x1": at, "line": line}


def _rule_label(rule: Rule) -> dict[str, Any]:
    place = {"x": _plain(rule.at), "yref": "paper", "y": 1, "xanchor": "left", "yanchor": "bottom"}
    return {**place, "text": said(rule.text), "showarrow": False, "font": {"color": "var(--ink)"}}


_FILLED = {"type": "rect", "line": {"width": 0}, "layer": "below"}
_WIDE = {"xref": "paper", "x0": 0, "x1": 1}
_HIGH = {"yref": "paper", "y0": 0, "y1": 1}
_BESIDE = {"xref": "paper", "x": 1, "xshift": 4, "yanchor": "middle"}
_INSIDE = {"xref": "paper", "x": 0, "xshift": 4, "yanchor": "bottom"}


def _label(label: Label) -> dict[str, Any]:
    common = {
        "y": label.value,
        "text": said(label.text),
        "showarrow": False,
        "xanchor": "left",
        "font": {"color": label.color, "weight": 650},
    }
    return {**common, **(_INSIDE if label.inside else _BESIDE)}


def distinct_names(names: Sequence[tuple[str, str]]) -> list[str]:
    """Return the names of (name, mark) pairs; a duplicate name gets its mark in brackets."""
    counts = Counter(name for name, _mark in names)
    return [name if counts[name] == 1 else f"{name} ({mark})" for name, mark in names]


def apart(labels: Iterable[Label], y: tuple[float, float]) -> tuple[Label, ...]:
    """Return the labels that do not overlap; earlier labels win."""
    shown: list[Label] = []
    for label in labels:
        if all(abs(label.value - one.value) > APART * (y[1] - y[0]) for one in shown):
            shown.append(label)
    return tuple(shown)


def said(text: str) -> str:
    """Escape a text for Plotly, which interprets some tags and %{...}."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("%{", "% {")


def axis_range(
    values: Sequence[float], *, least: float, floor: float | None = 0.0, around: float | None = None
) -> tuple[float, float]:
    """Return a range of at least `least` that contains all values, so that noise looks small.

    The range does not go below `floor`, and contains `around`. A range that had to be widened is
    centred on `around`.
    """
    held = [*values, *([around] if around is not None else [])] or [0.0]
    low, high = min(held), max(held)
    room = max(high - low, least) * 0.1
    low, high = low - room, high + room
    if high - low < least:
        middle = around if around is not None else (low + high) / 2
        low, high = min(low, middle - least / 2), max(high, middle + least / 2)
    if floor is not None and low < floor:
        low, high = floor, max(high, floor + least)
    return round(low, 9), round(high, 9)
