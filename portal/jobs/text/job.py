"""Texts and charts of a job: the headline, the timeline, the log, the lease, the charge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from django.urls import reverse

from billing.selectors.prices import PriceRow
from evenshare_core.domain.reasons import Reason
from evenshare_core.policies import registry
from portal.charts.figures import coarse, duration, plural
from portal.charts.glyphs import StateBadge
from portal.charts.notes import LineItem, Note, count_note
from portal.charts.timeline import Cut, GpuSpan, JobTimeline, PricePoint, Segment, timeline
from portal.common.clocks import Clocks
from portal.jobs.text.held import HeldSpan, without_holds
from scheduling.models import Job, Lease, LeaseEvent
from scheduling.selectors.jobs.lists import held_numbers
from scheduling.selectors.jobs.phases import STARTING, phase_of
from scheduling.selectors.jobs.preemption_costs import EARLY, TAKEN
from scheduling.selectors.jobs.preemptions import PreemptionRow
from scheduling.selectors.jobs.reasons import ReasonText, rule_text, wait_kind, why
from scheduling.selectors.jobs.tenant_jobs import JobStory, LeaseView

State = Job.State
STATE_BADGES: dict[str, StateBadge] = {
    State.PENDING: StateBadge("waiting", "Queued"),
    STARTING: StateBadge("starting", "Starting"),
    State.RUNNING: StateBadge("running", "Running"),
    State.STOPPING: StateBadge("preempted", "Stopping"),
    State.SUCCEEDED: StateBadge("ok", "Done"),
    State.FAILED: StateBadge("bad", "Failed"),
    State.CANCELLED: StateBadge("ended", "Cancelled"),
}
IN_QUARANTINE = StateBadge("waiting", "In quarantine")
HELD = StateBadge("waiting", "Held")
# Ends that do not count as preemptions, each with its label.
NO_PREEMPTION = {"lost": "lost", "node_lost": "lost", "drained": "taken back", "idle": "given back"}
# Ends of a lease that the job did not cause.
ASKED_BACK = frozenset({*TAKEN, *NO_PREEMPTION})

WORDED_CUTS = 3


@dataclass(frozen=True, slots=True)
class Spent:
    """A job's waiting and running time in seconds of pool time, and its preemptions.

    `moved`: how often a round ended its lease and granted another one at once. `early`: preemptions
    before the lease expired. `lost`: how often its process was lost.
    """

    waited_s: float
    ran_s: float
    preempted: int
    moved: int = 0
    early: int = 0
    lost: int = 0


def job_context(
    story: JobStory,
    clocks: Clocks,
    posted: list[PriceRow],
    early: Mapping[int, PreemptionRow] = MappingProxyType({}),
    helds: Sequence[HeldSpan] = (),
) -> dict[str, Any]:
    """Return the data of the top of templates/jobs/job.html.

    `early`: preemptions before the expiry, by lease (`preemptions_among`). `helds`: when people
    held the job.
    """
    now = clocks.now.pool_at
    spent = spent_of(story, now)
    held = live_hold(story)
    said = headline(story, held, spent, now)
    phase = phase_of(story.job.state, [hold.lease.state for hold in live_holds(story)])
    return {
        "headline": said,
        "queued_at": clocks.instant(queued_at(story)) if held is None else None,
        "until": clocks.instant(_until(held.lease)) if held and said.end == " until" else None,
        "may_be_preempted": registry.traits(story.job.pool.policy).preempts_running,
        "nodes_note": nodes_note(held) if held else None,
        "state_badge": state_badge(
            phase, is_quarantined=bool(story.job.quarantine), is_held=story.job.is_held
        ),
        "held_reason": held_reason(story.job),
        "quarantine": quarantine_reason(story.job),
        "spent": spent,
        "time_title": time_title(story, spent),
        "timeline_svg": timeline(job_timeline(story, posted, now, early, helds)),
        "held": held,
        "price_url": price_url(story, held) if held else "",
        "price_round": held.terms[-1].round if held and held.terms else None,
        "left_s": (_until(held.lease) - now).total_seconds() if held else 0,
        "lasts_s": held.terms[-1].lasts_s if held and held.terms else story.job.pool.lease_s,
        "protected_s": held.lease.protected_s if held else 0,
        "protected": clocks.instant(_protected(held.lease, now)) if held else None,
        "lease_lines": lease_lines(held) if held else (),
    }


def price_url(story: JobStory, held: LeaseView) -> str:
    """Return the page of the present term's price; empty if nothing is borrowed."""
    if not held.terms or not held.terms[-1].borrowed:
        return ""
    place = (story.job.pool.name, held.lease.gpu_type.name, held.terms[-1].round)
    return reverse("posted-price", args=place)


def state_badge(phase: str, *, is_quarantined: bool, is_held: bool = False) -> StateBadge:
    """Return the badge of a phase; waiting jobs that are not in a queue have their own badges."""
    if phase != State.PENDING or not (is_quarantined or is_held):
        return STATE_BADGES[phase]
    return IN_QUARANTINE if is_quarantined else HELD


