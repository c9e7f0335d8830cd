"""A job's events as lines of its log."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from evenshare_core.domain.instants import from_us
from evenshare_core.domain.reasons import EndReason
from portal.charts.figures import credits_text, duration, thousands
from portal.charts.notes import Instant, Note
from portal.common.preemptions import notice_text
from portal.jobs.text.charges import PLACES
from portal.jobs.text.leases import ASKED_BACK, NO_PREEMPTION, where
from scheduling.models import Lease, LeaseEvent, Pool
from scheduling.selectors.jobs.preemptions import PreemptionRow
from scheduling.selectors.jobs.reasons import ReasonText, ending_text
from scheduling.selectors.jobs.refs import JobRef
from scheduling.selectors.jobs.tenant_jobs import LeaseView
from scheduling.selectors.stored_texts import STORED

Kind = LeaseEvent.Kind
# Reasons of ends as they follow the start of a line, which already says "Preempted" or "Lost".
_AFTER_START = {
    EndReason.PREEMPTED.value: gettext_noop("with notice, before its lease expired"),
    EndReason.NOT_RENEWED.value: gettext_noop("at lease end, for jobs with a higher priority"),
    EndReason.LOST.value: gettext_noop(
        "its supervisor or its node failed, or its cluster no longer listed it"
    ),
}


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line: a shape, a bold start, the rest, and its round.

    `times`: the number of equal renewals that it summarises. `why`: the reason for which the job
    had waited. `hit`: the job lost its GPUs. `job`: another job of the event; `rule`, `note`: the
    rule, and the numbers that it compared.
    """

    at: Instant | None
    icon: str
    bold: str
    text: str
    round: int | None
    times: int = 1
    why: ReasonText | None = None
    hit: bool = False
    key: tuple[object, ...] = ()
    job: JobRef | None = None
    rule: str = ""
    note: Note | None = None


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event with its lease, its instant, and why the job had waited before that lease.

    `moves_to`: the new lease, if the same round moved the job; `arrives`: this lease is the new
    one. `then`: the job's next lease, if any; `loss`: the cost of this lease's end. `early`: the
    rule and the beneficiary of an end before the expiry. `length`: the term's length, if it is not
    the pool's present one.
    """

    event: LeaseEvent
    hold: LeaseView
    at: Instant | None
    why: ReasonText | None
    moves_to: LeaseView | None = None
    arrives: bool = False
    then: LeaseView | None = None
    loss: str = ""
    early: PreemptionRow | None = None
    length: str = ""


def _granted(logged: LoggedEvent) -> LogLine | None:
    lease = logged.hold.lease
    if lease.started_at is not None and lease.started_at == logged.event.at:
        return None  # the line of the start already has this text
    bold, text = _("Granted {place}").format(place=where(logged.hold)), _start_text(logged)
    return LogLine(logged.at, "waiting", bold, text, logged.event.round, why=logged.why)


def _start_text(logged: LoggedEvent) -> str:
    """Return when the program started after the grant, and for which jobs it waited."""
    lease = logged.hold.lease
    if lease.started_at is None:
        return _unstarted_text(logged)
    waited_s = (lease.started_at - lease.granted_at).total_seconds()
    later = _("at once")
    if waited_s >= 1:
        later = _("{time} later").format(time=duration(waited_s))
    text = _("and started {later}, when the jobs before it had stopped.")
    if not logged.hold.has_waited:
        text = _("and its program started {later}.")
    elif logged.arrives:
        text = _("and started {later}, when the job had stopped on its former GPUs.")
    return text.format(later=later)


def _unstarted_text(logged: LoggedEvent) -> str:
    lease = logged.hold.lease
    if lease.ended_at is not None:
        return _("and its program never started.")
    if lease.state != Lease.State.WAITING:
        return _("and its program has not started yet.")
    if logged.arrives:
        return _("and starts once the job has stopped on its former GPUs.")
    return _("and starts once the jobs before it have stopped.")


def _started(logged: LoggedEvent) -> LogLine:
    lease = logged.hold.lease
    bold = _("First lease") if lease.number == 1 else _("Started again")
    if logged.arrives:
        bold = _("Moved")
    # if the lease was granted earlier, the line of the grant has the reason
    why = logged.why if lease.granted_at == logged.event.at else None
    text = _("on {place}: {figures}.").format(place=where(logged.hold), figures=_figures(logged))
    return LogLine(logged.at, "running", bold, text, logged.event.round, why=why)


def _renewed(logged: LoggedEvent) -> LogLine:
    event, hold = logged.event, logged.hold
    own, borrowed = int(event.data["own"]), int(event.data["borrowed"])
    before = next((term for term in hold.terms if term.number == (event.term or 0) - 1), None)
    change = borrowed - before.borrowed if before else 0
    if not change:
        text = ngettext(
            "on the same GPU: {figures}.", "on the same GPUs: {figures}.", own + borrowed
        ).format(figures=_figures(logged))
        key = (hold.lease.pk, own, borrowed, logged.length)
        return LogLine(logged.at, "running", _("Renewed"), text, event.round, key=key)
    bold = ngettext("{count} GPU became own again", "{count} GPUs became own again", -change)
    if change > 0:
        bold = ngettext("{count} GPU became borrowed", "{count} GPUs became borrowed", change)
    text = _("with the renewal: {figures}.").format(figures=_figures(logged))
    bold = bold.format(count=thousands(abs(change)))
    return LogLine(logged.at, "running", bold, text, event.round)


def _stop_asked(logged: LoggedEvent) -> LogLine | None:
    if logged.early is not None:
        return _notice(logged, logged.early)
    if logged.hold.lease.ended_at is not None:
        return None  # the line of the end already has this text
    if logged.moves_to is not None:
        text = _("a new lease on {place} follows. It is checkpointing and stopping.").format(
            place=where(logged.moves_to)
        )
        return LogLine(logged.at, "running", _("Moving:"), text, logged.event.round)
    text = _("{reason}. It is checkpointing and stopping.").format(reason=_ending(logged.event))
    return LogLine(logged.at, "preempted", _("Not renewed:"), text, logged.event.round, hit=True)


def _notice(logged: LoggedEvent, early: PreemptionRow) -> LogLine | None:
    """Return the line of a notice, until the end's line replaces it."""
    bold = f"{notice_text(early)}:"
    if early.finished:
        text = _("{reason}. The job ended before it was stopped.").format(reason=early.words)
        text += _unused(early)
        return LogLine(logged.at, "preempted", bold, text, logged.event.round)
    if early.released_at is not None:
        return None
    if logged.moves_to is not None:
        text = _("{reason}. A new lease on {place} follows. It is checkpointing and stopping.")
        text = text.format(reason=early.words, place=where(logged.moves_to))
        return LogLine(logged.at, "running", bold, text, logged.event.round)
    text = _("{reason}. It is checkpointing and stopping.").format(reason=early.words)
    text += _unused(early)
    return LogLine(logged.at, "preempted", bold, text, logged.event.round, hit=True)


