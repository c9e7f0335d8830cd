"""A job's events as text, newest first."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from heapq import merge
from itertools import pairwise
from operator import attrgetter
from types import MappingProxyType

from evenshare_core.domain.instants import from_us
from evenshare_core.domain.reasons import EndReason
from evenshare_core.money.fixed_point import to_credits, to_micro
from evenshare_core.policies.promised_start import late_credit_micro
from evenshare_core.units import SECOND_US
from portal.charts.figures import credits_text, duration, gpus_of_type, plural
from portal.charts.notes import Instant, Note
from portal.common.clocks import Clocks
from portal.common.preemptions import notice_text, numbers_note
from portal.jobs.text.charges import PLACES
from portal.jobs.text.job import ASKED_BACK, NO_PREEMPTION, moves_of, where
from portal.jobs.text.losses import NO_LOSS, WorkLoss
from scheduling.models import Lease, LeaseEvent, Pool
from scheduling.selectors.jobs.changes import HELD, PRIORITY, RELEASED, JobChange
from scheduling.selectors.jobs.preemptions import PreemptionRow
from scheduling.selectors.jobs.reasons import ReasonText, ending_text, rule_text
from scheduling.selectors.jobs.refs import JobRef
from scheduling.selectors.jobs.tenant_jobs import JobStory, LeaseView
from scheduling.selectors.visibility import OTHER_TENANT

Kind = LeaseEvent.Kind
WRITTEN_OFF = "An operator ended the lease because its process did not end in time."


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line: a shape, a bold start, the rest, and its round.

    `times`: the number of equal renewals that it summarizes. `why`: the reason for which the job
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


def job_log(
    story: JobStory,
    clocks: Clocks,
    losses: Mapping[int, WorkLoss] = MappingProxyType({}),
    early: Mapping[int, PreemptionRow] = MappingProxyType({}),
    made_way: Sequence[PreemptionRow] = (),
) -> list[LogLine]:
    """Return the lines, newest first; equal renewals are one line.

    `losses`: the costs of ends of leases, by lease (`portal.jobs.text.losses.work_losses`).
    `early`: preemptions before the expiry, by lease (`preemptions_among`). `made_way`: such
    preemptions for this job, oldest first (`preemptions_for`).
    """
    holds = {hold.lease.pk: hold for hold in story.holds}
    moves = moves_of(story)
    later = {hold.lease.pk: then for hold, then in pairwise(story.holds)}
    arrived = {hold.lease.pk for hold in moves.values()}
    lines: list[LogLine] = []
    since = story.events[0].number if story.cut and story.events else 0
    others = [view for view in made_way if view.number >= since]
    events: Iterable[LeaseEvent | PreemptionRow]
    events = merge(story.events, others, key=attrgetter("number"))
    for event in events:
        if isinstance(event, PreemptionRow):
            lines.append(_made_way(event, clocks))
            continue
        promise_writer = _PROMISE_WRITERS.get(event.kind)
        if promise_writer is not None:
            lines.append(promise_writer(event, clocks))
            continue
        hold = holds.get(event.lease_id) if event.lease_id else None
        write = _WRITERS.get(event.kind)
        if hold is None or write is None:
            continue
        why = story.reasons.get(hold.lease.number)
        key = hold.lease.pk
        logged = _LoggedEvent(
            event,
            hold,
            clocks.instant(event.at),
            why,
            moves.get(key),
            key in arrived,
            later.get(key),
            losses.get(key, NO_LOSS).text,
            early.get(key),
            _length_text(story.job.pool, hold, event.term),
        )
        line = write(logged)
        if line is None:
            continue
        last = lines[-1] if lines else None
        if last and line.key and last.key == line.key:
            lines[-1] = _again(last, line)
        else:
            lines.append(line)
    if not story.cut:
        lines.insert(0, _submitted(story, clocks))
    return lines[::-1]


def with_changes(
    lines: Sequence[LogLine], changes: Iterable[JobChange], clocks: Clocks
) -> list[LogLine]:
    """Return the lines of a log with those of people's changes, newest first."""
    made = [_changed(change, clocks) for change in changes]
    return list(merge(lines, made[::-1], key=_pool_time, reverse=True))


def _pool_time(line: LogLine) -> datetime:
    return line.at.pool if line.at else _FIRST


