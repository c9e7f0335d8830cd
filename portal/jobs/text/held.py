"""When people held a job, as parts of its timeline."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext as _

from evenshare_core.domain.reasons import Reason
from portal.charts.figures import coarse
from portal.charts.timeline import Segment
from portal.common.clocks import Clocks
from scheduling.models import Job
from scheduling.selectors.jobs.changes import HELD, RELEASED, JobChange
from scheduling.selectors.jobs.reasons import wait_kind, why

_REASONS = {
    Job.Hold.OPERATOR.value: Reason.HELD_BY_OPERATOR.value,
    Job.Hold.TENANT.value: Reason.HELD_BY_TENANT.value,
}
_NOT_WAITS = ("run", "expected")


# The reasons of waits that `held_spans` returns.
HELD_BY_PEOPLE = frozenset(_REASONS.values())


class HeldSpan(NamedTuple):
    """A time on the pool's clock during which a job was held, and the reason's code.

    `person` is empty for an operator, and if the job was submitted as held.
    """

    start: datetime
    end: datetime
    code: str
    person: str = ""


def held_spans(job: Job, changes: Iterable[JobChange], clocks: Clocks) -> list[HeldSpan]:
    """Return when people held a job, in order; a job may also have been submitted as held."""
    end = job.ended_at or clocks.now.pool_at
    since: dict[str, tuple[datetime, str]] = {}
    spans: list[HeldSpan] = []
    for change in changes:
        at, hold = clocks.pool_instant(change.at), str(change.after.get("hold", ""))
        if hold not in _REASONS:
            continue
        if change.action == HELD:
            since.setdefault(hold, (at.pool if at else job.submitted_at, change.person))
        elif change.action == RELEASED and at is not None:
            start, person = since.pop(hold, (job.submitted_at, ""))
            spans.append(HeldSpan(start, at.pool, _REASONS[hold], person))
    for hold in [one for one in job.holds if one in _REASONS and one not in since]:
        since[hold] = job.submitted_at, ""
    spans += [HeldSpan(start, end, _REASONS[hold], who) for hold, (start, who) in since.items()]
    return sorted(spans)


def held_by(code: str, helds: Sequence[HeldSpan]) -> str:
    """Return who holds a job for the reason `code`, as a sentence; empty if people do not hold it.

    `helds`: when people held the job, until now.
    """
    if code == Reason.HELD_BY_OPERATOR.value:
        return _("Held by an operator.")
    if code != Reason.HELD_BY_TENANT.value:
        return ""
    person = next((span.person for span in reversed(helds) if span.code == code), "")
    return _("Held by {person}.").format(person=person) if person else _("Held by its tenant.")


def without_holds(segment: Segment, helds: Sequence[HeldSpan]) -> Iterator[Segment]:
    """Split a wait at the times during which the job was held."""
    start = segment.start
    for span in helds if segment.kind not in _NOT_WAITS else ():
        begin, end = max(span.start, start), min(span.end, segment.end)
        if begin >= end:
            continue
        if begin > start:
            yield _part(segment, start, begin)
        text = f"{why(span.code).text} {coarse((end - begin).total_seconds())}"
        yield Segment(wait_kind(span.code), begin, end, text)
        start = end
    if start == segment.start:
        yield segment
    elif start < segment.end:
        yield _part(segment, start, segment.end)


def _part(segment: Segment, start: datetime, end: datetime) -> Segment:
    length = coarse((end - start).total_seconds())
    word = segment.label.removesuffix(coarse((segment.end - segment.start).total_seconds()))
    return replace(segment, start=start, end=end, label=f"{word}{length}")
