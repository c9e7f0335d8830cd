"""A tenant's badge: a hue and a pattern (by class index) and two initials.

The index comes from the tenant's number, so a tenant has the same badge on every page. There are 16
distinct badges. Above 12 tenants the node map groups the small ones (`group_small`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.charts.svg import Markup, rect, tag, text

BADGES = 16  # the number of distinct badges
OTHERS = -1


@dataclass(frozen=True, slots=True)
class TenantBadge:
    """The look of a tenant: `index` 0..15, or OTHERS for the grey badge of grouped tenants."""

    name: str
    index: int
    initials: str
    you: bool = False

    @property
    def css(self) -> str:
        """Return the CSS class of hue and pattern: t0..t15, or tx for all other tenants."""
        return "tx" if self.index == OTHERS else f"t{self.index}"

    @property
    def fill(self) -> str:
        """Return the reference to the pattern in the page's shared definitions."""
        return f"url(#p-{self.css})"


HIDDEN = TenantBadge(gettext_noop("other tenants"), OTHERS, "\N{MIDDLE DOT}\N{MIDDLE DOT}")


def hidden_badge() -> TenantBadge:
    """Return the grey badge with its name in the page's language."""
    return replace(HIDDEN, name=_(HIDDEN.name))


def group_small(
    badges: Mapping[str, TenantBadge], use: Mapping[str, int], limit: int = 12
) -> dict[str, TenantBadge]:
    """Give the smallest users above `limit` tenants one grey badge; the viewer keeps its own."""
    if len(badges) <= limit:
        return dict(badges)
    ranked = sorted(badges, key=lambda name: (not badges[name].you, -use.get(name, 0), name))
    kept = set(ranked[: limit - 1])
    other = TenantBadge(_("others"), OTHERS, "··")
    return {name: badge if name in kept else other for name, badge in badges.items()}


def swatch(badge: TenantBadge) -> Markup:
    """Draw the flag before a tenant's name: pattern and initials."""
    return tag(
        "svg",
        rect(0.5, 0.5, 25, 19, fill=badge.fill, class_="edge"),
        text(13, 13.6, badge.initials, class_="ini", anchor="middle"),
        viewBox="0 0 26 20",
        width=26,
        height=20,
        class_=f"swatch {badge.css}",
        aria_hidden="true",
    )
