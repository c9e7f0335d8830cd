"""Test that the reason of a job that accepts several GPU types covers all of them."""

from __future__ import annotations

from typing import ClassVar

import pytest

from evenshare_core.domain.reasons import Reason
from evenshare_core.units import HOUR_US
from scheduling.selectors.jobs.reasons import why

KNOWN = {"gpu_type": "k80", "needed": 4, "free": 2}


@pytest.mark.parametrize(
    ("reason", "numbers"),
    [
        (Reason.NO_FREE_GPUS, KNOWN),
        (Reason.LEASE_TURN, {**KNOWN, "own_rho": 0.5, "served_rho": 0.2}),
        (Reason.LEASE_TURN, {**KNOWN, "own_rho": None, "served_rho": None}),
    ],
)
def test_reason_names_its_type_and_other_types(reason: Reason, numbers: dict[str, object]) -> None:
    alone = why(reason.value, numbers).sentence
    text = why(reason.value, {**numbers, "other_types": ["p100", "v100"]}).sentence
    assert text == f"On k80: {alone} It could not start on p100 or v100 either."


def turn(**numbers: object) -> str:
    return why(Reason.LEASE_TURN.value, {"gpu_type": "v100", "needed": 4, **numbers}).sentence


class TestTurnReason:
    """Each policy's numbers have a sentence; without one of them, the sentence is generic."""

    SUMS: ClassVar[dict[str, object]] = {
        "received_gpu_us": 9 * HOUR_US, "deserved_gpu_us": 4 * HOUR_US, "own_ratio": 2.25,
    }  # fmt: skip

    def test_shows_rho(self) -> None:
        assert "or of its own tenant. Its tenant has received 2.12" in turn(own_rho=2.12)

    def test_shows_received_and_deserved_gpu_hours_of_tenant(self) -> None:
        text = turn(**self.SUMS)
        assert "9.00 of 4.00 GPU-hours, a ratio of 2.25" in text
        assert "it has received" not in text

    def test_shows_gpu_hours_of_job(self) -> None:
        text = turn(**self.SUMS, attained_gpu_us=HOUR_US // 2)
        assert text.endswith("it has received 0.50 GPU-hours.")

    def test_shows_gpus_held_by_tenant(self) -> None:
        assert "holds 1 GPU of a share of 4." in turn(held=1, share=4)

    def test_mentions_lease_that_ended_early(self) -> None:
        assert "ended before its expiry" in turn(**self.SUMS, preempted=True)

    @pytest.mark.parametrize("missing", ["received_gpu_us", "deserved_gpu_us", "own_ratio"])
    def test_is_generic_if_number_is_missing(self, missing: str) -> None:
        known = {name: value for name, value in self.SUMS.items() if name != missing}
        assert turn(**known) == why(Reason.LEASE_TURN.value).sentence
