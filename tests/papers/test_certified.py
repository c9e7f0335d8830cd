"""Every policy keeps what it promises: rounds of random pools, measured apart from the policies."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Property, Verdict
from evenshare_core.fairness.certify import FACTORS
from evenshare_core.policies.base import certify_round, decide_round
from tests.papers.mixed_pool import mixed_cluster, queue, rounds
from tests.papers.test_sharing_properties import mixed
from tests.unit.core.certificates import line

P = Property
SHARING: dict[str, tuple[str, dict[str, Any], set[Property]]] = {
    "cooperative": ("oef", {}, {P.ENVY_FREE, P.SHARING_INCENTIVE}),
    "noncooperative": ("oef", {"environment": "noncooperative"}, {P.EQUAL_THROUGHPUT}),
    "gavel": ("gavel", {}, {P.SHARING_INCENTIVE}),
    "max_min": ("max_min", {}, {P.SHARING_INCENTIVE}),
    "max_efficiency": ("max_efficiency", {}, {P.PARETO}),
}


# Where a cap binds, Gavel promises nothing: its rounds have queues that no row comes to the end of.
LONG_QUEUES = {"gavel"}


def random_round(seed: int, longer: int = 1) -> Snapshot:
    """A pool of three types with job types, weights, and jobs that accept one type, some or any."""
    rng = random.Random(seed)  # noqa: S311 - a seeded pool, not a secret
    return mixed(
        seed,
        nodes=rng.randint(3, 9),
        tenants=rng.randint(2, 5),
        pending=longer * rng.randint(20, 60),
        fill=rng.choice((0.0, 0.5, 1.0)),
        expired=rng.choice((0.0, 0.3, 1.0)),
    )


@pytest.mark.parametrize("name", SHARING)
def test_a_sharing_policy_keeps_its_promises(name: str) -> None:
    policy, options, promised = SHARING[name]
    checked: Counter[Property] = Counter()
    for seed in range(25):
        drawn = random_round(seed, 6 if name in LONG_QUEUES else 1)
        snapshot = replace(drawn, policy=policy, options=options)
        found = certify_round(snapshot, decide_round(snapshot))
        assert (found.failure, found.violated) == ("", ()), f"seed {seed}"
        for row in found.findings:
            if row.verdict is Verdict.HOLDS and row.name in promised:
                checked[row.name] += row.checked
    # It holds of something: rows that lack GPUs were compared.
    assert all(checked[one] > 50 for one in promised)


def one_type_each(environment: str) -> list[tuple[Snapshot, Any]]:
    """Rounds of four tenants with a job type each, and more jobs than GPUs."""
    jobs = [
        job
        for tenant in range(1, 5)
        for job in queue(tenant, 30, profile=tenant, first=100 * tenant)
    ]
    pool = mixed_cluster()
    return [
        (snapshot, decision)
        for snapshot, decision, _ in rounds(pool, jobs, 4, options={"environment": environment})
    ]


class TestMisreports:
    def test_upwards_do_not_pay_without_cooperation(self) -> None:
        """Each round tries another tenant; with one job type each it is promised."""
        tried = set()
        for snapshot, decision in one_type_each("noncooperative"):
            found = certify_round(snapshot, decision)
            row = line(found, P.OVERSTATING)
            assert (found.failure, row.verdict, row.checked) == ("", Verdict.HOLDS, 1)
            tried.add(row.tenant)
        assert len(tried) == 4

    def test_downwards_may_pay_and_are_not_promised(self) -> None:
        lines = [
            line(certify_round(*pair), P.UNDERSTATING) for pair in one_type_each("noncooperative")
        ]
        assert {row.verdict for row in lines} == {Verdict.NOT_PROMISED}
        assert max(row.worst or 0 for row in lines) > 0.1

    def test_upwards_may_pay_with_cooperation_and_are_not_promised(self) -> None:
        lines = [line(certify_round(*pair), P.OVERSTATING) for pair in one_type_each("cooperative")]
        assert {row.verdict for row in lines} == {Verdict.NOT_PROMISED}
        assert all(row.checked == sum(factor > 1 for factor in FACTORS) for row in lines)
