"""Shapes that have a meaning without colour: one per state, one per reason to wait."""

from typing import NamedTuple

from portal.charts.svg import Markup, tag


class StateBadge(NamedTuple):
    """The mark of a state: a key of `STATES` (empty for no mark) and the text next to it."""

    kind: str
    text: str


_LINE = 'fill="none" stroke="currentColor" stroke-width="1.6"'
_CUT = 'fill="none" class="cut" stroke-width="1.8"'

# The shape of each state in a 14 x 14 box. The state is also the CSS class.
STATES: dict[str, str] = {
    "ok": f'<circle cx="7" cy="7" r="6.5" fill="currentColor"/><path d="M3.8 7.2l2.2 2.2 4.2-4.6" '
    f"{_CUT}/>",
    "note": f'<circle cx="7" cy="7" r="5.7" {_LINE}/><path d="M4.2 7.2l2 2 3.8-4.2" {_LINE}/>',
    "warn": f'<path d="M7 .8L13.6 13H.4z" fill="currentColor"/>'
    f'<path d="M7 5v4M7 10.2v1.4" {_CUT}/>',
    "bad": f'<path d="M4.2.5h5.6l3.7 3.7v5.6l-3.7 3.7H4.2L.5 9.8V4.2z" fill="currentColor"/>'
    f'<path d="M4.6 4.6l4.8 4.8M9.4 4.6L4.6 9.4" {_CUT}/>',
    "running": '<path d="M3 1.5v11l9-5.5z" fill="currentColor"/>',
    "starting": f'<path d="M3.6 2.4v9.2L11 7z" {_LINE}/>',
    "waiting": f'<circle cx="7" cy="7" r="5.5" {_LINE} stroke-dasharray="2.4 1.9"/>',
    "ended": '<path d="M2.5 2.5h9v9h-9z" fill="currentColor"/>',
    "preempted": f'<circle cx="7" cy="7" r="5.7" {_LINE}/><path d="M7 1.3a5.7 5.7 0 010 11.4z" '
    'fill="currentColor"/>',
    "unclaimed": f'<circle cx="7" cy="7" r="5.7" {_LINE}/><path d="M4 7h6" {_LINE}/>',
    "submitted": '<circle cx="7" cy="7" r="4" fill="currentColor"/>',
}

_CLOCK = f'<circle cx="7" cy="7" r="5.5" {_LINE}/><path d="M7 3.6V7l2.4 1.6" {_LINE}/>'
_DIAMOND = f'<path d="M7 1l6 6-6 6-6-6z" {_LINE}/><path d="M7 4.2v3.4M7 9.2v.8" {_LINE}/>'
_BLOCKS = f'<path d="M1 2h5v10H1zM8 2h5v10H8z" {_LINE}/><path d="M6 7h2" {_LINE}/>'
_STOPS = f'<path d="M1.8 1v12M12.2 1v12" {_LINE}/><path d="M4 7h6M8 4.8L10.2 7 8 9.2" {_LINE}/>'
_COIN = f'<circle cx="7" cy="7" r="5.5" {_LINE}/><path d="M4.2 7h5.6" {_LINE}/>'
_HOLD = '<path d="M3 1.5h3v11H3zM8 1.5h3v11H8z" fill="currentColor"/>'
_FULL = f'<path d="M1.2 1.2h11.6v11.6H1.2z" {_LINE}/><path d="M4 4h6v6H4z" fill="currentColor"/>'
_CHAIN = f'<path d="M1 7h8M6.5 3.8L9.8 7l-3.3 3.2M12.6 1.5v11" {_LINE}/>'
_GAUGE = f'<path d="M1.5 11a5.8 5.8 0 1111 0" {_LINE}/><path d="M7 10l2.8-4" {_LINE}/>'
_DOWN = f'<path d="M1.2 1.2h11.6v11.6H1.2zM1.2 5.2l4-4M1.2 12.8L12.8 1.2M8.8 12.8l4-4" {_LINE}/>'
_QUESTION = f'<circle cx="7" cy="7" r="5.7" {_LINE}/><path d="M7 3.6v4M7 9v1.4" {_LINE}/>'

# Keywords of a reason's code, each with its glyph. The first match wins, so order matters.
_REASONS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("price",), _DIAMOND),
    (("budget", "credit"), _COIN),
    (("held", "hold", "paused", "quarantin", "backing"), _HOLD),
    (("depend", "after", "array", "passed"), _CHAIN),
    (("profil", "estimate"), _GAUGE),
    (("down", "drain", "maintenance", "unavailable"), _DOWN),
    (("gang", "node", "fragment", "place", "fit", "large"), _BLOCKS),
    (("limit", "quota", "cap", "borrow"), _STOPS),
    (("before", "later", "promise", "batch"), _CLOCK),
    (("turn", "share", "rho", "fair", "lease", "queue", "order"), _CLOCK),
    (("full", "capacity", "resource", "gpu", "memory"), _FULL),
)


def _icon(drawing: str, css: str) -> Markup:
    # The drawings are constants of this file, so they are safe markup.
    return tag(
        "svg",
        Markup(drawing),
        viewBox="0 0 14 14",
        width=14,
        height=14,
        class_=css,
        aria_hidden="true",
    )


def state_icon(kind: str) -> Markup:
    """Return the shape of a state; an unknown state gets the plain dot."""
    return _icon(STATES.get(kind, STATES["submitted"]), "glyph")


def reason_icon(code: str) -> Markup:
    """Return the glyph of a pending reason by the keywords in its code."""
    lower = code.lower()
    for keywords, drawing in _REASONS:
        if any(word in lower for word in keywords):
            return _icon(drawing, "glyph")
    return _icon(_QUESTION, "glyph")
