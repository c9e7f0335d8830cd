"""Evenshare without promised starts keeps its guarantee in every round of random pools.

The guarantee is measured without the policy.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Property, Verdict
from evenshare_core.policies.base import certify_round
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import SECOND_US
from tests.papers.mixed_pool import SPEEDS, TYPES, cluster, mixed_workload, profile, rounds
from tests.papers.test_evenshare_properties import played
from tests.patience import few
from tests.unit.core.certificates import line

OPTIONS: tuple[dict[str, Any], ...] = (
    {"promises": False},
    {"promises": False, "preset": "tight"},
    {"promises": False, "window_s": 1_800, "estimates": "given", "min_runtime_s": 100},
)
SEEDS = st.integers(0, 10**6)
ACCEPTED = ((), (), ("k80",), ("p100", "v100"))


def verdict(snapshot: Snapshot, decision: Decision) -> Verdict:
    found = certify_round(snapshot, decision)
    assert not found.failure
    return line(found, Property.QUOTA_GUARANTEE).verdict


def mixed(seed: int) -> tuple[Cluster, list[SimJob]]:
    """Draw a pool of three GPU types and node sizes, with limits; jobs accept some or all types."""
    rng = random.Random(seed)  # noqa: S311 - a seeded pool, not a secret
    jobs = [
        replace(
            job,
            gpus=rng.choice((1, 1, 2, 3, 4)),
            gpu_types=rng.choice(ACCEPTED),
            duration_us=rng.choice((300, 900, 3_600, 7_200)) * SECOND_US,
        )
        for job in mixed_workload(seed, jobs=150, hours=3).jobs
    ]
    profiles = [profile(tenant, tenant, *SPEEDS[tenant - 1]) for tenant in (1, 2, 3)]
    made = cluster([[4, 4], [4, 2], [8]], {}, [*profiles, profile(4, 4, 0, 1_000, 2_000)])
    quotas = tuple(
        Entitlement(
            tenant,
            gpu_type,
            rng.randint(0, 5),
            rng.choice(list(Mode)),
            rng.choice((None, None, 0, 2)),
            rng.choice((None, None, 0, 1)),
        )
        for tenant in range(1, 5)
        for gpu_type in TYPES
    )
    return replace(made, quotas=quotas), jobs


@settings(max_examples=few())
@given(SEEDS, st.sampled_from(OPTIONS))
def test_guarantee_holds_in_crowded_pool(seed: int, options: dict[str, Any]) -> None:
    for asked, decision, _ in played(seed, (1, 1, 2, 3, 4, 5, 8), **options):
        assert verdict(asked, decision) is not Verdict.VIOLATED


@settings(max_examples=few())
@given(SEEDS, st.sampled_from(OPTIONS))
def test_guarantee_holds_with_several_gpu_types_and_limits(
    seed: int, options: dict[str, Any]
) -> None:
    pool, jobs = mixed(seed)
    played_rounds = rounds(pool, jobs, 90, "evenshare", round_min=1, lease_min=15, options=options)
    for asked, decision, _ in played_rounds:
        assert verdict(asked, decision) is not Verdict.VIOLATED


def test_rounds_include_guarantee_preemptions() -> None:
    """In many of these rounds some jobs are owed GPUs, and leases end for these jobs."""
    seen: Counter[str] = Counter()
    for asked, decision, _ in played(1, (1, 1, 2, 3, 4, 5, 8), preset="tight", promises=False):
        seen[verdict(asked, decision)] += 1
        seen.update({row.rule.value for row in decision.preemptions})
    assert min(seen[Verdict.HOLDS], seen[Verdict.NOT_APPLICABLE], seen["guarantee"]) > 3
