"""Test that pages translate why a round does not follow, and why an executor fails."""

from __future__ import annotations

import pytest
from django.utils import translation

from scheduling.selectors.rounds.following import WHY

SUMS = (
    "The sums of tenant 2 for v100 are not those that round 1 left: alloc_gpu_us 1,000 instead of"
    " 2,000, baseline 3 marks instead of 2 marks."
)
SUMMEN = (
    "Die Summen von Mandant 2 für v100 sind nicht die, die Runde 1 hinterließ: alloc_gpu_us 1.000"
    " statt 2.000, baseline 3 Markierungen statt 2 Markierungen."
)


@pytest.mark.parametrize(
    ("stated", "german"),
    [
        ("It does not; operators can see the cause.", "Nein; Betreiber sehen die Ursache."),
        (
            "Round 3 posted a price of v100, which is missing.",
            "Runde 3 hängte einen Preis von v100 aus, der fehlt.",
        ),
        (SUMS, SUMMEN),
        ("Round 4 is damaged: its row is bent.", "Runde 4 ist beschädigt: its row is bent."),
        (
            "squeue lists 120,000 jobs; at most 100,000 are watched",
            "squeue listet 120.000 Jobs; höchstens 100.000 werden beobachtet",
        ),
    ],
)
def test_are_translated_with_their_values(stated: str, german: str) -> None:
    with translation.override("de"):
        assert WHY.shown(stated) == german
    assert WHY.shown(stated) == stated
