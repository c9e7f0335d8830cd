"""Stores unreadable rows, for all web processes together, for a day after the last sighting.

A repaired row is not seen again, so its note expires.
"""

import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from portal.site.shared_counts import PREFIX, kept
from tenants.unreadable import LISTENERS

# Maximum number of stored rows of a kind. A hundred examples show the cause, which leads to the
# rest.
ROWS_MOST = 100
KEPT_S = timedelta(days=1).total_seconds()
# Used if no folder is shared.
_own: dict[str, Any] = {}


def remember(what: str, rows: Mapping[str, str]) -> None:
    """Store rows that were just found."""
    at = time.time()
    with kept("unreadable", _own) as stored:
        known = stored.setdefault(what, {})
        known |= {row: [at, why] for row, why in rows.items()}
        newest = sorted(known.items(), key=lambda item: (-item[1][0], item[0]))
        stored[what] = dict(newest[:ROWS_MOST])


def unreadable_rows() -> dict[str, dict[str, str]]:
    """Return the rows found within the last day, by kind: by id, why they cannot be read."""
    since = time.time() - KEPT_S
    with kept("unreadable", _own) as stored:
        kinds = {
            what: {row: why for row, (at, why) in rows.items() if at > since}
            for what, rows in sorted(stored.items())
        }
    return {what: rows for what, rows in kinds.items() if rows}


class UnreadableCollector(Collector):
    def describe(self) -> Iterator[Metric]:
        """Yield nothing: a registration reads no folder."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Yield the number of rows of every kind that has some."""
        rows = GaugeMetricFamily(
            PREFIX + "unreadable_rows",
            "Rows that a page could not read in the last day.",
            labels=["what"],
        )
        for what, unreadable in unreadable_rows().items():
            rows.add_metric([what], len(unreadable))
        yield rows


LISTENERS.append(remember)
