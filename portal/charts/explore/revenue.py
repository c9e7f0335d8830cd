"""Revenue fairness over time, of one tenant or of all tenants of a pool."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.charts.explore.chart import Band, Label, PageChart, Series, apart, axis_range
from portal.charts.explore.columns import ChartColumn
from portal.charts.explore.looks import Look

LEAST = 1.0  # minimum height of the axis
EXACT = Band(0.98, 1.02, "var(--ok-wash)")
INCOME_TEXT = gettext_noop(
    "alpha: a tenant's part of the income from lending over its part of the quota, in settled"
    " hours. Gap: no tenant earned anything."
)
GREEN_TEXT = gettext_noop("Green: alpha of about 1, so income in proportion to quota.")
FULL_TEXT = gettext_noop(
    "alpha with utilities: a tenant's part of the pool's value of completed jobs plus income minus"
    " cost, over its part of the quota. Gap: no job with a declared value completed."
)


@dataclass(frozen=True, slots=True)
class AlphaCourse:
    """alpha per step, None if undefined, and the credits earned (empty if unknown)."""

    name: str
    column: ChartColumn | str
    key: str
    look: Look
    alpha: Sequence[float | None]
    earned: Sequence[Decimal] = ()


def alpha_chart(
    keys: Sequence[datetime],
    courses: Sequence[AlphaCourse],
    *,
    key: str,
    title: str,
    file: str,
    text: str = INCOME_TEXT,
) -> PageChart:
    """Draw a line per tenant, around 1."""
    known = [value for one in courses for value in one.alpha if value is not None]
    # With utilities a gain may be negative: a tenant pays now for jobs that complete later.
    floor = 0.0 if min(known, default=0.0) >= 0 else None
    y = axis_range(known, least=LEAST, floor=floor, around=1.0)
    series = tuple(
        Series(
            one.name,
            one.column,
            keys,
            one.alpha,
            one.look,
            steps=False,
            dots=True,
            places=4,
            also={gettext_noop("earned, credits"): [f"{amount:f}" for amount in one.earned]}
            if one.earned
            else {},
            key=one.key,
        )
        for one in courses
    )
    labels = [
        Label(one.name, last, one.look.color)
        for one in courses
        if one.alpha and (last := one.alpha[-1]) is not None
    ]
    return PageChart(
        key=key,
        title=title,
        text=f"{_(text)} {_(GREEN_TEXT)}",
        series=series,
        y=y,
        unit="alpha",
        file=file,
        key_column=gettext_noop("from, UTC on the pool's clock"),
        bands=(EXACT,),
        labels=apart(labels, y),
    )