def held_reason(job: Job) -> ReasonText | None:
    """Return why a job is held, or None if it is not."""
    return why(job.reason_code, held_numbers(job)) if job.is_held else None


def quarantine_reason(job: Job) -> ReasonText | None:
    """Return why a job is in quarantine, or None if it is not.

    The policy's error is only for operators, because it may name other tenants.
    """
    if job.state != State.PENDING or not job.quarantine:
        return None
    return why(Reason.QUARANTINED.value)


def live_holds(story: JobStory) -> list[LeaseView]:
    """Return the leases that have not ended: two if the job is being moved."""
    return [hold for hold in story.holds if hold.lease.state != Lease.State.ENDED]


def live_hold(story: JobStory) -> LeaseView | None:
    """Return the lease that the job holds now or will hold next."""
    live = live_holds(story)
    return live[-1] if live else None


def starting_hold(story: JobStory) -> LeaseView | None:
    """Return the lease whose GPUs the job holds while its program has not started."""
    held = live_hold(story)
    is_launching = held is not None and held.lease.state == Lease.State.LAUNCHING
    return held if is_launching else None


def moves_of(story: JobStory) -> dict[int, LeaseView]:
    """Return lease id -> next lease, for leases that a round ended for a move.

    A move is an end and a grant of the same job in one round, without waiting in between.
    """
    ended_by: dict[int, int] = {}
    for event in story.events:
        asked = event.kind in {LeaseEvent.Kind.STOP_ASKED, LeaseEvent.Kind.ENDED}
        if asked and event.lease_id is not None and event.round is not None:
            ended_by.setdefault(event.lease_id, event.round)
    moves = {}
    for hold, then in pairwise(story.holds):
        lease = hold.lease
        if lease.end_reason and lease.end_reason not in ASKED_BACK:
            continue
        if ended_by.get(lease.pk) == then.lease.granted_round:
            moves[lease.pk] = then
    return moves


def spent_of(story: JobStory, now: datetime) -> Spent:
    """Add up the leases' times; a job waits whenever it holds no GPUs."""
    end = story.job.ended_at or now
    ran = timedelta(0)
    for hold in story.holds:
        if hold.lease.started_at is not None:
            ran += max((hold.lease.ended_at or now) - hold.lease.started_at, timedelta(0))
    total = max(end - story.job.submitted_at, ran)
    moves = moves_of(story)
    # A grant that was withdrawn before its program started is no preemption.
    ends = [hold.lease.end_reason for hold in preempted(story)]
    lost = sum(NO_PREEMPTION.get(reason) == "lost" for reason in ends)
    cuts = sum(reason not in NO_PREEMPTION for reason in ends)
    early = sum(reason in EARLY for reason in ends)
    waited_s = (total - ran).total_seconds()
    return Spent(waited_s, ran.total_seconds(), cuts, len(moves), early, lost)


class Headline(NamedTuple):
    """The headline in three parts; `place` is a link to the job's nodes."""

    start: str
    place: str = ""
    end: str = ""

    @property
    def mark(self) -> str:
        return self.end[:1]

    @property
    def rest(self) -> str:
        """Return the end without its first character, a punctuation mark printed with the place."""
        return self.end[1:]


def headline(story: JobStory, held: LeaseView | None, spent: Spent, now: datetime) -> Headline:
    """Return the job's present state, and since or until when."""
    job = story.job
    if job.ended_at is not None and not spent.ran_s:
        return Headline(f"{_ended_text(job).removesuffix(',')} before it ran.")
    if job.ended_at is not None:
        return Headline(_ended_text(job) + f" after {duration(spent.ran_s)} of running.")
    if job.cancel_asked_at is not None:
        return Headline(
            f"Cancelling: it may save its state, then its {_gpus_go(job)} to other jobs."
        )
    if job.state == State.STOPPING:
        then = "in quarantine" if job.quarantine else "queued again"
        return Headline(f"Checkpointing and stopping, then {then}.")
    if held is not None:
        return _held_text(held, now)
    return _queued_text(story)


def _queued_text(story: JobStory) -> Headline:
    """Return the text around the time of queueing, which the page inserts and keeps up to date."""
    if story.job.quarantine:
        return Headline("In quarantine: rounds skip it.")
    if held := held_reason(story.job):
        return Headline(f"Held, not queued: {held.text}.")
    reason = f": {story.waits_for.reason.text}" if story.waits_for else ""
    return Headline("Queued again" if story.holds else "Queued", end=f"{reason}.")


def queued_at(story: JobStory) -> datetime | None:
    """Return since when the job is queued, or None if it is not."""
    job = story.job
    if job.state != State.PENDING or job.quarantine or job.cancel_asked_at or job.is_held:
        return None
    last = story.holds[-1].lease.ended_at if story.holds else None
    return max(last, job.arrived_at) if last else job.arrived_at


