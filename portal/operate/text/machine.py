"""Events of the machine and its processes in the last hour, for the operator's queue."""

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
        text = "No round ran meanwhile. The next round handles expired leases."
    else:
        way = "ahead" if event.jumped_s > 0 else "back"
        label, title = (
            "Clock jumped",
            f"The system clock was set {way} by {duration(abs(event.jumped_s))}.",
        )
        text = (
            "Leases of pools at wall time expire earlier by this amount; the next round renews"
            " or ends them. Pools with a scaled clock are not affected."
            if event.jumped_s > 0
            else "No pool's clock goes back: each continues from its last time."
        )
    advice = "Rounds go on. Check NTP on the machine."
    return Alert("clock", "note", label, title, f"{text} {advice}", reverse("operate"))


def _alert(row: Restarts, age_s: float) -> Alert:
    waits = (
        f" The next restart waits {duration(row.next_after_s)} after a failure."
        if row.next_after_s
        else ""
    )
    return Alert(
        f"restarted-{row.name}",
        "warn",
        "Process restarted",
        f"{row.name} was restarted {plural(row.count, 'time')} since the portal started.",
        f"Last restart {duration(max(0.0, age_s))} ago: {row.why}. No round and no lease is"
        f" lost.{waits} If it happens again, read the log of {row.name}.",
        reverse("operate"),
    )
