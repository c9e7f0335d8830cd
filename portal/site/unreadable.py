"""Remembers which rows could not be read, by all web processes together, for a day after the last.

A row that was mended is not met again, so its note goes by itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from portal.site.shared_counts import PREFIX, kept
from tenants.unreadable import LISTENERS

# Rows that are kept of a kind. Whoever mends a hundred can find the others by their cause.
ROWS_MOST = 100
KEPT_S = timedelta(days=1).total_seconds()
# Where no folder is shared.
_own: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class UnreadableRows:
    """Rows of a kind that somebody met within the last day; `why` by id, at most `ROWS_MOST`."""

    what: str
    why: Mapping[str, str]


def remember(what: str, rows: Mapping[str, str]) -> None:
    """Remember rows that were met just now."""
    at = time.time()
    with kept("unreadable", _own) as stored:
        known = stored.setdefault(what, {})
        known |= {row: [at, why] for row, why in rows.items()}
        newest = sorted(known.items(), key=lambda item: (-item[1][0], item[0]))
        stored[what] = dict(newest[:ROWS_MOST])


def unreadable_rows() -> list[UnreadableRows]:
    """Return what was met within the last day, by kind."""
    since = time.time() - KEPT_S
    with kept("unreadable", _own) as stored:
        kinds = [
            UnreadableRows(what, {row: why for row, (at, why) in rows.items() if at > since})
            for what, rows in sorted(stored.items())
        ]
    return [kind for kind in kinds if kind.why]


class UnreadableCollector(Collector):
    """Rows that could not be read, by their kind."""

    def describe(self) -> Iterator[Metric]:
        """Nothing: a registration reads no folder."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Every kind of which there is one."""
        rows = GaugeMetricFamily(
            PREFIX + "unreadable_rows",
            "Rows that could not be read when a page met them, within a day.",
            labels=["what"],
        )
        for kind in unreadable_rows():
            rows.add_metric([kind.what], len(kind.why))
        yield rows


LISTENERS.append(remember)
