"""A job that accepts several GPU types is told of all of them, whatever else is known."""

from __future__ import annotations

import pytest

from evenshare_core.domain.reasons import Reason
from scheduling.selectors.reasons import why

KNOWN = {"gpu_type": "k80", "needed": 4, "free": 2}


@pytest.mark.parametrize(
    ("reason", "numbers"),
    [
        (Reason.NO_FREE_GPUS, KNOWN),
        (Reason.LEASE_TURN, {**KNOWN, "own_rho": 0.5, "served_rho": 0.2}),
        (Reason.LEASE_TURN, {**KNOWN, "own_rho": None, "served_rho": None}),
    ],
)
def test_names_the_type_and_the_others(reason: Reason, numbers: dict[str, object]) -> None:
    alone = why(reason.value, numbers).sentence
    told = why(reason.value, {**numbers, "other_types": ["p100", "v100"]}).sentence
    assert told == f"On k80: {alone} It could not start on p100 or v100 either."