def _changed(change: JobChange, clocks: Clocks) -> LogLine:
    who = change.person or "an operator"
    bold, icon = _CHANGES[change.action]
    text = f"by {who}."
    if change.action == PRIORITY:
        text = f"from {change.before['priority']} to {change.after['priority']}, by {who}."
    return LogLine(clocks.pool_instant(change.at), icon, bold, text, None)


_CHANGES = {
    HELD: ("Held", "waiting"),
    RELEASED: ("Released", "submitted"),
    PRIORITY: ("Priority", "submitted"),
}
_FIRST = datetime.min.replace(tzinfo=UTC)


def _submitted(story: JobStory, clocks: Clocks) -> LogLine:
    job = story.job
    person = job.submitted_by.get_full_name() if job.submitted_by else ""
    source = {"trace": "the demo's trace", "web": "this portal"}
    text = f"by {person} from" if person else "from"
    at = clocks.instant(job.submitted_at)
    return LogLine(
        at, "submitted", "Submitted", f"{text} {source.get(job.source, job.source)}.", None
    )


def _late_start(event: LeaseEvent, clocks: Clocks) -> LogLine:
    late_us = event.data["until_us"] - event.data["latest_us"]
    what = "it started" if event.data["started"] else "it stopped waiting"
    latest = from_us(event.data["latest_us"])
    credit = late_credit_micro(event.data["gpus"], to_micro(Decimal(event.data["rate"])), late_us)
    text = (
        f"{what} {duration(late_us // SECOND_US)} after {latest:%H:%M:%S}, its promised latest"
        f" start. The operator pays {credits_text(to_credits(credit), 6)} credits."
    )
    return LogLine(clocks.instant(event.at), "bad", "Late:", text, event.round)


def _promise_ended(event: LeaseEvent, clocks: Clocks) -> LogLine:
    why = "no longer holds"
    if event.data["lost_node"]:
        why += ", because a node of its place was lost"
    text = f"the start by {from_us(event.data['due_us']):%H:%M:%S} {why}."
    return LogLine(clocks.instant(event.at), "bad", "Promise ended:", text, event.round)


_PROMISE_WRITERS: dict[str, Callable[[LeaseEvent, Clocks], LogLine]] = {
    Kind.LATE_START: _late_start,
    Kind.PROMISE_ENDED: _promise_ended,
}


def _made_way(view: PreemptionRow, clocks: Clocks) -> LogLine:
    """Return the line of a lease that ended early for this job, as on that lease's own page."""
    who = view.tenant.name if view.tenant else OTHER_TENANT
    verb = "was moved" if view.moved else "was preempted"
    gpus = gpus_of_type(view.gpus, view.gpu_type)
    text = f"{gpus} of {who}, whose job {verb} with {duration(view.notice_s)} notice"
    used_s = view.notice_used_s
    if used_s is None:
        text += "; it is checkpointing and stopping."
    elif view.finished:
        text += "; the job ended first."
    else:
        text += f"; it exited {f'{duration(used_s)} later' if used_s >= 1 else 'immediately'}."
    return LogLine(
        clocks.instant(view.at), "waiting", "Made way for it:", text, view.round,
        job=view.job, rule=rule_text(view.rule), note=numbers_note(view.rule, view.numbers),
    )  # fmt: skip # rows of what belongs together


def _again(last: LogLine, line: LogLine) -> LogLine:
    times = last.times + line.times
    return replace(line, bold=f"Renewed {times} times", times=times)


@dataclass(frozen=True, slots=True)
class _LoggedEvent:
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


def _granted(logged: _LoggedEvent) -> LogLine | None:
    lease = logged.hold.lease
    if lease.started_at is not None and lease.started_at == logged.event.at:
        return None  # the line of the start already has this text
    bold, text = f"Granted {where(logged.hold)}", _start_text(logged)
    return LogLine(logged.at, "waiting", bold, text, logged.event.round, why=logged.why)


def _start_text(logged: _LoggedEvent) -> str:
    """Return when the program started after the grant, and for which jobs it waited."""
    lease, has_waited = logged.hold.lease, logged.hold.has_waited
    if lease.started_at is None and lease.ended_at is not None:
        return "and its program never started."
    if lease.started_at is None and lease.state == Lease.State.WAITING:
        return (
            f"and starts once {'it has' if logged.arrives else 'the jobs before it have'} stopped."
        )
    if lease.started_at is None:
        return "and its program has not started yet."
    waited_s = (lease.started_at - lease.granted_at).total_seconds()
    later = f"{duration(waited_s)} later" if waited_s >= 1 else "at once"
    if not has_waited:
        return f"and its program started {later}."
    who = "it had stopped elsewhere" if logged.arrives else "the jobs before it had stopped"
    return f"and started {later}, when {who}."


