"""Rounds that HiGHS solved under former versions of policies still have the same bytes."""

from __future__ import annotations

from random import Random

import pytest

from evenshare_core.domain.values import canonical_bytes, sha256_hex
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.registry import POLICIES
from tests.papers.deadline_pools import asked

# The hash of all decisions together, as the former versions made them with HiGHS 1.15.1.
FORMER = {
    ("unisched", "3", "highs"): "368110a99a64d673c8af86582e4eb1f09fcf4f94ac2f7882b24f0b3ac4bc15ee",
    (
        "chronus",
        "1",
        "selector",
    ): "003500ad39e925a0d57983dd64f04c068879d5daaf172ac0f8655b819dabf813",
    (
        "three_sigma",
        "1",
        "start_slots",
    ): "f6e22b04934e2d7f038a52fd6f8ae1b7e22ae0cba1dc15aa2ea5e5946e91be58",
}


def rows(seed: int) -> list[tuple[int, int | None, tuple[int, ...]]]:
    """Draw jobs, most of them with deadlines, that do not all fit on 4 GPUs in time."""
    rng = Random(seed)  # noqa: S311 - a test's seed
    drawn: list[tuple[int, int | None, tuple[int, ...]]] = []
    for _ in range(rng.randrange(6, 12)):
        gpus, estimate_s = rng.choice((1, 2, 3, 4)), rng.randrange(600, 20_000)
        first = int(estimate_s * rng.uniform(1.0, 2.5))
        ends = rng.choice(((), (first,), (first, 2 * first)))
        drawn.append((gpus, estimate_s, ends))
    return drawn


class TestFormerVersion:
    @pytest.mark.parametrize(("policy", "version", "backend"), FORMER)
    def test_has_the_same_bytes(self, policy: str, version: str, backend: str) -> None:
        decided = [
            decide_round(asked(policy, *rows(seed), policy_version=version)) for seed in range(6)
        ]
        solved = [row.solve.backend for row in decided if row.solve is not None]
        assert set(solved) == {backend}
        hashes = [sha256_hex(canonical_bytes(row)) for row in decided]
        assert sha256_hex(canonical_bytes(hashes)) == FORMER[policy, version, backend]
        assert POLICIES[policy].decides_as(version)

    @pytest.mark.parametrize("policy", [policy for policy, _, _ in FORMER])
    def test_of_today_is_solved_by_ortools(self, policy: str) -> None:
        drawn = [asked(policy, *rows(seed)) for seed in range(2)]
        decided = [decide_round(row) for row in drawn]
        assert {row.solve.backend for row in decided if row.solve is not None} == {"ortools"}
        assert decided == [decide_round(row) for row in drawn]
