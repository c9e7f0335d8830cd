"""A job's own reports: progress, metrics, and the end of its output, as inert text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.urls import reverse
from django.utils.translation import gettext as _

from portal.charts.figures import thousands
from portal.charts.notes import LineItem
from scheduling.engine.executors.base import executor_traits
from scheduling.engine.executors.local_files import WINDOW_BYTES, LogWindow, read_log
from scheduling.engine.executors.local_spec import LOG_BYTES
from scheduling.models import Job
from scheduling.services.logs import inert
from tenants.scopes import tenant_scope

TAIL_LINES, LINE_CHARACTERS = 200, 4000
METRICS, LEASES = 12, 20

_BREAK = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Reported:
    """A job's report: steps done and in total (None if unknown), and its metrics."""

    step: int | None
    total: int | None
    metrics: tuple[LineItem, ...]

    @property
    def fraction(self) -> float | None:
        """Return the completed fraction, 0 to 1, or None if unknown."""
        if self.step is None or not self.total or self.total < 0:
            return None
        return min(max(self.step / self.total, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Output:
    """A window of a lease's output. `lease` is 0 if the job has had none.

    `lines` contain no control characters. `offset`, `next_offset` and `total` count the bytes that
    the program wrote. `lines_cut`: the window has earlier lines that are not shown.
    """

    lease: int
    leases: tuple[int, ...]
    lines: tuple[str, ...]
    offset: int
    next_offset: int
    total: int
    lines_cut: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def is_cut(self) -> bool:
        """Return whether the middle of the output was dropped because it exceeds the limit."""
        return self.total > kept_bytes()

    @property
    def earlier(self) -> bool:
        return self.offset > 0 or self.lines_cut


def kept_bytes() -> int:
    """Return how many bytes of a lease's output are kept."""
    return int(getattr(settings, "LOCAL_LOG_BYTES", LOG_BYTES))


def writes_output(job: Job) -> bool:
    """Return whether jobs of this pool are programs: simulated ones write nothing."""
    return executor_traits(job.pool.executor).keeps_output


def reported(job: Job) -> Reported | None:
    """Return the job's report without malformed parts, or None if nothing is left."""
    said = job.progress
    if not isinstance(said, dict):
        return None
    step, total = _count(said.get("step")), _count(said.get("total"))
    values = Reported(step, total, tuple(_metrics(said)))
    return values if step is not None or values.metrics else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _metrics(said: dict[str, Any]) -> Iterator[LineItem]:
    given = said.get("metrics")
    pairs = list(given.items()) if isinstance(given, dict) else []
    for name, value in pairs[:METRICS]:
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield LineItem(inert(str(name))[:60], _figure(value))


def _figure(value: float) -> str:
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e15):
        return thousands(int(value))
    return f"{value:.4g}".replace("-", "\N{MINUS SIGN}", 1) if value < 0 else f"{value:.4g}"


def output_tail(job: Job, lease: int | None = None) -> Output:
    """Return the last lines of a lease's output, by default of the newest lease."""
    return _output(job, lease, -WINDOW_BYTES, most_lines=TAIL_LINES)


def output_at(job: Job, lease: int | None, offset: int) -> Output:
    """Return the window of a lease's output that starts at a byte."""
    return _output(job, lease, max(0, offset), most_lines=WINDOW_BYTES)


def _output(job: Job, lease: int | None, offset: int, *, most_lines: int) -> Output:
    with tenant_scope(job.tenant_id):
        had = job.leases_held or (job.leases.count() if writes_output(job) else 0)
    numbers = tuple(range(1, had + 1))
    number = lease if lease in numbers else had
    window = LogWindow(b"", 0, 0)
    if number and writes_output(job):
        window = read_log(job.pk, number, offset)
    lines = output_lines(window.data, from_start=window.offset == 0)
    return Output(
        lease=number,
        leases=numbers[-LEASES:],
        lines=tuple(lines[-most_lines:]),
        offset=window.offset,
        next_offset=window.next_offset,
        total=window.total,
        lines_cut=len(lines) > most_lines,
    )


def output_lines(data: bytes, *, from_start: bool = True) -> list[str]:
    """Return untrusted bytes as lines of inert text.

    A carriage return also ends a line, so a progress bar shows all its states. A window from the
    middle may start inside a character: up to 3 bytes are skipped.
    """
    if not from_start:
        skip = next((n for n in range(min(4, len(data))) if data[n] & 0xC0 != 0x80), 0)
        data = data[skip:]
    lines = _BREAK.split(data.decode("utf-8", "replace"))
    if lines and not lines[-1]:
        lines.pop()
    return [_short(line) for line in lines]


def _short(line: str) -> str:
    more = len(line) - LINE_CHARACTERS
    if more <= 0:
        return inert(line)
    cut = _("[{count} more characters of this line]").format(count=thousands(more))
    return f"{inert(line[:LINE_CHARACTERS])} {cut}"


def output_digest(job: Job, output: Output) -> str:
    """Return a digest that changes exactly when the region would."""
    facts = (state_digest(job), job.progress, output.lease, output.leases, output.total)
    return blake2s(repr(facts).encode(errors="replace"), digest_size=8).hexdigest()


def state_digest(job: Job) -> str:
    """Return a text that changes with the job's state."""
    return f"{job.state}.{job.version}.{job.leases_held}"


def output_context(job: Job, lease: int | None) -> dict[str, Any]:
    """Return the data of templates/jobs/_log.html; empty if jobs write nothing."""
    if not writes_output(job):
        return {}
    output = output_tail(job, lease)
    digest, state = output_digest(job, output), state_digest(job)
    asked = {"lease": lease} if lease and lease == output.lease else {}
    query = urlencode({**asked, "seen": digest, "state": state})
    return {
        "output": output,
        "follow_url": f"{reverse('job-log', args=[job.uid])}?{query}",
        "reported": reported(job),
        "kept_mb": kept_bytes() // 2**20,
        "digest": digest,
        "state_digest": state,
        "poll_s": 1 if job.pool.on_demand else 2,
    }
