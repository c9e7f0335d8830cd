"""The texts of messages, from their kind and data. Times in them are pool time. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from evenshare_core.domain.instants import from_us
from evenshare_core.domain.reason_texts import ENDINGS
from scheduling.models.messages import MessageKind

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
        return MessageText(
            f"Offer revoked in {data['pool']}",
            f"{data['tenant']} lends no more idle quota by its offer of {_gpus(data)}.",
        )
    if kind == MessageKind.BUDGET_REACHED:
        return MessageText(
            f"{data['percent']} % of the budget of {data['tenant']} is used",
            f"Spent or committed are {data['used']} of {data['amount']} credits until"
            f" {data['ends']}.",
        )
    if kind == MessageKind.CONFIRM:
        return MessageText(
            "Confirm this address",
            f"{data['person']} wants to receive messages of {data['tenant']} here. Open the link"
            " to agree. Otherwise nothing more is sent.",
        )
    return MessageText("Test message", "Messages of your subscription arrive here.")


def _of_job(kind: str, data: Data) -> MessageText:
    what, sentence = _JOBS[kind](data)
    subject = f"{data['job']['name']} {what}"
    return MessageText(subject, f"{sentence} Pool {data['pool']}, tenant {data['tenant']}.")


def _started(data: Data) -> tuple[str, str]:
    return "started", f"It runs on {_gpus(data)}."


def _ended(data: Data) -> tuple[str, str]:
    what = "was cancelled" if data["reason"] == "cancelled" else "finished"
    return what, f"It ended at {_time(data)}."


def _failed(data: Data) -> tuple[str, str]:
    code = data.get("exit_code")
    if code is None:
        return "failed", f"It is not started again: {ENDINGS.get(data['reason'], data['reason'])}."
    return "failed", f"It ended at {_time(data)} with exit code {code}."


def _interrupted(data: Data) -> tuple[str, str]:
    return "lost its GPUs", f"Reason: {ENDINGS.get(data['reason'], data['reason'])}."


def _idle(data: Data) -> tuple[str, str]:
    if data.get("session"):
        return _idle_session(data)
    if data["event"] == "idle":
        since = f"{from_us(data['since_us']):%Y-%m-%d %H:%M} UTC"
        return "does not use its GPUs", f"No use of its {_gpus(data)} was measured since {since}."
    return "lost its idle GPUs", "It is held. Release it once its program uses its GPUs."


def _idle_session(data: Data) -> tuple[str, str]:
    if data["event"] == "idle":
        since = f"{from_us(data['since_us']):%Y-%m-%d %H:%M} UTC"
        return "is idle", f"It was not used since {since}, so its lease will not be renewed."
    return "has ended, because it was idle", "Its files are kept. Submit it again to go on."


def _promise(data: Data) -> tuple[str, str]:
    if data["event"] == "promised":
        due = f"{from_us(data['due_us']):%Y-%m-%d %H:%M} UTC"
        return "will start", f"A round promised its start by {due}."
    if data["event"] == "late_start":
        return "started late", "Its promised start was not kept, so its tenant gets a credit."
    return "lost its promised start", "It still waits, and a later round may promise a start again."


def _deadline(data: Data) -> tuple[str, str]:
    return "has a new answer to its deadline", (
        f"Now: {_answer(data['state'], data['by_at'])}."
        f" Before: {_answer(data['old_state'], data['old_by_at'])}."
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


def _answer(state: str, by_at: str | None) -> str:
    if not by_at:
        return state
    return f"{state}, done by {datetime.fromisoformat(by_at).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _gpus(data: Data) -> str:
    count = data["gpus"]
    return f"{count} {data['gpu_type']} {'GPU' if count == 1 else 'GPUs'}"


def _time(data: Data) -> str:
    return f"{datetime.fromisoformat(data['at']).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