def _started(logged: _LoggedEvent) -> LogLine:
    lease = logged.hold.lease
    bold = "First lease" if lease.number == 1 else "Started again"
    if logged.arrives:
        bold = "Moved"
    # if the lease was granted earlier, the line of the grant has the reason
    why = logged.why if lease.granted_at == logged.event.at else None
    text = f"on {where(logged.hold)}: {_figures(logged.event)}{logged.length}."
    return LogLine(logged.at, "running", bold, text, logged.event.round, why=why)


def _renewed(logged: _LoggedEvent) -> LogLine:
    event, hold = logged.event, logged.hold
    own, borrowed = int(event.data["own"]), int(event.data["borrowed"])
    before = next((term for term in hold.terms if term.number == (event.term or 0) - 1), None)
    change = borrowed - before.borrowed if before else 0
    if not change:
        text = f"on the same {plural(own + borrowed, 'GPU')}: {_figures(event)}{logged.length}."
        key = (hold.lease.pk, own, borrowed, logged.length)
        return LogLine(logged.at, "running", "Renewed", text, event.round, key=key)
    bold = f"{plural(abs(change), 'GPU')} became {'borrowed' if change > 0 else 'own again'}"
    text = f"with the renewal: {_figures(event)}{logged.length}."
    return LogLine(logged.at, "running", bold, text, event.round)


def _stop_asked(logged: _LoggedEvent) -> LogLine | None:
    if logged.early is not None:
        return _notice(logged, logged.early)
    if logged.hold.lease.ended_at is not None:
        return None  # the line of the end already has this text
    if logged.moves_to is not None:
        text = f"a {_new_lease(logged.moves_to)}"
        return LogLine(logged.at, "running", "Moving:", text, logged.event.round)
    text = f"{_ending(logged.event)}. It is checkpointing and stopping."
    return LogLine(logged.at, "preempted", "Not renewed:", text, logged.event.round, hit=True)


def _notice(logged: _LoggedEvent, early: PreemptionRow) -> LogLine | None:
    """Return the line of a notice, until the end's line replaces it."""
    bold = f"{notice_text(early)}:"
    if early.finished:
        text = f"{early.words}. The job ended before it was stopped.{_unused(early)}"
        return LogLine(logged.at, "preempted", bold, text, logged.event.round)
    if early.released_at is not None:
        return None
    if logged.moves_to is not None:
        text = f"{early.words}. A {_new_lease(logged.moves_to)}"
        return LogLine(logged.at, "running", bold, text, logged.event.round)
    text = f"{early.words}. It is checkpointing and stopping.{_unused(early)}"
    return LogLine(logged.at, "preempted", bold, text, logged.event.round, hit=True)


def _new_lease(moves_to: LeaseView) -> str:
    return f"new lease on {where(moves_to)} follows. It is checkpointing and stopping."


def _unused(early: PreemptionRow) -> str:
    """Return a sentence if no job used the GPUs after a notice; empty otherwise."""
    if not early.unused:
        return ""
    return " The beneficiary gave up its grant before it started; notices are not withdrawn."


def _ended_early(logged: _LoggedEvent, early: PreemptionRow, held: str) -> LogLine:
    """Return the line of a lease's end after notice: reason, duration, and the job's next state."""
    bold, used_s = f"{notice_text(early)}:", early.notice_used_s or 0
    after = f"exited {duration(used_s)} after the notice" if used_s >= 1 else "exited immediately"
    text = f"{early.words}. It {after}; it had held its GPUs for {held}."
    if logged.moves_to is not None:
        text += f" The same round placed it on {where(logged.moves_to)}."
        return LogLine(logged.at, "ended", bold, text, logged.event.round)
    text += _unused(early) + _afterwards(logged)
    return LogLine(logged.at, "preempted", bold, text, logged.event.round, hit=True)


def _ended(logged: _LoggedEvent) -> LogLine:
    line = _end_line(logged)
    if not logged.event.data.get("written_off"):
        return line
    return replace(line, text=f"{line.text} {WRITTEN_OFF}")


