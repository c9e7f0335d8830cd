"""Texts and charts of the price board."""

from collections.abc import Container, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.selectors.prices import PriceRow
from portal.charts.explore.prices import forecast_chart, price_chart
from portal.charts.figures import credits_text, plural, thousands
from portal.charts.notes import Note, price_lines
from portal.common.clocks import Clocks
from portal.common.files import Columns
from scheduling.selectors.sharing.price_forecasts import PriceForecastRow

HOUR = timedelta(hours=1)
FORECAST_EVERY = 2  # the table shows every second point
# The lowest and the highest price of a day; the keys are classes of cells.
MARKS = {"cheapest": gettext_noop("cheapest"), "dearest": gettext_noop("dearest")}
COLUMNS: Columns = {
    "posted_at": "posted_at",
    "valid_from_round": "valid_from_round",
    "gpu_type": "gpu_type",
    "price_credits_per_gpu_h": "price",
    "gpus_used": "used",
    "gpus": "capacity",
    "base_credits": "base",
    "theta": "theta",
    "surcharge_credits": "surcharge",
    "gpus_queued": "queued",
    "surcharge_step": "surcharge_step",
    "surcharge_cap": "surcharge_cap",
}


def price_headline(present: Sequence[PriceRow]) -> str:
    """Return the range of prices of several GPU types; the page has the price of one type."""
    if not present:
        return _("No price has been posted yet.")
    amounts = [point.price for point in present]
    return _("A borrowed GPU costs {least} to {most} credits an hour.").format(
        least=credits_text(min(amounts), 4), most=credits_text(max(amounts), 4)
    )


def price_board_row(
    point: PriceRow,
    history: Sequence[PriceRow],
    older: Sequence[PriceRow],
    times: Clocks,
    *,
    pool: str,
    forecast: PriceForecastRow,
) -> dict[str, Any]:
    """Return a GPU type's price, its change in an hour, its chart, and the last day's hours.

    `history` is of the last day, `older` of the days before it; `forecast` of the hours to come.
    """
    now = times.now.pool_at
    before = [row for row in history if row.posted_at <= now - HOUR]
    return {
        "now": point,
        "note": _note(point),
        "change": point.price - before[-1].price if before else None,
        "chart": price_chart(point.gpu_type, [*older, *history], now, pool=pool),
        "hours": _hours(history, times),
        "forecast": forecast,
        "forecast_title": (
            _("Price forecast of {gpu_type}")
            if forecast.points
            else _("No reliable forecast of {gpu_type}")
        ).format(gpu_type=point.gpu_type),
        "forecast_at": None if forecast.at is None else times.instant(forecast.at),
        "expected": forecast.points[-1] if forecast.points else None,
        "expected_at": times.instant(forecast.points[-1].at) if forecast.points else None,
        "forecast_rows": [
            {"at": times.instant(row.at), "point": row} for row in forecast.points[::FORECAST_EVERY]
        ],
        "forecast_chart": (
            forecast_chart(forecast, point.price, now, pool=pool) if forecast.points else None
        ),
    }


def _note(point: PriceRow) -> Note:
    title = _("Price of {gpu_type} from round {number} on").format(
        gpu_type=point.gpu_type, number=thousands(point.valid_from_round)
    )
    text = _("One price per GPU type, posted after each round, the same for all tenants.")
    return Note(title, *price_lines(point, point.price), text=text)


def timetable(board: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the hours of the last day in time order, and each GPU type's price in each hour."""
    hours = {cell["hour"].pool: cell["hour"] for row in board for cell in row["hours"]}
    ordered = sorted(hours)[-24:]
    rows = [(row["now"].gpu_type, _cells(row["hours"], ordered)) for row in board]
    return {
        "hours": [hours[at] for at in ordered],
        "timetable": rows,
        "timetable_key": _key({cell["mark"] for _type, cells in rows for cell in cells if cell}),
    }


def _key(marks: Container[str]) -> str:
    """Return what the timetable shows, with the marks that are in it."""
    texts = [_("Last price of each hour.")]
    if "cheapest" in marks:
        texts.append(_("Double line: cheapest."))
    if "dearest" in marks:
        texts.append(_("Dotted: dearest."))
    return " ".join(texts)


def _cells(hours: Sequence[dict[str, Any]], ordered: Sequence[datetime]) -> list[Any]:
    """Return the price of each hour; None if none was posted in it."""
    cells = {cell["hour"].pool: cell for cell in hours}
    return [cells.get(at) for at in ordered]


def _hour_text(row: PriceRow, mark: str) -> str:
    """Return "cheapest, 470 of 480 GPUs used, round 4,211"."""
    text = _("{used} of {gpus} used, round {number}").format(
        used=thousands(row.used),
        gpus=plural(row.capacity, "GPU"),
        number=thousands(row.valid_from_round - 1),
    )
    return f"{_(MARKS[mark])}, {text}" if mark else text


def _hours(history: Sequence[PriceRow], times: Clocks) -> list[dict[str, Any]]:
    """Return the last price of each hour, newest first; mark the lowest and the highest."""
    by_hour = {row.posted_at.replace(minute=0, second=0, microsecond=0): row for row in history}
    amounts = [row.price for row in by_hour.values()]
    ends = {min(amounts): "cheapest", max(amounts): "dearest"} if len(set(amounts)) > 1 else {}
    # A price that most hours have is not marked.
    marks = {
        price: word for price, word in ends.items() if 3 * amounts.count(price) <= len(amounts)
    }
    return [
        {
            "hour": times.instant(hour),
            "point": row,
            "mark": marks.get(row.price, ""),
            "posted_by": row.valid_from_round - 1,
            "about": _hour_text(row, marks.get(row.price, "")),
        }
        for hour, row in sorted(by_hour.items(), reverse=True)
    ]
