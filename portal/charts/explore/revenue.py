"""Revenue fairness over time: of one tenant, and of all tenants of a pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from portal.charts.explore.chart import (
    Band,
    Label,
    PageChart,
    Series,
    apart,
    axis_range,
    distinct_names,
)
from portal.charts.explore.looks import Look, tenant_line
from portal.charts.tenants import TenantBadge

LEAST = 1.0  # the axis is at least so high
EXACT = Band(0.98, 1.02, "var(--ok-wash)")
TEXT = (
    "alpha: part of the pool's income from lending over part of its quota, in settled hours. Green:"
    " 1, the same part of both. A gap: nobody earned anything."
)


@dataclass(frozen=True, slots=True)
class AlphaCourse:
    """alpha of one tenant by step, None where there is none, and what it earned in it, credits."""

    badge: TenantBadge
    key: str
    alpha: Sequence[float | None]
    earned: Sequence[Decimal]


def alpha_chart(
    keys: Sequence[datetime], courses: Sequence[AlphaCourse], *, key: str, title: str, file: str
) -> PageChart:
    """A line for each tenant, around 1."""
    names = distinct_names([(one.badge.name, one.badge.initials) for one in courses])
    known = [value for one in courses for value in one.alpha if value is not None]
    y = axis_range(known, least=LEAST, around=1.0)
    is_alone = len(courses) == 1
    series = tuple(
        Series(
            name,
            f"alpha of {name}",
            keys,
            one.alpha,
            Look("var(--accent)") if is_alone else tenant_line(one.badge),
            steps=False,
            dots=True,
            places=4,
            also={"earned, credits": [f"{amount:f}" for amount in one.earned]} if is_alone else {},
            key=one.key,
        )
        for one, name in zip(courses, names, strict=True)
    )
    labels = [
        Label(name, last, f"var(--{one.badge.css}-str)")
        for one, name in zip(courses, names, strict=True)
        if not is_alone and one.alpha and (last := one.alpha[-1]) is not None
    ]
    return PageChart(
        key=key,
        title=title,
        text=TEXT,
        series=series,
        y=y,
        unit="alpha",
        file=file,
        key_column="from, UTC on the pool's clock",
        bands=(EXACT,),
        labels=apart(labels, y),
    )
