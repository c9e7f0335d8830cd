"""A round's place in the log of its pool, and the command that verifies it."""

from typing import Any

from django.utils.translation import gettext as _

from portal.charts.figures import thousands
from portal.charts.page import VerifyPanel
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.rounds.bundles import ChainPlace


def chain_context(
    facts: PoolFacts, number: int, place: ChainPlace | None, verify: VerifyPanel
) -> dict[str, Any]:
    """Return the panel of a round's page; `chain` is None while the round is not sealed."""
    return {
        "chain": place,
        "chain_state": _state(place),
        "chain_text": _text(number, place),
        "verify": verify,
        "bundle_url": (
            f"/api/v1/rounds/{facts.name}/{number}/bundle" if place and place.is_kept else ""
        ),
    }


def _state(place: ChainPlace | None) -> str:
    """Return the panel's mark: `bad`, `warn`, or empty."""
    if place is None:
        return "warn"
    return "bad" if place.damage or place.breaks else ""


def _text(number: int, place: ChainPlace | None) -> str:
    """Return whether the round follows from the one before, as one sentence."""
    if place is None:
        return _("Not sealed yet. A round is sealed within seconds of its end.")
    before = thousands(number - 1)
    if place.damage:
        return _("Sealed as damaged: {damage}.").format(damage=place.damage)
    if place.breaks:
        text = _("It does not follow from round {number}.").format(number=before)
        return f"{text} {' '.join(place.breaks)}"
    if place.is_first:
        return _("The first round of the log.")
    if place.follows is None:
        return _(
            "Round {number} was sealed as damaged, so this round cannot be linked to it."
        ).format(number=before)
    return _("It follows from round {number}.").format(number=before)
