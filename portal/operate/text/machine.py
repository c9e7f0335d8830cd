"""Events of the machine and its processes in the last hour, for the operator's queue."""

import os
import time
from pathlib import Path

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.charts.figures import duration, thousands
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
        label = _("Machine slept")
        title = _("The machine slept for {time}.").format(time=duration(event.slept_s))
        text = _("No round ran meanwhile. The next round handles expired leases.")
    elif event.jumped_s > 0:
        label = _("Clock jumped")
        title = _("The system clock was set ahead by {time}.").format(time=duration(event.jumped_s))
        text = _(
            "Leases of pools at wall time expire earlier by this amount; the next round renews"
            " or ends them. Pools with a scaled clock are not affected."
        )
    else:
        label = _("Clock jumped")
        title = _("The system clock was set back by {time}.").format(time=duration(-event.jumped_s))
        text = _("No pool's clock goes back: each continues from its last time.")
    advice = _("Rounds go on. Check NTP on the machine.")
    return Alert("clock", "note", label, title, f"{text} {advice}", reverse("operate"))


def _alert(row: Restarts, age_s: float) -> Alert:
    texts = [
        _("Last restart {time} ago: {reason}.").format(
            time=duration(max(0.0, age_s)), reason=row.why
        ),
        _("No round and no lease is lost."),
    ]
    if row.next_after_s:
        texts.append(
            _("The next restart waits {time} after a failure.").format(
                time=duration(row.next_after_s)
            )
        )
    texts.append(_("If it happens again, read the log of {process}.").format(process=row.name))
    return Alert(
        f"restarted-{row.name}",
        "warn",
        _("Process restarted"),
        ngettext(
            "{process} was restarted {count} time since the portal started.",
            "{process} was restarted {count} times since the portal started.",
            row.count,
        ).format(process=row.name, count=thousands(row.count)),
        " ".join(texts),
        reverse("operate"),
    )
