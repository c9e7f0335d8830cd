"""`evenshare queue` and `evenshare price`: data that everyone in a pool may see."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from .api import Transport, part
from .terminal import Terminal, inert, named, short, when

# Known columns in this order; other fields of the response follow under their own names.
PRICE_COLUMNS = (
    *("pool", "gpu_type", "price", "currency", "used", "capacity", "base", "theta"),
    *("queued", "surcharge", "surcharge_step", "surcharge_cap"),
)

BANDS = ("p10", "p50", "p90")


def queue(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    waiting = list(client.pages(f"/pools/{part(options.pool)}/queue", None))
    heads = ["PLACE", "JOB", "TENANT", "GPUS", "REASON", "SUBMITTED"]
    nothing = "no queued jobs"
    return screen.listed(waiting, nothing, heads, lambda entry: _row(entry, screen), "PLACE GPUS")


def _row(entry: Mapping[str, Any], screen: Terminal) -> list[str]:
    return [
        _place(entry.get("position")),
        # Another tenant's job has no id.
        screen.id(entry) if entry.get("id") else "-",
        short(named(entry.get("tenant")), 24),
        inert(entry.get("gpus", "")),
        inert(entry.get("reason_code") or ""),
        when(entry.get("submitted_at")),
    ]


def price(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    return _prices(client.get("/prices", pool=options.pool)["results"], screen)


def price_history(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    path = f"/prices/{part(options.pool)}/{part(options.type)}"
    posted = client.pages(path, options.limit, since=options.since, until=options.until)
    return _prices(list(posted), screen)


def price_forecast(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    forecasts = client.get(f"/price-forecasts/{part(options.pool)}")["results"]
    if screen.answered(forecasts):
        return 0
    rows = []
    for one in forecasts:
        counted, name = one.get("counted") or 0, inert(one.get("gpu_type") or "")
        if counted:
            share = round(100 * one["hits"] / counted)
            screen.note(f"{name}: {share} % of {counted} later prices were within p10 to p90")
        if not one.get("points"):
            screen.note(f"{name}: no reliable forecast: {inert(one.get('reason') or '')}")
        rows += [
            [name, when(point.get("at")), *(inert(point.get(key, "")) for key in BANDS)]
            for point in one.get("points") or []
        ]
    if rows:
        screen.table(["TYPE", "AT", *(key.upper() for key in BANDS)], rows, "P10 P50 P90")
    return 0


def _prices(prices: list[dict[str, Any]], screen: Terminal) -> int:
    present = {name for row in prices for name, value in row.items() if _is_plain(value)}
    known = [name for name in PRICE_COLUMNS if name in present]
    names = known + sorted(present - set(known))
    heads = [name.replace("_", " ").upper() for name in names]
    nothing = "no prices are posted"
    return screen.listed(
        prices, nothing, heads, lambda row: [_cell(row, k) for k in names], "PRICE"
    )


def _place(position: Any) -> str:
    """Return a job's position in the queue, or a dash if it has none."""
    return "-" if position is None else inert(position)


def _cell(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None:
        return "-"
    return when(value) if name.endswith("_at") else inert(value)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float))
