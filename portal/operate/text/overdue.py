"""Texts about overdue leases, and about processes without a lease."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from portal.charts.figures import duration, thousands, utc
from portal.charts.notes import PoolClocks
from portal.charts.sentences import local_sentence
from portal.charts.zones import clock_text, full_text
from portal.operate.text.alerts import Alert
from scheduling.models import ExecutorHealth
from scheduling.selectors.operate.overdue import (
    OverdueLease,
    OverduePool,
    StopAnswer,
)
from scheduling.selectors.stored_texts import STORED

ENGINE_TEXTS = {
    StopAnswer.RUNS: gettext_noop("lists a running process"),
    StopAnswer.NOT_LISTED: gettext_noop("does not list it"),
    StopAnswer.STOP_REFUSED: gettext_noop("refused to stop it"),
    StopAnswer.NOT_ASKED: gettext_noop("not called yet"),
    StopAnswer.REFUSES: gettext_noop("refuses all calls"),
    StopAnswer.SILENT: gettext_noop("does not answer"),
}


@dataclass(frozen=True, slots=True)
class OverdueRow:
    """An overdue lease: for how long, and the state that its engine reports."""

    lease: OverdueLease
    for_text: str
    engine_text: str

    @property
    def key(self) -> str:
        return f"{self.lease.job.uid}/{self.lease.number}"


def overdue_row(row: OverdueLease, now: datetime) -> OverdueRow:
    """Return a lease's row; `now` is pool time."""
    text = _(ENGINE_TEXTS[row.engine])
    if row.since is not None:
        text = _("{answer} since {at}").format(answer=text, at=full_text(row.since))
    if row.error:
        text += f": {STORED.shown(row.error)}"
    return OverdueRow(row, duration((now - row.due).total_seconds()), text)


def read_key(key: str) -> tuple[UUID, int] | None:
    """Return the job and the lease's number of an `OverdueRow.key`, or None if it is malformed."""
    job, _, number = key.partition("/")
    try:
        return UUID(job), int(number)
    except ValueError:
        return None


def overdue_alert(row: OverduePool, times: PoolClocks) -> Alert:
    """Return the alert of leases that hold GPUs although they should have ended."""
    then = (
        _("The next round ends them.")
        if row.written_off == row.count
        else _("They hold their GPUs until their engine or an operator ends them.")
    )
    return Alert(
        f"overdue-{row.pool}",
        "bad",
        _("Leases not ended"),
        ngettext(
            "{count} lease of {pool} overdue since {at}, pool time.",
            "{count} leases of {pool} overdue since {at}, pool time.",
            row.count,
        ).format(
            count=thousands(row.count), pool=row.pool, at=local_sentence(utc(row.oldest), times)
        ),
        then,
        reverse("operate-health", args=[row.pool]) + "#overdue",
    )


def orphans_alert(row: ExecutorHealth) -> Alert:
    """Return the alert of processes without a lease, which use GPUs that other jobs may hold."""
    pool, count = row.pool.name, len(row.orphans)
    since = datetime.fromisoformat(min(row.orphans.values()))
    return Alert(
        f"orphans-{pool}",
        "bad",
        _("Processes without a lease"),
        ngettext(
            "{count} process of {pool} still runs although the lease has ended,"
            " since {at}, wall time.",
            "{count} processes of {pool} still run although the lease has ended,"
            " since {at}, wall time.",
            count,
        ).format(count=thousands(count), pool=pool, at=clock_text(since)),
        _(
            "Each round asks the engine to stop processes without a lease. If one stays, kill it on"
            " its node: other jobs may get its GPUs."
        ),
        reverse("operate-health", args=[pool]),
    )
