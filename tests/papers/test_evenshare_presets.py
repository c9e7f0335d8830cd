"""Test the preset of evenshare with which quotas hold from hour to hour."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from evenshare_core.policies.base import decide_round
from evenshare_core.policies.evenshare.options import EvenshareOptions
from evenshare_core.units import SECOND_US
from tests.papers.evenshare_pools import pool
from tests.unit.core.snapshots import job


class TestHourlyPreset:
    @pytest.mark.parametrize(("window_s", "used_s"), [(86_400, 3_600), (3_601, 3_600), (600, 600)])
    def test_limits_window_to_one_hour(self, window_s: int, used_s: int) -> None:
        options = EvenshareOptions(preset="hourly", window_s=window_s)
        assert options.window_us == used_s * SECOND_US
        assert EvenshareOptions(window_s=window_s).window_us == window_s * SECOND_US
        assert (options.is_tight, options.min_runtime_us) == (False, 300 * SECOND_US)

    def test_decides_as_with_window_of_one_hour(self) -> None:
        an_hour = {"window_s": 3_600}
        made = replace(pool([job(1, 1)], nodes={1: 8}), memory={})
        hour, hourly, day = (
            decide_round(replace(made, options=options))
            for options in (an_hour, {"preset": "hourly"}, {})
        )
        assert hourly == hour
        assert hourly.memory != day.memory
