"""The facts about a job's leases that its texts use: live ones, moves, preemptions, times."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from django.utils.translation import gettext_noop

from portal.charts.figures import plural
from scheduling.models import Lease, LeaseEvent
from scheduling.selectors.jobs.preemption_costs import EARLY, TAKEN
from scheduling.selectors.jobs.tenant_jobs import JobStory, LeaseView

# Ends that do not count as preemptions, each with its label.
_LOST = gettext_noop("lost")
NO_PREEMPTION = {
    "lost": _LOST,
    "node_lost": _LOST,
    "drained": gettext_noop("taken back"),
    "idle": gettext_noop("given back"),
}
# Ends of a lease that the job did not cause.
ASKED_BACK = frozenset({*TAKEN, *NO_PREEMPTION})


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
    lost = sum(NO_PREEMPTION.get(reason) == _LOST for reason in ends)
    cuts = sum(reason not in NO_PREEMPTION for reason in ends)
    early = sum(reason in EARLY for reason in ends)
    waited_s = (total - ran).total_seconds()
    return Spent(waited_s, ran.total_seconds(), cuts, len(moves), early, lost)


def where(hold: LeaseView) -> str:
    """Return the name of the lease's node, or the number of its nodes."""
    return hold.places[0][0] if len(hold.places) == 1 else plural(len(hold.places), "node")


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


def lease_until(lease: Lease) -> datetime:
    """Return when a round may take the lease's GPUs: once it is expired and not protected."""
    return max(lease.expires_at, lease.protected_until or lease.expires_at)
