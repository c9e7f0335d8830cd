"""Charts of the dashboard: throughput, use and quota, and rho."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from django.utils.translation import gettext as _

from evenshare_core.fairness.rho import standing
from portal.charts.explore.chart import PageChart
from portal.charts.explore.throughputs import throughput_chart
from portal.charts.explore.uses import rho_chart, use_chart
from portal.charts.figures import coarse, plural, ratio, telling_places, thousands
from portal.charts.speeds import value_text
from portal.overview.text.board import Board
from scheduling.selectors.rounds.histories import ClaimHistoryPoint


def day_title(days: Sequence[ClaimHistoryPoint], now: datetime) -> str:
    """Return the title of the use chart."""
    if not days:
        return _("No round with this tenant yet")
    above: dict[datetime, bool] = {}
    for day in days:
        above[day.at] = above.get(day.at, False) or day.use > day.quota
    over, under = timedelta(0), timedelta(0)
    for at, until in pairwise([*sorted(above), now]):
        if above[at]:
            over += until - at
        else:
            under += until - at
    length = coarse((over + under).total_seconds())
    if not over:
        return _("Within quota for all of the last {length}").format(length=length)
    if not under:
        return _("Above quota for all of the last {length}").format(length=length)
    if over < under:
        return _("Above quota for {time} of the last {length}").format(
            time=coarse(over.total_seconds()), length=length
        )
    return _("Above quota for all but {time} of the last {length}").format(
        time=coarse(under.total_seconds()), length=length
    )


def figures(board: Board) -> list[PageChart]:
    """Draw throughput, then use and quota, and rho, per GPU type if there are several."""
    types = list(dict.fromkeys(day.gpu_type for day in board.days))
    drawn = [_throughput_figure(board)] if board.moments else []
    for gpu_type in types:
        days = [day for day in board.days if day.gpu_type == gpu_type]
        older = [day for day in board.older if day.gpu_type == gpu_type]
        use = _("{used} in use, quota {gpus}").format(
            used=thousands(days[-1].use), gpus=plural(days[-1].quota, "GPU")
        )
        rho = _rho_title(days)
        several = len(types) > 1
        drawn += [
            use_chart(
                [*older, *days],
                board.now,
                key=f"chart-use-{gpu_type}",
                title=f"{gpu_type}: {use}" if several else use,
                file=f"use-{board.name}-{gpu_type}",
            ),
            rho_chart(
                [*older, *days],
                board.now,
                key=f"chart-rho-{gpu_type}",
                title=f"{gpu_type}: {rho}" if several else rho,
                file=f"rho-{board.name}-{gpu_type}",
            ),
        ]
    return drawn


def _throughput_figure(board: Board) -> PageChart:
    return throughput_chart(
        board.moments,
        board.now,
        key="chart-throughput",
        title=_("Throughput {value} on {gpus}").format(
            value=value_text(board.moments[-1].milli), gpus=plural(board.uses, "GPU")
        ),
        file=f"throughput-{board.name}",
    )


def _rho_title(days: Sequence[ClaimHistoryPoint]) -> str:
    """Return the last rho, and its range over the last day."""
    known = [day.rho for day in days if day.rho is not None]
    if not known:
        return _("No rho yet")
    low, high = min(known), max(known)
    if standing(low) == standing(high) == "at":
        return _("At fair share all day")
    places = telling_places([low, high, 1.0])
    last = ratio(known[-1], places)
    if low == high:
        return _("rho {rho}").format(rho=last)
    return _("rho {rho}, between {low} and {high}").format(
        rho=last, low=ratio(low, places), high=ratio(high, places)
    )
