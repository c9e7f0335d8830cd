"""Processes that were started anew of late, for the operator's queue: how often, why, what next."""

from __future__ import annotations

import os
import time
from pathlib import Path

from django.urls import reverse

from portal.charts.figures import duration, plural
from portal.embedded.restarts import Restarts, read_restarts
from portal.operate.text.alerts import Alert

# A restart is told for so long.
TOLD_S = 3600.0


def restarted() -> list[Alert]:
    """Return an alert for each process that was started anew within the last hour. No query."""
    run = os.environ.get("EVENSHARE_RUN_DIR")
    now = time.time()
    rows = read_restarts(Path(run)) if run else []
    return [_alert(row, now - row.at) for row in rows if now - row.at < TOLD_S]


def _alert(row: Restarts, age_s: float) -> Alert:
    waits = (
        f" The next one comes no earlier than {duration(row.next_after_s)} after trouble begins."
        if row.next_after_s
        else ""
    )
    return Alert(
        f"restarted-{row.name}",
        "warn",
        "Process restarted",
        f"{row.name} was started anew {plural(row.count, 'time')} since the portal started.",
        f"The last time {duration(max(0.0, age_s))} ago: {row.why}. No round and no lease is lost."
        f"{waits} If it goes on, read the log of {row.name}.",
        reverse("operate"),
    )
