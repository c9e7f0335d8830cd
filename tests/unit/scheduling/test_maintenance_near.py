"""Test the time from which maintenance prevents new leases, as pages show it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduling.models import MaintenanceWindow, PoolClock
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.pools.nodes import near_of

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("policy", "options", "lease_s", "ahead_s"),
    [
        ("ltgf", {}, 60, 70),
        ("evenshare", {}, 60, 310),  # a lease is protected for its minimum runtime
        ("evenshare", {"preset": "tight"}, 60, 70),
        ("evenshare", {}, 900, 910),
        ("gone", {}, 60, 70),
    ],
)
def test_maintenance_is_near_if_new_term_could_overlap(
    policy: str, options: dict[str, Any], lease_s: int, ahead_s: int
) -> None:
    facts = PoolFacts(
        id=1, name="p", policy=policy, round_s=10, lease_s=lease_s,
        longest_lease_s=lease_s, book="main", clock=PoolClock(scale=1), wall=NOW,
        checked_at=None, number=None, at=None, wall_at=None,
        nodes=1, gpus=8, options=json.dumps(options),
    )  # fmt: skip
    windows = [
        MaintenanceWindow(starts_at=NOW + timedelta(seconds=ahead_s + late)) for late in (-1, 0)
    ]
    assert near_of(windows, facts, NOW) == windows[:1]
