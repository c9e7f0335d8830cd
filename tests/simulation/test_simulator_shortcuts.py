"""Shortcuts of the simulator give what asking the policy in every round gives."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from evenshare_core.policies.registry import POLICIES
from evenshare_core.simulation import strict_queue
from evenshare_core.simulation.resting import FORGETS, Resting
from evenshare_core.simulation.simulator import simulate
from evenshare_core.simulation.workloads import Cluster, make_nodes, quotas_by_demand, synthetic
from evenshare_core.simulation.world import Rules, World
from evenshare_core.units import SECOND_US

WORK = synthetic(seed=11, jobs=150, tenants=4, hours=6, failed=0.1, cancelled=0.1)
LEASE_US = 300 * SECOND_US


def pool(nodes: int) -> Cluster:
    rows = make_nodes({"v100": nodes}, 8)
    quotas = quotas_by_demand(WORK.jobs, rows)
    # Unequal to what tenants ask, so that they borrow.
    return Cluster(
        rows,
        tuple(
            msgspec.structs.replace(row, gpus=row.gpus // (1 + row.tenant % 2)) for row in quotas
        ),
    )


class TestResting:
    @pytest.mark.parametrize("policy", sorted(FORGETS))
    @pytest.mark.parametrize(("nodes", "round_s"), [(6, 10), (6, 0), (14, 10)])
    def test_gives_the_same_books_and_sums(self, policy: str, nodes: int, round_s: int) -> None:
        rules = Rules(
            policy, round_us=round_s * SECOND_US, lease_us=LEASE_US, cold_us=20 * SECOND_US,
            checkpoint_us=SECOND_US,
        )  # fmt: skip
        asked = simulate(pool(nodes), WORK.jobs, rules, shortcuts=False)
        found = simulate(pool(nodes), WORK.jobs, rules)
        assert found.books.sha256() == asked.books.sha256()
        assert found.rounds == asked.rounds
        assert found.books.earned == asked.books.earned
        assert found.books.earned or policy == "yarn_cs"  # it borrows for oversized gangs only

    def test_is_known_for_policies_that_exist(self) -> None:
        assert set(FORGETS) <= set(POLICIES)

    def test_does_not_suit_where_a_renewal_could_be_refused(self) -> None:
        jobs = (replace(WORK.jobs[0], max_price_micro=1), *WORK.jobs[1:])
        assert Resting.suits(World(pool(6), WORK.jobs, Rules()))
        assert not Resting.suits(World(pool(6), jobs, Rules()))
        window = Rules(options={"fairness_window_s": 3600})
        assert not Resting.suits(World(pool(6), WORK.jobs, window))


class TestAStrictQueue:
    ALONE = tuple(
        replace(
            job, tenant=1, cancel_us=None, estimate_us=None if job.id % 9 == 0 else job.estimate_us
        )
        for job in WORK.jobs
    )

    def pool(self, nodes: int) -> Cluster:
        rows = make_nodes({"v100": nodes}, 8)
        return Cluster(rows, quotas_by_demand(self.ALONE, rows))

    @pytest.mark.parametrize("policy", sorted(strict_queue.ORDERS))
    @pytest.mark.parametrize("nodes", [2, 6, 20])
    def test_gives_the_same_books(self, policy: str, nodes: int) -> None:
        rules = Rules(policy, lease_us=10**15)
        assert strict_queue.suits(self.pool(nodes), self.ALONE, rules)
        asked = simulate(self.pool(nodes), self.ALONE, rules, shortcuts=False)
        found = simulate(self.pool(nodes), self.ALONE, rules)
        assert found.books.sha256() == asked.books.sha256()
        assert (found.rounds, found.stranded) == (asked.rounds, asked.stranded)

    def test_does_not_suit_other_runs(self) -> None:
        rules = Rules("fifo", lease_us=10**15)
        pool = self.pool(4)
        assert not strict_queue.suits(pool, WORK.jobs, rules)
        assert not strict_queue.suits(pool, self.ALONE, Rules("fifo", lease_us=LEASE_US))
        assert not strict_queue.suits(pool, self.ALONE, replace(rules, policy="srtf"))
        assert not strict_queue.suits(pool, self.ALONE, replace(rules, round_us=SECOND_US))
