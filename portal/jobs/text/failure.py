"""A failed job: the end of its log, and the cause."""

import signal
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from evenshare_core.domain.reasons import EndReason
from portal.charts.notes import Instant
from portal.common.clocks import Clocks
from portal.jobs.text.leases import where
from portal.jobs.text.output import Output
from scheduling.models import Job
from scheduling.selectors.jobs.reasons import ending_text
from scheduling.selectors.jobs.tenant_jobs import JobStory

LINES = 20
# Exit codes of a shell and of this portal's shim, see docs/executors.md.
CODES = {
    126: gettext_noop("the command could not be executed"),
    127: gettext_noop("the command was not found"),
}
SIGNALS = {
    signal.SIGKILL: gettext_noop("often by the system, for lack of memory"),
    signal.SIGSEGV: gettext_noop("an invalid access to memory"),
    signal.SIGTERM: gettext_noop("a request to stop"),
}


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of a failed job's log and the cause; `code` is empty if no exit code is known.

    `is_all`: this is the whole log, so the page omits its usual log region.
    """

    lines: tuple[str, ...]
    lease: int
    is_cut: bool
    code: str
    meaning: str
    reason: str
    place: str
    at: Instant | None
    is_all: bool

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def failure_context(
    job: Job, story: JobStory, output: Output | None, clock: Clocks
) -> dict[str, Any]:
    """Return the data of templates/jobs/_failure.html; empty unless the job failed after a start.

    `output` is of the lease on the page, or None in pools whose jobs write nothing.
    """
    if job.state != Job.State.FAILED or output is None or not story.holds:
        return {}
    hold = story.holds[-1]
    is_last = output.lease == hold.lease.number
    reason = str(hold.lease.end_reason or "")
    lines = output.lines[-LINES:] if is_last else ()
    is_cut = is_last and (output.earlier or len(output.lines) > LINES)
    failure = Failure(
        lines=lines,
        lease=hold.lease.number,
        is_cut=is_cut,
        code="" if job.exit_code is None else str(job.exit_code),
        meaning=exit_meaning(job.exit_code),
        reason="" if reason in {"", EndReason.FAILED} else ending_text(reason),
        place=where(hold) if hold.places else "",
        at=clock.instant(job.ended_at),
        is_all=is_last and not is_cut and len(output.leases) == 1 and not job.progress,
    )
    return {"failure": failure}


def exit_meaning(code: int | None) -> str:
    """Return the meaning of an exit code; empty for a program's own codes.

    If a signal ended the process, the code is minus the signal's number. A shell reports 128 plus
    it.
    """
    if code is None:
        return ""
    number = -code if code < 0 else code - 128
    try:
        sent = signal.Signals(number)
    except ValueError:
        return _(CODES[code]) if code in CODES else ""
    if sent not in SIGNALS:
        return _("ended by {signal}").format(signal=sent.name)
    hint = _(SIGNALS[sent])
    return _("ended by {signal}, {hint}").format(signal=sent.name, hint=hint)