def _end_line(logged: _LoggedEvent) -> LogLine:
    event, started = logged.event, logged.hold.lease.started_at
    reason = str(event.data.get("reason", ""))
    if reason == "finished":
        return LogLine(logged.at, "ok", "Finished.", "The job is done.", event.round)
    if reason not in ASKED_BACK:
        code = event.data.get("exit_code")
        text = _ending(event) + ("." if code is None else f", with exit code {code}.")
        icon = "bad" if reason == "failed" else "ended"
        return LogLine(logged.at, icon, "Ended:", text, event.round)
    if started is None or reason == EndReason.LOST:
        return _cut_off(logged)
    held = duration((event.at - started).total_seconds())
    if logged.early is not None and not logged.early.finished:
        return _ended_early(logged, logged.early, held)
    if logged.moves_to is not None:
        text = f"the round placed it on {where(logged.moves_to)} instead, without queueing."
        text += f" It had held these GPUs for {held}."
        return LogLine(logged.at, "ended", "Moved away:", text, event.round)
    ending = _ending(event).removeprefix("preempted ")
    text = f"{ending}. It had held its GPUs for {held}.{_afterwards(logged)}"
    bold = "Preempted:" if reason not in NO_PREEMPTION else "Taken back:"
    return LogLine(logged.at, "preempted", bold, text, event.round, hit=True)


def _cut_off(logged: _LoggedEvent) -> LogLine:
    """Return the line of a lost lease, whose start or end only its node may know."""
    event, started = logged.event, logged.hold.lease.started_at
    is_lost = event.data.get("reason") == EndReason.LOST
    if started is not None:
        held = duration((event.at - started).total_seconds())
        ending = _ending(event).removeprefix("its process was lost: ")
        bold, text = "Process lost:", f"{ending}. It had held its GPUs for {held}."
    elif is_lost:
        bold, text = "Lost:", "its start was never reported; see its log."
    else:
        why = logged.early.words if logged.early else _ending(event)
        bold, text = "Grant withdrawn:", f"{why}."
    text += _afterwards(logged) if is_lost else ""
    return LogLine(logged.at, "preempted", bold, text, event.round, hit=True)


def _afterwards(logged: _LoggedEvent) -> str:
    """Return when the job was queued and when it ran again, and the work that it lost."""
    job, then = logged.event.job, logged.then
    text = f" {logged.loss}." if logged.loss else ""
    if then is not None and then.lease.started_at is not None:
        waited = duration((then.lease.started_at - logged.event.at).total_seconds())
        return f" It was queued again at once and restarted {waited} later.{text}"
    if job is not None and job.is_active:
        return f" It was queued again at once.{text}"
    return text


def _contradicted(logged: _LoggedEvent) -> LogLine:
    said = str(logged.event.data.get("said", ""))
    text = f"the job's files report: {said}. The engine's report is recorded."
    return LogLine(logged.at, "bad", "Contradiction:", text, logged.event.round)


def _idle(logged: _LoggedEvent) -> LogLine:
    data = logged.event.data
    lasted = duration((logged.event.at - from_us(int(data["since_us"]))).total_seconds())
    if data.get("session"):
        text = f"the session had not been used for {lasted}. Its lease will not be renewed."
        return LogLine(logged.at, "bad", "Idle:", text, logged.event.round)
    text = f"its {plural(int(data['gpus']), 'GPU')} had been unused for {lasted}."
    return LogLine(logged.at, "bad", "Idle:", text, logged.event.round)


def _ending(event: LeaseEvent) -> str:
    return ending_text(str(event.data.get("reason", "")))


def _figures(event: LeaseEvent) -> str:
    own, borrowed = int(event.data["own"]), int(event.data["borrowed"])
    if not borrowed:
        return f"{own} own"
    price = credits_text(Decimal(event.data["price"]), PLACES)
    return f"{own} own, {borrowed} borrowed at {price}"


def _length_text(pool: Pool, hold: LeaseView, number: int | None) -> str:
    """Return ", for 5 min", the term's length, if it is not the pool's present one."""
    lasts_s = next((term.lasts_s for term in hold.terms if term.number == number), pool.lease_s)
    return "" if lasts_s == pool.lease_s else f", for {duration(lasts_s)}"


Writer = Callable[[_LoggedEvent], LogLine | None]
_WRITERS: dict[str, Writer] = {
    Kind.GRANTED: _granted,
    Kind.STARTED: _started,
    Kind.RENEWED: _renewed,
    Kind.STOP_ASKED: _stop_asked,
    Kind.ENDED: _ended,
    Kind.CONTRADICTED: _contradicted,
    Kind.IDLE: _idle,
}