def _gpus_go(job: Job) -> str:
    return "GPU goes" if job.gpus == 1 else f"{job.gpus} GPUs go"


def _ended_text(job: Job) -> str:
    if job.is_given_up:
        return f"Failed, its process lost {job.losses} times in a row soon after each start,"
    if job.state == State.FAILED:
        return "Failed" if job.exit_code is None else f"Failed with exit code {job.exit_code}"
    return STATE_BADGES[job.state].text


def _held_text(held: LeaseView, now: datetime) -> Headline:
    if held.lease.state == Lease.State.WAITING:
        return Headline("Granted ", where(held), ", and waiting until they are released.")
    if held.lease.state == Lease.State.LAUNCHING:
        return Headline("Starting on ", where(held), ".")
    until = _until(held.lease)
    if until <= now:
        return Headline("Running on ", where(held), ", renewing lease.")
    return Headline("Running on ", where(held), " until")  # the page appends the instant


def where(hold: LeaseView) -> str:
    """Return the name of the lease's node, or the number of its nodes."""
    return hold.places[0][0] if len(hold.places) == 1 else f"{len(hold.places)} nodes"


def nodes_note(hold: LeaseView) -> Note:
    """Return the lease's nodes, and the number of GPUs on each."""
    return count_note("GPUs by node", hold.places, total="total")


def time_title(story: JobStory, spent: Spent) -> str:
    """Return the job's waiting and running time as a heading."""
    if story.job.ended_at and not spent.ran_s:
        return f"Queued {duration(spent.waited_s)}, never ran"
    starting = starting_hold(story)
    if starting is not None and not spent.ran_s:
        waited = (starting.lease.granted_at - story.job.submitted_at).total_seconds()
        return f"Queued {duration(waited)}, not run yet"
    if not spent.ran_s:
        return "Not run yet"
    ran = "ran" if story.job.ended_at else "running"
    return f"Queued {duration(spent.waited_s)}, {ran} {duration(spent.ran_s)}"


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
        end = max(end, _until(held.lease))
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
        label=f"Timeline of {job.name}",
    )


def _prices(posted: list[PriceRow], start: datetime) -> list[PricePoint]:
    """Return prices from the start on; the last price posted before it is the first."""
    before = [point for point in posted if point.posted_at <= start][-1:]
    after = [point for point in posted if point.posted_at > start]
    return [PricePoint(max(point.posted_at, start), point.price) for point in before + after]


def preempted(story: JobStory) -> list[LeaseView]:
    """Return leases that started and ended for a reason outside the job, except for moves."""
    moves = moves_of(story)
    return [
        hold
        for hold in story.holds
        if hold.lease.ended_at
        and hold.lease.started_at
        and hold.lease.end_reason in ASKED_BACK
        and hold.lease.pk not in moves
    ]


def _cuts(story: JobStory, early: Mapping[int, PreemptionRow]) -> list[Cut]:
    cuts = []
    for hold in preempted(story):
        if hold.lease.ended_at:
            view = early.get(hold.lease.pk)
            rule = f" ({rule_text(view.rule)})" if view else ""
            word = NO_PREEMPTION.get(hold.lease.end_reason, "preempted")
            cuts.append(Cut(hold.lease.ended_at, f"{word}{rule}"))
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
        if lease.ended_at is None and _until(lease) > now:
            segments.append(Segment("expected", now, _until(lease)))
            free_from = _until(lease)
    starting = starting_hold(story)
    if starting is not None and starting.lease.started_at is None:
        begin = max(starting.lease.granted_at, free_from)
        if begin > free_from:
            reason = story.reasons.get(starting.lease.number)
            segments.append(_wait(free_from, begin, reason.code if reason else ""))
        free_from = max(_until(starting.lease), now)
        segments.append(Segment("expected", begin, free_from, "starting"))
    end = story.job.ended_at or now
    if end > free_from:
        code = story.waits_for.reason.code if story.waits_for else story.job.reason_code
        segments.append(_wait(free_from, end, code))
    return segments


def _wait(start: datetime, end: datetime, code: str) -> Segment:
    length = coarse((end - start).total_seconds())
    kind = wait_kind(code) if code else "turn"
    said = "queued" if kind == "turn" else why(code).text
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


def _until(lease: Lease) -> datetime:
    """Return when a round may take the lease's GPUs: once it is expired and not protected."""
    return max(lease.expires_at, lease.protected_until or lease.expires_at)


def _protected(lease: Lease, now: datetime) -> datetime | None:
    """Return until when no policy may end the lease, or None if it is not protected."""
    until = lease.protected_until
    return until if until is not None and until > now else None


def lease_lines(held: LeaseView) -> tuple[LineItem, ...]:
    """Return the facts that the lease's present term fixed."""
    lease = held.lease
    lasts = [LineItem("lease length", duration(term.lasts_s)) for term in held.terms[-1:]]
    return (
        *lasts,
        LineItem("within quota", plural(lease.own, "GPU")),
        LineItem("borrowed", plural(lease.borrowed, "GPU")),
    )