def _unused(early: PreemptionRow) -> str:
    """Return a sentence if no job used the GPUs after a notice; empty otherwise."""
    if not early.unused:
        return ""
    text = _("The beneficiary gave up its grant before it started; notices are not withdrawn.")
    return f" {text}"


def _ended_early(logged: LoggedEvent, early: PreemptionRow, held: str) -> LogLine:
    """Return the line of a lease's end after notice: reason, duration, and the job's next state."""
    bold, used_s = f"{notice_text(early)}:", early.notice_used_s or 0
    text = _("{reason}. It exited immediately; it had held its GPUs for {held}.")
    if used_s >= 1:
        text = _("{reason}. It exited {time} after the notice; it had held its GPUs for {held}.")
    text = text.format(reason=early.words, time=duration(used_s), held=held)
    if logged.moves_to is not None:
        place = where(logged.moves_to)
        text += " " + _("The same round placed it on {place}.").format(place=place)
        return LogLine(logged.at, "ended", bold, text, logged.event.round)
    text += _unused(early) + _afterwards(logged)
    return LogLine(logged.at, "preempted", bold, text, logged.event.round, hit=True)


def _ended(logged: LoggedEvent) -> LogLine:
    line = _end_line(logged)
    if not logged.event.data.get("written_off"):
        return line
    written_off = _("An operator ended the lease because its process did not end in time.")
    return replace(line, text=f"{line.text} {written_off}")


def _end_line(logged: LoggedEvent) -> LogLine:
    event, started = logged.event, logged.hold.lease.started_at
    reason = str(event.data.get("reason", ""))
    if reason == "finished":
        return LogLine(logged.at, "ok", _("Finished."), _("The job is done."), event.round)
    if reason not in ASKED_BACK:
        code = event.data.get("exit_code")
        text = f"{_ending(event)}."
        if code is not None:
            text = _("{reason}, with exit code {code}.").format(reason=_ending(event), code=code)
        icon = "bad" if reason == "failed" else "ended"
        return LogLine(logged.at, icon, _("Ended:"), text, event.round)
    if started is None or reason == EndReason.LOST:
        return _cut_off(logged)
    held = duration((event.at - started).total_seconds())
    if logged.early is not None and not logged.early.finished:
        return _ended_early(logged, logged.early, held)
    if logged.moves_to is not None:
        text = _(
            "the round placed it on {place} instead, without queueing. It had held these GPUs for"
            " {held}."
        ).format(place=where(logged.moves_to), held=held)
        return LogLine(logged.at, "ended", _("Moved away:"), text, event.round)
    text = _held_before(_after_start(event), held) + _afterwards(logged)
    bold = _("Preempted:") if reason not in NO_PREEMPTION else _("Taken back:")
    return LogLine(logged.at, "preempted", bold, text, event.round, hit=True)


