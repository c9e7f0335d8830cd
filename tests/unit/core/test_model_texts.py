"""Test the names of the programs that policies solve."""

from __future__ import annotations

import pytest

from evenshare_core.formulations.problems import ShareRule
from evenshare_core.policies.registry import POLICIES, model_text
from evenshare_core.policies.sharing.base import MODEL_TEXTS

PROGRAMS = {
    "chronus", "gavel", "max_efficiency", "max_min", "oef", "three_sigma", "unisched",
}  # fmt: skip


class TestModelText:
    def test_names_programs_of_policies_that_solve_one(self) -> None:
        assert {name for name in POLICIES if model_text(name, {})} == PROGRAMS

    def test_depends_on_options(self) -> None:
        assert "OEF (10)" in model_text("oef", {})
        assert "OEF (9)" in model_text("oef", {"environment": "noncooperative"})
        assert MODEL_TEXTS.keys() == set(ShareRule)

    @pytest.mark.parametrize(("name", "raw"), [("nowhere", {}), ("oef", {"former": 1})])
    def test_is_empty_for_rounds_of_unknown_policy_or_options(
        self, name: str, raw: dict[str, int]
    ) -> None:
        assert model_text(name, raw) == ""
