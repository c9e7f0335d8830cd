"""Events of the machine and its processes in the last hour, for the operator's queue."""

from __future__ import annotations

import os
import time
from pathlib import Path

from django.urls import reverse

from portal.charts.figures import duration, plural
from portal.embedded.clocks import ClockEvent, read_clock_event
from portal.embedded.restarts import Restarts, read_restarts
from portal.operate.text.alerts import Alert

# An alert is shown for this many seconds.
SHOWN_S = 3600.0


def machine_alerts() -> list[Alert]:
    """Return alerts of clock events and of restarted processes, without a query."""
    run = os.environ.get("EVENSHARE_RUN_DIR")
    if not run:
        return []
    now = time.time()
    event = read_clock_event(Path(run))
    return [
        *([_clock(event)] if event is not None and now - event.at < SHOWN_S else []),
        *(_alert(row, now - row.at) for row in read_restarts(Path(run)) if now - row.at < SHOWN_S),
    ]


def _clock(event: ClockEvent) -> Alert:
    if event.slept_s:
        label, title = "Machine slept", f"The machine slept for {duration(event.slept_s)}."
        text = "No round ran meanwhile. Leases that expired are decided in the next round."
    else:
        way = "ahead" if event.jumped_s > 0 else "back"
        label, title = (
            "Clock jumped",
            f"The clock was set {way} by {duration(abs(event.jumped_s))}.",
        )
        text = (
            "Leases of pools at real time expire earlier by this; the next round renews them or"
            " takes their GPUs. Pools with a scaled clock leave it out."
            if event.jumped_s > 0
            else "No pool's clock goes back: each goes on from where it stood."
        )
    advice = "Rounds go on. Check that the machine's time is kept by NTP."
    return Alert("clock", "note", label, title, f"{text} {advice}", reverse("operate"))


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
