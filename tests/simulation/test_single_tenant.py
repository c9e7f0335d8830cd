"""Test that the fast run of a single tenant equals a run that calls the policy at every event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evenshare_core.policies.registry import POLICIES
from evenshare_core.simulation import single_tenant
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import Cluster, make_nodes, quotas_by_demand, synthetic
from evenshare_core.units import SECOND_US

WORK = synthetic(seed=11, jobs=150, tenants=4, hours=6, failed=0.1, cancelled=0.1)
STATIC = sorted(name for name, policy in POLICIES.items() if policy.static_queue({}) is not None)
ENDLESS_US = 10**15
ALONE = tuple(
    replace(job, tenant=1, cancel_us=None, estimate_us=None if job.id % 9 == 0 else job.estimate_us)
    for job in WORK.jobs
)


def pool(nodes: int) -> Cluster:
    rows = make_nodes({"v100": nodes}, 8)
    return Cluster(rows, quotas_by_demand(ALONE, rows))


class TestStaticQueue:
    def test_some_policies_have_static_queue(self) -> None:
        assert STATIC

    @pytest.mark.parametrize("policy", STATIC)
    @pytest.mark.parametrize("nodes", [2, 6, 20])
    @pytest.mark.parametrize("options", [{}, {"whole_nodes": False}])
    def test_books_match_full_run(self, policy: str, nodes: int, options: dict[str, Any]) -> None:
        rules = Rules(policy, options, lease_us=ENDLESS_US)
        assert single_tenant.static_queue(pool(nodes), ALONE, rules)
        asked = simulate(pool(nodes), ALONE, rules, fast_forward=False)
        found = simulate(pool(nodes), ALONE, rules)
        assert found.books.sha256() == asked.books.sha256()
        assert (found.rounds, found.stranded) == (asked.rounds, asked.stranded)

    def test_is_not_used_for_other_runs(self) -> None:
        rules = Rules("fifo", lease_us=ENDLESS_US)
        for cluster, jobs, other in (
            (pool(4), WORK.jobs, rules),
            (pool(4), ALONE, replace(rules, lease_us=300 * SECOND_US)),
            (pool(4), ALONE, replace(rules, policy="srtf")),
            (pool(4), ALONE, replace(rules, round_us=SECOND_US)),
            (pool(4), ALONE, replace(rules, options={"backfill": True})),
        ):
            assert single_tenant.static_queue(cluster, jobs, other) is None
