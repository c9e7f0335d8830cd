"""A tenant's badge: a hue and a pattern (by class index) and two initials.

The index is the tenant's place in a stable order (its number, not its rank of today), so the
same tenant has the same badge on every page. Sixteen badges are told apart; past twelve tenants
the node map groups the small ones, see `group_small`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from portal.charts.svg import Markup, rect, tag, text

BADGES = 16  # that are told apart
OTHERS = -1


@dataclass(frozen=True, slots=True)
class TenantBadge:
    """How one tenant is drawn: `index` 0..15, or OTHERS for the grouped grey badge."""

    name: str
    index: int
    initials: str
    you: bool = False

    @property
    def css(self) -> str:
        """The class that carries hue and pattern: t0..t15, or tx for the others."""
        return "tx" if self.index == OTHERS else f"t{self.index}"

    @property
    def fill(self) -> str:
        """The pattern in the page's shared definitions."""
        return f"url(#p-{self.css})"


def candidates(name: str) -> list[str]:
    """Two-letter codes for a name, the most natural first; never empty."""
    parts = [word for word in "".join(c if c.isalnum() else " " for c in name).split() if word]
    joined = "".join(parts).upper() or "?"
    codes = [parts[0][0].upper() + parts[1][0].upper()] if len(parts) > 1 else []
    codes += [joined[0] + other for other in joined[1:]]
    codes += [joined[0] + digit for digit in "123456789"]
    return codes + [chr(a) + chr(b) for a in range(65, 91) for b in range(65, 91)]


def tenant_badges(names: Sequence[str], you: str | None = None) -> dict[str, TenantBadge]:
    """Badges for all tenants of a pool, in their stable order; initials differ pairwise."""
    taken: set[str] = set()
    badges: dict[str, TenantBadge] = {}
    for place, name in enumerate(names):
        code = next((option for option in candidates(name) if option not in taken), "??")
        taken.add(code)
        badges[name] = TenantBadge(name, place % BADGES, code, you=name == you)
    return badges


def group_small(
    badges: Mapping[str, TenantBadge], use: Mapping[str, int], limit: int = 12
) -> dict[str, TenantBadge]:
    """Past `limit` tenants the smallest users share one grey badge; you are never grouped."""
    if len(badges) <= limit:
        return dict(badges)
    ranked = sorted(badges, key=lambda name: (not badges[name].you, -use.get(name, 0), name))
    kept = set(ranked[: limit - 1])
    other = TenantBadge("others", OTHERS, "··")
    return {name: badge if name in kept else other for name, badge in badges.items()}


def swatch(badge: TenantBadge) -> Markup:
    """The little flag before a tenant's name: pattern and initials."""
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
