"""Idle GPUs of evenshare while jobs wait: few are held for promises, and none without a reason."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import ONE_TYPE, Cluster, SimJob, make_nodes
from evenshare_core.units import SECOND_US
from tests.simulation.idle_gpus import (
    FAULT,
    NEXT_ROUND,
    PROMISED,
    TOO_FEW,
    Usable,
    account_for,
)
from tests.simulation.promise_adversary import JobSpec, drawn
from tests.simulation.test_promised_starts import GANG, NOTEBOOK, state_of, stream

HOUR_S, DAY_US = 3600, 86_400 * SECOND_US


def lent_pool(
    policy: str, seed: int, *, gangs: int = 4, small: int = 3, nodes: int = 2
) -> SimulationState:
    """Draw long jobs of two tenants without quota: gangs of 8 GPUs first, then jobs of 1 GPU."""
    rng = random.Random(seed)  # noqa: S311 - a seeded workload, not a secret
    rows = [(rng.randrange(600), 8) for _ in range(gangs)]
    rows += [(rng.randrange(600, HOUR_S), 1) for _ in range(small)]
    jobs = tuple(
        SimJob(
            number, rng.randint(1, 2), gpus, at_s * SECOND_US,
            rng.randint(6, 15) * HOUR_S * SECOND_US,
        )
        for number, (at_s, gpus) in enumerate(sorted(rows), 1)
    )  # fmt: skip # rows of what belongs together
    owner = Entitlement(3, ONE_TYPE, 8 * nodes)
    quotas = (*(Entitlement(tenant, ONE_TYPE, 0) for tenant in (1, 2)), owner)
    rules = Rules(policy, {}, 10 * SECOND_US, 900 * SECOND_US, cold_us=30 * SECOND_US)
    return SimulationState(Cluster(make_nodes({ONE_TYPE: nodes}, 8), quotas), jobs, rules)


class TestGangCases:
    @pytest.mark.parametrize(
        ("quotas", "jobs"),
        [
            ((8, 8), [GANG, NOTEBOOK, *stream(2, 90)]),
            ((8, 8), [GANG, *stream(1, 90)]),
        ],
        ids=["beside notebook", "own stream"],
    )
    def test_promises_hold_back_little(self, quotas: tuple[int, int], jobs: list[JobSpec]) -> None:
        account = account_for(state_of(quotas, jobs), DAY_US)
        assert account.percent(PROMISED) <= 1
        assert account.percent(NEXT_ROUND) <= 0.1
        assert account.percent(FAULT) == 0


class TestBestEffort:
    """Small jobs without quota stay on a node, and leave too few GPUs there for gangs."""

    @pytest.mark.parametrize(("policy", "least", "most"), [("evenshare", 15, 25), ("fifo", 0, 0)])
    def test_too_few_gpus_are_left_beside_small_jobs(
        self, policy: str, least: float, most: float
    ) -> None:
        account = account_for(lent_pool(policy, 1), DAY_US)
        assert least <= account.percent(TOO_FEW) <= most
        assert account.percent(FAULT) == account.percent(PROMISED) == 0


class TestDrawnPools:
    def test_every_idle_gpu_has_a_reason(self) -> None:
        """The adversary's pools have one or two nodes, where promises hold more of the GPUs."""
        total: Counter[str] = Counter()
        for seed in range(20):
            case = drawn(random.Random(seed))  # noqa: S311 - seeded pools, not secrets
            account = account_for(case.state(), case.until_s * SECOND_US)
            assert account.gpu_us[FAULT] == 0, f"seed {seed}"
            total.update(account.gpu_us)
        assert 0 < total[PROMISED] / total["all"] < 0.02
        assert total[NEXT_ROUND] / total["all"] < 0.001


class TestUsable:
    def test_gang_fits_on_one_node_or_over_several(self) -> None:
        usable = Usable({1: 3, 2: 5, 3: 0}, 8, {4})
        assert [usable.has_use(node) for node in (1, 2, 3)] == [False, True, False]
        assert Usable({1: 4, 2: 5}, 8, {9}).has_use(1)
        assert not Usable({1: 4}, 8, set()).has_use(1)

    def test_smaller_gang_that_fails_keeps_larger_one_out(self) -> None:
        usable = Usable({1: 4, 2: 5}, 8, {8, 9})
        assert usable.spans
        assert not usable.has_use(1)
        assert not Usable({1: 3, 2: 5}, 8, {8, 9}).spans
