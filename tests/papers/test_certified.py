"""Test that every policy keeps its promises in rounds of random pools, measured independently."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Property, Verdict
from evenshare_core.fairness.certify import BUDGET
from evenshare_core.fairness.measure import Measured
from evenshare_core.fairness.misreports import misreports_of, probe_row, profile_of
from evenshare_core.fairness.properties import Probe
from evenshare_core.policies.base import certify_round, decide_round, round_ideals
from tests.papers.mixed_pool import mixed_cluster, queue, rounds
from tests.papers.test_sharing_properties import mixed
from tests.unit.core.certificates import line

P = Property
SHARING: dict[str, tuple[str, dict[str, Any], set[Property]]] = {
    "cooperative": ("oef", {}, {P.ENVY_FREE, P.SHARING_INCENTIVE}),
    "noncooperative": ("oef", {"environment": "noncooperative"}, {P.EQUAL_THROUGHPUT}),
    "gavel": ("gavel", {"time_fractions": False}, {P.SHARING_INCENTIVE}),
    "max_min": ("max_min", {}, {P.SHARING_INCENTIVE}),
    "max_efficiency": ("max_efficiency", {}, {P.PARETO}),
}


# If a cap applies, Gavel promises nothing, so the queues are long enough that no cap applies.
LONG_QUEUES = {"gavel"}


def random_round(seed: int, longer: int = 1) -> Snapshot:
    """Draw a pool of three types, with job types, weights, and jobs of one, some or all types."""
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
def test_sharing_policy_keeps_promises(name: str) -> None:
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
    # Rows whose tenants lack GPUs were compared, so the check is not empty.
    assert all(checked[one] > 50 for one in promised)


def one_type_each(environment: str) -> list[tuple[Snapshot, Any]]:
    """Return rounds of four tenants with a job type each, and more jobs than GPUs."""
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


def searched(snapshot: Snapshot, decision: Decision) -> tuple[list[Probe], list[Probe]]:
    """Return all misreports of all rows, first those above the truth, then those below it."""
    measured = Measured(snapshot, decision, frozenset())
    over, under = list[Probe](), list[Probe]()
    for place, (_, profile) in enumerate(measured.judged.rows):
        both = misreports_of(profile_of(snapshot, profile), measured.judged.gpu_types)
        over += probe_row(measured, place, both[0], round_ideals)
        under += probe_row(measured, place, both[1], round_ideals)
    return over, under


class TestMisreports:
    def test_overstating_never_gains_in_noncooperative_oef(self) -> None:
        """Each round tries another tenant; the promise is proven for one job type per tenant."""
        tried = set()
        for snapshot, decision in one_type_each("noncooperative"):
            found = certify_round(snapshot, decision)
            row = line(found, P.OVERSTATING)
            assert (found.failure, row.verdict, row.checked) == ("", Verdict.HOLDS, BUDGET)
            assert (row.of, row.bound) == (15, "OEF (Middleware 2024), theorem 5.4")
            tried.add(row.tenant)
        assert len(tried) == 4

    def test_overstating_never_gains_for_any_factor_and_type(self) -> None:
        """Search for a counterexample: each type or all types, by factors up to four."""
        snapshot, decision = one_type_each("noncooperative")[0]
        over, under = searched(snapshot, decision)
        assert len(over) == 4 * 15
        assert max(probe.gain for probe in over) < 1e-4
        assert max(probe.gain for probe in under) > 0.1

    def test_understating_may_gain_and_is_not_promised(self) -> None:
        lines = [
            line(certify_round(*pair), P.UNDERSTATING) for pair in one_type_each("noncooperative")
        ]
        assert {row.verdict for row in lines} == {Verdict.NOT_PROMISED}
        assert {row.bound for row in lines} == {""}
        assert max(row.worst or 0 for row in lines) > 0.1

    def test_overstating_is_not_promised_in_cooperative_oef(self) -> None:
        lines = [line(certify_round(*pair), P.OVERSTATING) for pair in one_type_each("cooperative")]
        assert {row.verdict for row in lines} == {Verdict.NOT_PROMISED}
        assert all((row.checked, row.of, row.bound) == (BUDGET, 15, "") for row in lines)

    def test_rounds_together_equal_full_search(self) -> None:
        snapshot, decision = one_type_each("cooperative")[0]
        over, _ = searched(snapshot, decision)
        rows, turns = 4, 8
        found = [
            line(certify_round(replace(snapshot, number=number), decision), P.OVERSTATING)
            for number in range(rows * turns)
        ]
        best = max(over, key=lambda probe: probe.gain)
        seen = max(found, key=lambda row: row.worst or 0)
        assert seen.worst == pytest.approx(best.gain, abs=1e-6)
        assert (seen.gpu_type, seen.factor) == (best.gpu_type, best.factor)
        assert best.factor > 1.25  # trying only the factor 1.25 does not find this gain
