"""The state of a job with respect to its deadline, as lists show it."""

from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.charts.notes import Instant
from portal.common.clocks import Clocks
from scheduling.selectors.deadlines.answers import DeadlineStanding, DeadlineStory

STANDING_BADGES = {
    DeadlineStanding.UNANSWERED: "waiting",
    DeadlineStanding.PLANNED: "ok",
    DeadlineStanding.REFUSED: "warn",
    DeadlineStanding.MISSED: "bad",
    DeadlineStanding.MET: "ok",
    DeadlineStanding.ENDED: "ended",
}
STANDINGS = {
    DeadlineStanding.UNANSWERED: gettext_noop("unanswered"),
    DeadlineStanding.PLANNED: gettext_noop("planned"),
    DeadlineStanding.REFUSED: gettext_noop("refused"),
    DeadlineStanding.MISSED: gettext_noop("missed"),
    DeadlineStanding.MET: gettext_noop("met"),
    DeadlineStanding.ENDED: gettext_noop("ended"),
}


@dataclass(frozen=True, slots=True)
class StandingBadge:
    """A shape, a text, and the times of the deadline and of the planned end."""

    kind: str
    text: str
    due: Instant | None
    ends: Instant | None


def standing_badge(story: DeadlineStory, times: Clocks) -> StandingBadge:
    """Return the state of a job's deadline; `ends` is the planned end, if there is a plan."""
    is_planned = story.standing is DeadlineStanding.PLANNED
    ends = story.last.ends if is_planned and story.last is not None else None
    return StandingBadge(
        STANDING_BADGES[story.standing],
        _(STANDINGS[story.standing]),
        times.instant(story.by),
        times.instant(ends),
    )
