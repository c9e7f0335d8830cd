"""The texts of messages, from their kind and data. Times in them are pool time. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from evenshare_core.domain.deadlines import DeadlineState
from evenshare_core.domain.instants import from_us
from evenshare_core.domain.reason_texts import ENDINGS
from scheduling.models.messages import MessageKind
from tenants.language import gettext_noop, plural

Data = Mapping[str, Any]


class MessageText(NamedTuple):
    """A subject of one line, and a sentence; both are plain text."""

    subject: str
    sentence: str


def text_of(kind: str, data: Data) -> MessageText:
    """Return a message's text; unknown kinds have a general one."""
    if kind in _JOBS:
        return _of_job(kind, data)
    if kind == MessageKind.OFFER_REVOKED:
        sentence = _("{tenant} lends no more idle quota by its offer of {gpus}.")
        return MessageText(
            _("Offer revoked in {pool}").format(pool=data["pool"]),
            sentence.format(tenant=data["tenant"], gpus=_gpus(data)),
        )
    if kind == MessageKind.QUOTA_DECIDED:
        return _quota_decided(data)
    if kind == MessageKind.BUDGET_REACHED:
        subject = _("{percent} % of the budget of {tenant} is used")
        sentence = _("Spent or committed are {used} of {amount} credits until {ends}.")
        return MessageText(
            subject.format(percent=data["percent"], tenant=data["tenant"]),
            sentence.format(used=data["used"], amount=data["amount"], ends=data["ends"]),
        )
    if kind == MessageKind.CONFIRM:
        sentence = _(
            "{person} wants to receive messages of {tenant} here. Open the link to agree."
            " Otherwise nothing more is sent."
        )
        return MessageText(
            _("Confirm this address"),
            sentence.format(person=data["person"], tenant=data["tenant"]),
        )
    return MessageText(_("Test message"), _("Messages of your subscription arrive here."))


def _of_job(kind: str, data: Data) -> MessageText:
    subject, sentence = _JOBS[kind](data)
    place = _("Pool {pool}, tenant {tenant}.").format(pool=data["pool"], tenant=data["tenant"])
    return MessageText(subject.format(job=data["job"]["name"]), f"{sentence} {place}")


def _quota_decided(data: Data) -> MessageText:
    if data["state"] == "approved":
        subject = _("Quota request approved in {pool}")
        sentence = _("{tenant} has a quota of {gpus} from the next round on.")
    else:
        subject = _("Quota request declined in {pool}")
        sentence = _("The quota of {tenant} does not change; it requested {gpus}.")
    said = sentence.format(tenant=data["tenant"], gpus=_gpus(data))
    return MessageText(
        subject.format(pool=data["pool"]), f"{said} {data['answer']}" if data["answer"] else said
    )


def _started(data: Data) -> tuple[str, str]:
    return _("{job} started"), _("It runs on {gpus}.").format(gpus=_gpus(data))


def _ended(data: Data) -> tuple[str, str]:
    is_cancelled = data["reason"] == "cancelled"
    subject = _("{job} was cancelled") if is_cancelled else _("{job} finished")
    return subject, _("It ended at {time}.").format(time=_time(data))


def _failed(data: Data) -> tuple[str, str]:
    code = data.get("exit_code")
    if code is None:
        sentence = _("It is not started again: {reason}.").format(reason=_ending(data))
    else:
        sentence = _("It ended at {time} with exit code {code}.").format(
            time=_time(data), code=code
        )
    return _("{job} failed"), sentence


def _interrupted(data: Data) -> tuple[str, str]:
    return _("{job} lost its GPUs"), _("Reason: {reason}.").format(reason=_ending(data))


def _idle(data: Data) -> tuple[str, str]:
    if data.get("session"):
        return _idle_session(data)
    if data["event"] == "idle":
        sentence = _("No use of its {gpus} was measured since {since}.")
        return (
            _("{job} does not use its GPUs"),
            sentence.format(gpus=_gpus(data), since=_minute(data["since_us"])),
        )
    return (
        _("{job} lost its idle GPUs"),
        _("It is held. Release it once its program uses its GPUs."),
    )


def _idle_session(data: Data) -> tuple[str, str]:
    if data["event"] == "idle":
        sentence = _("It was not used since {since}, so its lease will not be renewed.")
        return _("{job} is idle"), sentence.format(since=_minute(data["since_us"]))
    return (
        _("{job} has ended, because it was idle"),
        _("Its files are kept. Submit it again to go on."),
    )


def _promise(data: Data) -> tuple[str, str]:
    if data["event"] == "promised":
        sentence = _("A round promised its start by {due}.")
        return _("{job} will start"), sentence.format(due=_minute(data["due_us"]))
    if data["event"] == "late_start":
        return (
            _("{job} started late"),
            _("Its promised start was not kept, so its tenant gets a credit."),
        )
    return (
        _("{job} lost its promised start"),
        _("It still waits, and a later round may promise a start again."),
    )


def _deadline(data: Data) -> tuple[str, str]:
    return _("{job} has a new answer to its deadline"), _(
        "Now: {answer}. Before: {old_answer}."
    ).format(
        answer=_answer(data["state"], data["by_at"]),
        old_answer=_answer(data["old_state"], data["old_by_at"]),
    )


_JOBS = {
    MessageKind.JOB_STARTED.value: _started,
    MessageKind.JOB_ENDED.value: _ended,
    MessageKind.JOB_FAILED.value: _failed,
    MessageKind.JOB_PREEMPTED.value: _interrupted,
    MessageKind.JOB_NOT_RENEWED.value: _interrupted,
    MessageKind.JOB_IDLE.value: _idle,
    MessageKind.START_PROMISED.value: _promise,
    MessageKind.DEADLINE_MOVED.value: _deadline,
}


def _ending(data: Data) -> str:
    reason = data["reason"]
    return _(ENDINGS[reason]) if reason in ENDINGS else reason


# The states of a deadline.
_STATES = {
    DeadlineState.PLANNED.value: gettext_noop("planned"),
    DeadlineState.REFUSED.value: gettext_noop("refused"),
    DeadlineState.MISSED.value: gettext_noop("missed"),
}


def _answer(state: str, by_at: str | None) -> str:
    state = _(_STATES.get(state, state))
    if not by_at:
        return state
    by = f"{datetime.fromisoformat(by_at).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return _("{state}, done by {by}").format(state=state, by=by)


def _gpus(data: Data) -> str:
    return plural(data["gpus"], f"{data['gpu_type']} GPU")


def _minute(instant_us: int) -> str:
    return f"{from_us(instant_us):%Y-%m-%d %H:%M} UTC"


def _time(data: Data) -> str:
    return f"{datetime.fromisoformat(data['at']).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
