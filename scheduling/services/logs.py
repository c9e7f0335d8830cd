"""Windows of the output of a job's program, as text without control characters."""

import re

from scheduling.engine.executors.base import executor_traits
from scheduling.engine.executors.local_files import LogWindow, read_log
from scheduling.models import Job, Lease
from tenants.answers import Answer

WINDOW_BYTES = 256 * 1024
# C0 and C1 controls except tab and newline, and characters that change the text direction.
_ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

_RETURN = re.compile("\r\n?")


class LogPage(Answer, frozen=True):
    """A window of a log. `complete`: the lease has ended, and the log has no more output."""

    COMPONENT = "LogText"

    lease: int | None  # None if the job has no lease yet
    offset: int  # bytes of the program's output
    next_offset: int
    total: int
    # a carriage return becomes a new line, as on the job's page, because progress bars write it
    text: str
    complete: bool


def log_page(job: Job, *, lease: int | None, offset: int, limit: int) -> LogPage | None:
    """Return a window of a job's log from `offset` (negative: from the end), at most `limit` bytes.

    `lease`: its number; the last one if None. Return None if the job has no lease of this number.
    """
    leases = job.leases.order_by("-number").values_list("number", "state")
    row = (leases if lease is None else leases.filter(number=lease)).first()
    if row is None:
        return LogPage(None, 0, 0, 0, "", complete=not job.is_active) if lease is None else None
    number, state = row
    window = LogWindow(b"", 0, 0)
    if executor_traits(job.pool.executor).keeps_output:
        window = read_log(job.pk, number, offset, max(1, min(limit, WINDOW_BYTES)))
    data, text = _whole_signs(window, after_return=_follows_return(job, number, window))
    next_offset = window.offset + len(data)
    ended = state == Lease.State.ENDED and next_offset >= window.total
    return LogPage(number, window.offset, next_offset, window.total, text, complete=ended)


def _follows_return(job: Job, lease: int, window: LogWindow) -> bool:
    r"""Return whether a window starts between a carriage return and its newline."""
    if not window.offset or not window.data.startswith(b"\n"):
        return False
    return read_log(job.pk, lease, window.offset - 1, 1).data == b"\r"


def inert(text: str) -> str:
    """Return text with control characters except tab and newline as escapes."""
    return _ACTIVE.sub(lambda match: _escape(match[0]), text)


def _escape(sign: str) -> str:
    code = ord(sign)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _whole_signs(window: LogWindow, *, after_return: bool = False) -> tuple[bytes, str]:
    """Cut a window to whole characters, and to at most `WINDOW_BYTES` of text."""
    data = window.data
    if window.next_offset < window.total:
        data = data[: _last_whole(data)] or data
    text = _shown(data, after_return=after_return)
    while len(text.encode()) > WINDOW_BYTES:
        data = data[: len(data) // 2]
        data = data[: _last_whole(data)] or data
        text = _shown(data, after_return=after_return)
    return data, text


def _shown(data: bytes, *, after_return: bool) -> str:
    text = data.decode(errors="replace")
    return inert(_RETURN.sub("\n", text[1:] if after_return else text))


def _last_whole(data: bytes) -> int:
    """Return the start of a cut UTF-8 character at the end of `data`, else its length."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            size = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if size > back else len(data)
    return len(data)