def _cut_off(logged: LoggedEvent) -> LogLine:
    """Return the line of a lost lease, whose start or end only its node may know."""
    event, started = logged.event, logged.hold.lease.started_at
    is_lost = event.data.get("reason") == EndReason.LOST
    if started is not None:
        held = duration((event.at - started).total_seconds())
        bold, text = _("Process lost:"), _held_before(_after_start(event), held)
    elif is_lost:
        bold, text = _("Lost:"), _("its start was never reported; see its log.")
    else:
        why = logged.early.words if logged.early else _ending(event)
        bold, text = _("Grant withdrawn:"), f"{why}."
    text += _afterwards(logged) if is_lost else ""
    return LogLine(logged.at, "preempted", bold, text, event.round, hit=True)


def _afterwards(logged: LoggedEvent) -> str:
    """Return when the job was queued and when it ran again, and the work that it lost."""
    job, then = logged.event.job, logged.then
    text = f" {logged.loss}." if logged.loss else ""
    if then is not None and then.lease.started_at is not None:
        waited = duration((then.lease.started_at - logged.event.at).total_seconds())
        again = _("It was queued again at once and restarted {time} later.").format(time=waited)
        return f" {again}{text}"
    if job is not None and job.is_active:
        again = _("It was queued again at once.")
        return f" {again}{text}"
    return text


def _contradicted(logged: LoggedEvent) -> LogLine:
    said = STORED.shown(str(logged.event.data.get("said", "")))
    text = _("the job's files report: {report}. The engine's report is recorded.").format(
        report=said
    )
    return LogLine(logged.at, "bad", _("Contradiction:"), text, logged.event.round)


def _idle(logged: LoggedEvent) -> LogLine:
    data = logged.event.data
    lasted = duration((logged.event.at - from_us(int(data["since_us"]))).total_seconds())
    if data.get("session"):
        text = _("the session had not been used for {time}. Its lease will not be renewed.")
    else:
        text = ngettext(
            "its GPU had been unused for {time}.",
            "its GPUs had been unused for {time}.",
            int(data["gpus"]),
        )
    text = text.format(time=lasted)
    return LogLine(logged.at, "bad", _("Idle:"), text, logged.event.round)


def _ending(event: LeaseEvent) -> str:
    return ending_text(str(event.data.get("reason", "")))


def _after_start(event: LeaseEvent) -> str:
    reason = str(event.data.get("reason", ""))
    return _(_AFTER_START[reason]) if reason in _AFTER_START else ending_text(reason)


def _held_before(reason: str, held: str) -> str:
    return _("{reason}. It had held its GPUs for {held}.").format(reason=reason, held=held)


def _figures(logged: LoggedEvent) -> str:
    """Return "4 own, 2 borrowed at 0.5000, for 5 min"."""
    data = logged.event.data
    own, borrowed = int(data["own"]), int(data["borrowed"])
    parts = [_("{count} own").format(count=thousands(own))]
    if borrowed:
        price = credits_text(Decimal(data["price"]), PLACES)
        shown = thousands(borrowed)
        parts.append(_("{count} borrowed at {price}").format(count=shown, price=price))
    if logged.length:
        parts.append(_("for {time}").format(time=logged.length))
    return ", ".join(parts)


def length_text(pool: Pool, hold: LeaseView, number: int | None) -> str:
    """Return the term's length, "5 min", if it is not the pool's present one; empty otherwise."""
    lasts_s = next((term.lasts_s for term in hold.terms if term.number == number), pool.lease_s)
    return "" if lasts_s == pool.lease_s else duration(lasts_s)


Writer = Callable[[LoggedEvent], LogLine | None]
WRITERS: dict[str, Writer] = {
    Kind.GRANTED: _granted,
    Kind.STARTED: _started,
    Kind.RENEWED: _renewed,
    Kind.STOP_ASKED: _stop_asked,
    Kind.ENDED: _ended,
    Kind.CONTRADICTED: _contradicted,
    Kind.IDLE: _idle,
}
