"""The colours of series, always combined with a dash or a pattern."""

from dataclasses import dataclass

from portal.charts.tenants import OTHERS, TenantBadge

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
# Filled paths in a box of 6 px, like the lines and dots of templates/components/patterns.html.
# Diagonals are reserved: no tenant has one.
_PATHS = (
    "",
    "M0 1h6v.9H0zM0 4h6v.9H0z",
    "M1 0h.9v6H1zM4 0h.9v6H4z",
    "M0 2.5h6v.9H0zM2.5 0h.9v6h-.9z",
    "M.5 1.5a1 1 0 1 0 2 0a1 1 0 1 0-2 0zM3.5 4.5a1 1 0 1 0 2 0a1 1 0 1 0-2 0z",
    "M.7 3a2.3 2.3 0 1 0 4.6 0a2.3 2.3 0 1 0-4.6 0zM1.6 3a1.4 1.4 0 1 1 2.8 0a1.4 1.4 0 1 1-2.8 0z",
    "M2.5 1.2h.9v3.6h-.9zM1.2 2.5h3.6v.9H1.2z",
    "M0 0h6v.9H0zM0 3h6v.9H0zM1 .9h.9v2.1H1zM4 3.9h.9v2.1H4z",
)
# Tenants 9 to 16 repeat these patterns, starting with the grid, in another lightness.
_PATTERN_OF = (0, 1, 2, 3, 4, 5, 6, 7, 3, 4, 5, 6, 7, 0, 1, 2)
BORROWED = "M4.5 0H6L0 6V4.5zM6 4.5V6H4.5z"


@dataclass(frozen=True, slots=True)
class Look:
    """The colour and line or pattern of a series.

    `color` is that of a line or of a pattern's strokes. `fill` is the colour under the pattern,
    empty for a line. `pattern` is a path in a box of 6 px; `swatch` is the class of the flag in the
    legend.
    """

    color: str
    dash: str = "solid"
    fill: str = ""
    pattern: str = ""
    swatch: str = ""
    width: float = 2


OWN = Look("var(--ink)", fill="var(--own)")
LENT = Look("var(--accent)", "dash", "var(--accent-wash)", BORROWED)
QUOTA = Look("var(--ink-2)", "dash", width=1.6)
PRICE = Look("var(--accent)")
BASE = Look("var(--ink-2)", "dot", width=1.6)
NET = Look("var(--ink)", "dot")
_LINES = ("var(--accent)", "var(--ink)", "var(--ok)", "var(--warn)", "var(--bad)", "var(--ink-2)")


def line_look(place: int) -> Look:
    """Return the look of the n-th series, for series without a fixed colour, such as policies.

    The colours repeat, each time with another dash: 36 looks differ.
    """
    again, color = divmod(place, len(_LINES))
    return Look(_LINES[color], DASHES[(color + again) % len(DASHES)])


def tenant_area(badge: TenantBadge) -> Look:
    """Return a tenant's area: the colour and pattern that it has on all pages."""
    css = badge.css
    pattern = "" if badge.index == OTHERS else _PATHS[_PATTERN_OF[badge.index]]
    return Look(f"var(--{css}-str)", "solid", f"var(--{css}-fill)", pattern, css, 1)


def tenant_line(badge: TenantBadge) -> Look:
    """Return a tenant's line: its colour, and a dash pattern chosen by the tenant's number."""
    dash = "dot" if badge.index == OTHERS else DASHES[badge.index % len(DASHES)]
    return Look(f"var(--{badge.css}-str)", dash, swatch=badge.css, width=2)
