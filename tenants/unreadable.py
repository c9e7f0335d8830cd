"""Rows that cannot be read: whoever meets one notes it here, shows it as that, and goes on.

A reader of many rows catches what a single one raises, so that the rest of its page stands. The
portal remembers what was noted, for /metrics and for the operator (`portal.site.unreadable`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

log = structlog.get_logger(__name__)

Listener = Callable[[str, Mapping[str, str]], None]
LISTENERS: list[Listener] = []


def note_unreadable(what: str, rows: Mapping[str, str]) -> None:
    """Note rows that cannot be read; `rows`: why, by id. Does nothing for none.

    `what`: a constant that names the kind of row, as "value of a job"; it labels a metric.
    """
    if not rows:
        return
    row, why = next(iter(rows.items()))
    log.error("row.unreadable", what=what, rows=len(rows), first=row, why=why)
    for listener in LISTENERS:
        listener(what, rows)
