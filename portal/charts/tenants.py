"""A tenant's mark: a hue and a pattern (by class index) and two initials.

The index is the tenant's place in a stable order (its number, not its rank of today), so the
same tenant has the same mark on every page. Sixteen marks are told apart; past twelve tenants
the node map groups the small ones, see `group_small`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from portal.charts.svg import Markup, rect, tag, text

MARKS = 16
OTHERS = -1


@dataclass(frozen=True, slots=True)
class TenantMark:
    """How one tenant is drawn: `index` 0..15, or OTHERS for the grouped grey mark."""

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
    words = [word for word in "".join(c if c.isalnum() else " " for c in name).split() if word]
    joined = "".join(words).upper() or "?"
    found = [words[0][0].upper() + words[1][0].upper()] if len(words) > 1 else []
    found += [joined[0] + other for other in joined[1:]]
    found += [joined[0] + digit for digit in "123456789"]
    return found + [chr(a) + chr(b) for a in range(65, 91) for b in range(65, 91)]


def tenant_marks(names: Sequence[str], you: str | None = None) -> dict[str, TenantMark]:
    """Marks for all tenants of a pool, in their stable order; initials differ pairwise."""
    taken: set[str] = set()
    marks: dict[str, TenantMark] = {}
    for place, name in enumerate(names):
        code = next((option for option in candidates(name) if option not in taken), "??")
        taken.add(code)
        marks[name] = TenantMark(name, place % MARKS, code, you=name == you)
    return marks


def group_small(
    marks: Mapping[str, TenantMark], use: Mapping[str, int], limit: int = 12
) -> dict[str, TenantMark]:
    """Past `limit` tenants the smallest users share one grey mark; you are never grouped."""
    if len(marks) <= limit:
        return dict(marks)
    ranked = sorted(marks, key=lambda name: (not marks[name].you, -use.get(name, 0), name))
    kept = set(ranked[: limit - 1])
    other = TenantMark("others", OTHERS, "··")
    return {name: mark if name in kept else other for name, mark in marks.items()}


def swatch(mark: TenantMark) -> Markup:
    """The little flag before a tenant's name: pattern and initials."""
    return tag(
        "svg",
        rect(0.5, 0.5, 25, 19, fill=mark.fill, class_="edge"),
        text(13, 13.6, mark.initials, class_="ini", anchor="middle"),
        viewBox="0 0 26 20",
        width=26,
        height=20,
        class_=f"swatch {mark.css}",
        aria_hidden="true",
    )
