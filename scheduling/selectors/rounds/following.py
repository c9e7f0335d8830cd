"""Checks that stored rounds start from the state that the rounds before them left."""

from dataclasses import dataclass, field

import msgspec

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.verification.following import beginning_breaks, breaks
from evenshare_core.verification.following_ids import StoredRound
from evenshare_core.verification.following_texts import TEXTS
from scheduling.models import Round
from scheduling.selectors.rounds.stored import (
    DamagedRoundError,
    ReplayError,
    round_values,
    row_damages,
    with_seals,
)
from scheduling.selectors.stored_texts import STORED
from scheduling.selectors.visibility import Visibility
from tenants.answers import Answer
from tenants.language import StoredTexts, gettext_noop

UNFOLLOWED = gettext_noop("It does not; operators can see the cause.")
NO_ROUND = gettext_noop("Round {number} is missing.")
# The texts of `Following.why`, which pages translate.
WHY = StoredTexts([*STORED.templates, *TEXTS, UNFOLLOWED, NO_ROUND])


class Following(Answer, frozen=True, rename={"before": "round"}):
    """Whether a round starts from the state that round `round` left, or if 0, from an empty state.

    `follows` is null if this can no longer be checked. `why` lists the differences, in full for
    operators.
    """

    COMPONENT = "RoundFollowing"

    before: int
    follows: bool | None
    why: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Why the round does not follow, as the end of a sentence."""
        more = f" (and {len(self.why) - 1} more)" if len(self.why) > 1 else ""
        return f"{self.why[0].removesuffix('.')}{more}" if self.why else ""


@dataclass(slots=True)
class Follower:
    """Compares rounds with their predecessors; consecutive rounds are each read once."""

    _last: tuple[int, int, StoredRound] | None = field(default=None)

    def forget(self) -> None:
        """Drop the last round, because the next one is not its successor."""
        self._last = None

    def look(
        self,
        round_: Round,
        values: tuple[Snapshot, Decision] | None = None,
        previous: Round | None = None,
    ) -> Following:
        """Return whether a round, read `with_seals`, follows; invalid stored data raises no error.

        `values`: its decoded snapshot and decision, if they were read already. `previous`: the row
        of the previous round, if it was read already.
        """
        before = round_.number - 1
        last, self._last = self._last, None
        try:
            _guard_row(round_)
            stored = StoredRound(*(values or round_values(round_)), round_.superseded)
        except ReplayError as error:
            return Following(before, None, (f"{_sentence(error)}",))
        self._last = round_.pool_id, round_.number, stored
        if before == 0:
            return _of(before, beginning_breaks(stored))
        if last is not None and last[:2] == (round_.pool_id, before):
            return _of(before, breaks(last[2], stored))
        if previous is None or previous.number != before:
            rounds = with_seals(Round.objects.filter(pool_id=round_.pool_id))
            previous = rounds.filter(number=before).first()
        if previous is None:
            return Following(before, False, (NO_ROUND.format(number=before),))
        try:
            _guard_row(previous)
            there = StoredRound(*round_values(previous), previous.superseded)
        except ReplayError as error:
            return Following(before, None, (_sentence(error),))
        return _of(before, breaks(there, stored))


def following_seen(
    round_: Round,
    values: tuple[Snapshot, Decision],
    previous: Round | None,
    visibility: Visibility,
) -> Following:
    """Return whether a round follows; only operators see why not, because it names tenants' sums.

    `values` and `previous` as in `Follower.look`.
    """
    following = Follower().look(round_, values, previous)
    if following.follows is False and not visibility.all_jobs:
        return msgspec.structs.replace(following, why=(UNFOLLOWED,))
    return following


def _guard_row(round_: Round) -> None:
    if damages := row_damages(round_):
        raise DamagedRoundError(round_.number, damages)


def _of(before: int, why: tuple[str, ...]) -> Following:
    return Following(before, not why, why)


def _sentence(error: ReplayError) -> str:
    said = str(error)
    return f"{said[:1].upper()}{said[1:]}."
