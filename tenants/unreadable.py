"""Unreadable rows: readers note them here, show them as such, and go on.

A reader of many rows catches the error of a single one, so that the rest of its page still works.
The portal stores the notes, for /metrics and for the operator (`portal.site.unreadable`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

log = structlog.get_logger(__name__)

Listener = Callable[[str, Mapping[str, str]], None]
LISTENERS: list[Listener] = []


def note_unreadable(what: str, rows: Mapping[str, str]) -> None:
    """Note unreadable rows; `rows`: id -> reason. Does nothing if there are none.

    `what`: a constant that names the kind of row, as "value of a job"; it labels a metric.
    """
    if not rows:
        return
    row, why = next(iter(rows.items()))
    log.error("row.unreadable", what=what, rows=len(rows), first=row, why=why)
    for listener in LISTENERS:
        listener(what, rows)
