"""Test the largest size of a job for which smaller sizes are offered."""

from __future__ import annotations

import pytest

from portal.jobs.views.feasibility import most_gpus
from scheduling.selectors.pools.offers import PoolOffer

OFFER = PoolOffer(1, "mixed", "virtual", False, "main", 900, 10, {"k80": 4, "v100": 8, "t4": 0})


class TestLargestSize:
    @pytest.mark.parametrize(
        ("accepted", "most"),
        [(None, 8), ([], 8), (["k80"], 4), (["k80", "v100"], 8), (["t4"], 0), (["h100"], 0)],
    )
    def test_depends_on_accepted_gpu_types(self, accepted: list[str] | None, most: int) -> None:
        assert most_gpus({} if accepted is None else {"gpu_types": accepted}, OFFER) == most
