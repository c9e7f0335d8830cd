"""The accuracy of start estimates over time: the share of starts before p90 and before p50."""

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.charts.explore.chart import Label, PageChart, Series, apart
from portal.charts.explore.columns import column
from portal.charts.explore.looks import QUOTA, Look, line_look
from portal.charts.figures import percent
from scheduling.selectors.jobs.start_estimates import Calibration

P90, P50 = 90, 50
Y = (0.0, 105.0)


def coverage_chart(past: Calibration, *, pool: str) -> PageChart:
    """Draw both shares as lines, with a dot in the middle of each step that has estimates.

    Dashed lines show the shares that exact estimates would have.
    """
    half = (past.until - past.since) / len(past.steps) / 2
    keys = [step.since + half for step in past.steps]
    shares = (
        (_("before p90"), P90, [step.p90 for step in past.steps]),
        (_("before p50"), P50, [step.p50 for step in past.steps]),
    )
    lines = [
        Series(
            name,
            column(gettext_noop("before p{level}, % of estimates"), level=str(level)),
            keys,
            [None if share is None else 100 * share for share in values],
            line_look(place),
            steps=False,
            places=1,
            dots=True,
        )
        for place, (name, level, values) in enumerate(shares)
    ]
    exact = [
        Series(
            f"{level} %",
            column(gettext_noop("exact, {level} %"), level=str(level)),
            [past.since, past.until],
            [level, level],
            _EXACT,
        )
        for level in (P90, P50)
    ]
    labels = [
        Label(f"{name} {percent(last)}", 100 * last)
        for name, _level, values in shares
        if (last := next((one for one in reversed(values) if one is not None), None)) is not None
    ]
    return PageChart(
        key="coverage",
        title=_("Share of starts before p90 and before p50"),
        text=_("Dashed: 90 % and 50 %, where exact estimates would be."),
        series=(*lines, *exact),
        y=Y,
        unit=_("% of estimates"),
        file=f"start-estimates-{pool}",
        labels=apart(labels, Y),
    )


_EXACT = Look(QUOTA.color, "dot", width=1)
