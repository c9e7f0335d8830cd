"""Test the lookup of policies by name, and errors that name the field of an invalid option."""

from __future__ import annotations

import re
from typing import Any

import pytest

from evenshare_core.policies import registry
from evenshare_core.policies.ltgf.options import PAPER_EVALUATION, LtgfOptions
from evenshare_core.policies.options import OptionError


class TestPolicy:
    def test_is_found_by_name(self) -> None:
        assert registry.policy("ltgf").name == "ltgf"

    def test_unknown_name_error_lists_known_names(self) -> None:
        with pytest.raises(registry.UnknownPolicyError, match="'lottery'; known are "):
            registry.policy("lottery")


class TestOptions:
    def test_defaults_are_work_conserving_with_reservations(self) -> None:
        options = registry.options("ltgf", {})
        assert options == LtgfOptions(work_conserving=True, reserve_after_leases=2)

    def test_papers_settings_are_a_preset(self) -> None:
        raw = {
            "work_conserving": False,
            "tenant_share": "quota",
            "new_jobs_first": True,
            "reserve_after_leases": 0,
        }
        assert registry.options("ltgf", raw) == PAPER_EVALUATION

    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            ({"leese": 1}, "leese: unknown option; known are"),
            (
                {"reserve_after_leases": -1},
                "reserve_after_leases: Enter a whole number from 0 to 1,000.",
            ),
            ({"tenant_share": "all"}, "tenant_share: Choose one of demand, quota."),
            ({"work_conserving": "yes"}, "work_conserving: Use true or false."),
            (
                {"fairness_window_s": 1.5},
                "fairness_window_s: Enter a whole number from 0 to 316,224,000.",
            ),
        ],
    )
    def test_errors_name_the_field(self, raw: dict[str, Any], message: str) -> None:
        with pytest.raises(OptionError, match=re.escape(message)):
            registry.options("ltgf", raw)

    def test_window_is_converted_to_microseconds(self) -> None:
        assert LtgfOptions(fairness_window_s=2).fairness_window_us == 2_000_000
        assert LtgfOptions().fairness_window_us == 0
