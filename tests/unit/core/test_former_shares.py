"""Test that rounds of version 5 of the sharing policies replay to the same bytes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.values import canonical_bytes, sha256_hex
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.registry import policy
from tests.papers.test_sharing_properties import mixed

EQUAL_GAINS = {"environment": "noncooperative"}
# Decisions of version 5, computed by it: policy, options, its version, and the sha256.
RECORDED = [
    ("oef", EQUAL_GAINS, "5 highs 1.15.1", "4809af48ded80f43"),
    ("oef", {}, "5 highs 1.15.1", "6348b744d6b6fe94"),
    ("gavel", {}, "5 highs 1.15.1, 2", "faf9e4a53e3a4ee3"),
    ("max_efficiency", {}, "5 highs 1.15.1", "d0cecd5c32557548"),
]


def decided(name: str, options: dict[str, Any], version: str) -> Decision:
    snapshot = mixed(0, nodes=6, tenants=4, pending=30, fill=0.5, expired=0.5)
    return decide_round(replace(snapshot, policy=name, options=options, policy_version=version))


class TestFormerVersion:
    @pytest.mark.parametrize(("name", "options", "version", "sha256"), RECORDED)
    def test_decides_the_same_bytes(
        self, name: str, options: dict[str, Any], version: str, sha256: str
    ) -> None:
        assert sha256_hex(canonical_bytes(decided(name, options, version)))[:16] == sha256

    @pytest.mark.parametrize(("name", "options"), [("oef", EQUAL_GAINS), ("max_efficiency", {})])
    def test_is_solved_by_highs_and_present_version_by_ortools(
        self, name: str, options: dict[str, Any]
    ) -> None:
        former = decided(name, options, "5 highs 1.15.1").solve
        present = decided(name, options, policy(name).version).solve
        assert former is not None
        assert present is not None
        assert (former.backend, present.backend) == ("fast", "ortools")
        assert former.objective == present.objective

    @pytest.mark.parametrize("name", ["oef", "gavel", "max_min", "max_efficiency"])
    def test_present_version_names_both_solvers(self, name: str) -> None:
        """The database allows 31 characters."""
        version = policy(name).version
        assert version.startswith("6 highs ")
        assert " glop " in version
        assert len(version) <= 31
