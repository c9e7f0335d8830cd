"""The timeline of a job: its waits, leases and prices."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.selectors.prices import PriceRow
from portal.charts.figures import coarse, plural
from portal.charts.timeline import Cut, GpuSpan, JobTimeline, PricePoint, Segment
from portal.jobs.text.held import HELD_BY_PEOPLE, HeldSpan, without_holds
from portal.jobs.text.leases import (
    NO_PREEMPTION,
    lease_until,
    live_hold,
    preempted,
    starting_hold,
    where,
)
from scheduling.selectors.jobs.preemptions import PreemptionRow
from scheduling.selectors.jobs.reasons import rule_text, wait_kind, why
from scheduling.selectors.jobs.tenant_jobs import JobStory

WORDED_CUTS = 3
PREEMPTED = gettext_noop("preempted")


def job_timeline(
    story: JobStory,
    posted: list[PriceRow],
    now: datetime,
    early: Mapping[int, PreemptionRow] = MappingProxyType({}),
    helds: Sequence[HeldSpan] = (),
) -> JobTimeline:
    """Return the three tracks, from the submission (or the oldest lease that was read) on."""
    job, held = story.job, live_hold(story)
    start = job.submitted_at
    if story.cut and story.holds:
        start = story.holds[0].lease.since
    end = job.ended_at or now
    if held is not None:
        end = max(end, lease_until(held.lease))
    return JobTimeline(
        start=start,
        end=end,
        now=now,
        segments=tuple(
            part for one in _segments(story, start, now) for part in without_holds(one, helds)
        ),
        cuts=tuple(_cuts(story, early)),
        gpus=tuple(_gpu_spans(story, now)),
        gpus_of=job.gpus,
        prices=tuple(_prices(posted, start)),
        max_price=job.max_price,
        label=_("Timeline of {job}").format(job=job.name),
    )


def _prices(posted: list[PriceRow], start: datetime) -> list[PricePoint]:
    """Return prices from the start on; the last price posted before it is the first."""
    before = [point for point in posted if point.posted_at <= start][-1:]
    after = [point for point in posted if point.posted_at > start]
    return [PricePoint(max(point.posted_at, start), point.price) for point in before + after]


def _cuts(story: JobStory, early: Mapping[int, PreemptionRow]) -> list[Cut]:
    cuts = []
    for hold in preempted(story):
        if hold.lease.ended_at:
            view = early.get(hold.lease.pk)
            rule = f" ({rule_text(view.rule)})" if view else ""
            ending = NO_PREEMPTION.get(hold.lease.end_reason, PREEMPTED)
            cuts.append(Cut(hold.lease.ended_at, f"{_(ending)}{rule}"))
    if len(cuts) <= WORDED_CUTS:
        return cuts
    # Many labels would overlap; the log has the text of each.
    return [Cut(cut.at, "") for cut in cuts]


def _segments(story: JobStory, start: datetime, now: datetime) -> list[Segment]:
    segments: list[Segment] = []
    free_from = start
    for hold in story.holds:
        lease = hold.lease
        if lease.started_at is None:
            continue
        if lease.started_at > free_from:
            reason = story.reasons.get(lease.number)
            segments.append(_wait(free_from, lease.started_at, reason.code if reason else ""))
        until = lease.ended_at or now
        seams = tuple(term.starts_at for term in hold.terms[1:] if term.starts_at < until)
        label = f"{where(hold)}, {plural(len(hold.terms), 'term')}"
        segments.append(Segment("run", lease.started_at, until, label, seams))
        free_from = max(free_from, until)
        if lease.ended_at is None and lease_until(lease) > now:
            segments.append(Segment("expected", now, lease_until(lease)))
            free_from = lease_until(lease)
    starting = starting_hold(story)
    if starting is not None and starting.lease.started_at is None:
        begin = max(starting.lease.granted_at, free_from)
        if begin > free_from:
            reason = story.reasons.get(starting.lease.number)
            segments.append(_wait(free_from, begin, reason.code if reason else ""))
        free_from = max(lease_until(starting.lease), now)
        segments.append(Segment("expected", begin, free_from, _("starting")))
    end = story.job.ended_at or now
    if end > free_from:
        code = story.waits_for.reason.code if story.waits_for else story.job.reason_code
        # `without_holds` cuts the holds of people out; before them the job was queued.
        segments.append(_wait(free_from, end, "" if code in HELD_BY_PEOPLE else code))
    return segments


def _wait(start: datetime, end: datetime, code: str) -> Segment:
    length = coarse((end - start).total_seconds())
    kind = wait_kind(code) if code else "turn"
    said = _("queued") if kind == "turn" else why(code).text
    return Segment(kind, start, end, f"{said} {length}")


def _gpu_spans(story: JobStory, now: datetime) -> list[GpuSpan]:
    """Return own and borrowed GPUs by term; equal neighbours are merged."""
    spans: list[GpuSpan] = []
    for hold in story.holds:
        lease = hold.lease
        if lease.started_at is None:
            continue
        end = lease.ended_at or max(now, lease.started_at)
        starts = [max(term.starts_at, lease.started_at) for term in hold.terms]
        for term, begin, until in zip(hold.terms, starts, [*starts[1:], end], strict=True):
            if until <= begin:
                continue
            last = spans[-1] if spans else None
            alike = last and (last.end, last.own, last.borrowed) == (begin, term.own, term.borrowed)
            if last and alike:
                spans[-1] = GpuSpan(last.start, until, last.own, last.borrowed)
            else:
                spans.append(GpuSpan(begin, until, term.own, term.borrowed))
    return spans
