"""A register of unreadable rows: readers note them here, show them as unreadable, and continue.

A reader of many rows catches the error of a single row, so that the rest of the page still works.
The portal stores the notes, for /metrics and for the operator (`portal.site.unreadable`).
"""

from collections.abc import Callable, Mapping

import structlog

log = structlog.get_logger(__name__)

Listener = Callable[[str, Mapping[str, str]], None]
LISTENERS: list[Listener] = []


def note_unreadable(what: str, rows: Mapping[str, str]) -> None:
    """Note unreadable rows; `rows`: id -> reason. If `rows` is empty, nothing is noted.

    `what`: a constant that names the kind of row, such as "value of a job"; it labels a metric.
    """
    if not rows:
        return
    row, why = next(iter(rows.items()))
    log.error("row.unreadable", what=what, rows=len(rows), first=row, why=why)
    for listener in LISTENERS:
        listener(what, rows)
