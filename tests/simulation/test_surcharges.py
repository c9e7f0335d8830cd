"""Test that surcharges of kept rounds and skipped rounds give the same prices."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from evenshare_core.domain.snapshot import Surcharge
from evenshare_core.policies.registry import POLICIES
from evenshare_core.simulation.fast_forward import Rounds
from evenshare_core.simulation.simulator import SimulationResult, run, simulate
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob, make_nodes
from evenshare_core.units import CREDIT_MICRO, HOUR_US, MINUTE_US, SECOND_US
from tests.simulation.test_fast_forward import KEPT, ROUNDS, WORK, drawn, pool, told

ON = tuple(Surcharge(name, 50, 3000) for name in ("k80", "v100"))


def with_surcharges(cluster: Cluster) -> Cluster:
    types = {node.gpu_type for node in cluster.nodes}
    return replace(cluster, surcharges=tuple(row for row in ON if row.gpu_type in types))


def both(policy: str, seed: int, seen: Counter[str]) -> None:
    """Run two states in parallel, as in test_fast_forward, with prices that follow the queue."""
    cluster, jobs, rules = drawn(policy, seed)
    if seed % 2:  # some rounds take place between the rounds of the grid, like rounds on demand
        rules = replace(rules, round_us=2 * rules.round_us)
    cluster = with_surcharges(cluster)
    asked, kept = SimulationState(cluster, jobs, rules), SimulationState(cluster, jobs, rules)
    ask, keep = Rounds(asked, fast_forward=False), Rounds(kept)
    for step in range(ROUNDS):
        at_us = step * rules.round_us // (1 + seed % 2)
        asked.advance(at_us)
        kept.advance(at_us)
        if asked.is_quiet:
            assert kept.is_quiet
            continue
        before = kept.surcharges
        assert ask.run() == keep.run()
        assert told(kept) == told(asked)
        assert kept.surcharges == asked.surcharges
        for old, new in zip(before, kept.surcharges, strict=True):
            change = new.surcharge_micro - old.surcharge_micro
            assert abs(change) <= CREDIT_MICRO * new.step_milli // 1000
            assert 0 <= new.surcharge_micro <= CREDIT_MICRO * new.cap_milli // 1000
            seen["rises" if change > 0 else "falls" if change < 0 else "stands"] += 1
            seen["queued"] += bool(new.queued)


class TestKeptRounds:
    @pytest.mark.parametrize(
        "policy", [name for name in KEPT if not POLICIES[name].traits.clears_prices]
    )
    def test_post_same_prices_as_full_snapshot(self, policy: str) -> None:
        seen: Counter[str] = Counter()
        for seed in range(6):
            both(policy, seed, seen)
        assert min(seen["rises"], seen["falls"], seen["stands"], seen["queued"]) > 20, seen


Prices = list[tuple[int, tuple[int, ...]]]


def course(cluster: Cluster, jobs: tuple[SimJob, ...], rules: Rules, until_us: int) -> Prices:
    """Return the posted prices and their times, only where they changed."""
    state = SimulationState(cluster, jobs, rules)
    result, posted = SimulationResult(state.books, 0, 0), Prices()

    def look(_: int) -> None:
        prices = tuple(row.price_micro for row in state.prices)
        if not posted or posted[-1][1] != prices:
            posted.append((state.last_us, prices))

    run(state, result, until_us=until_us, progress=look)
    posted.append((result.rounds, tuple(row.price_micro for row in state.prices)))
    return posted


class TestSkippedRounds:
    @pytest.mark.parametrize("policy", ["evenshare", "ltgf", "srtf", "fifo"])
    def test_are_skipped_only_while_prices_are_constant(
        self, policy: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rules = Rules(policy, round_us=5 * SECOND_US, lease_us=30 * MINUTE_US)
        go = partial(course, with_surcharges(pool(2)), WORK.jobs, rules, 6 * HOUR_US)
        skipping = go()
        with monkeypatch.context() as without:
            without.setattr(Rounds, "pass_over", lambda *_: 0)
            assert go() == skipping
        assert len({prices for _, prices in skipping}) > 20

    def test_are_not_skipped_while_price_falls(self) -> None:
        """Job 1 runs for an hour; job 2 waits for half of it, then is cancelled."""
        nodes = make_nodes({"v100": 1}, 8)
        jobs = (
            SimJob(1, 1, 8, SECOND_US, HOUR_US),
            SimJob(2, 2, 8, SECOND_US, HOUR_US, cancel_us=30 * MINUTE_US),
        )
        rules = Rules("fifo", round_us=MINUTE_US, lease_us=2 * HOUR_US)
        cluster = with_surcharges(Cluster(nodes, ()))
        posted = course(cluster, jobs, rules, HOUR_US - 1)
        prices = [prices[0] for _, prices in posted[:-1]]
        assert prices[:4] == [0, 1_050_000, 1_100_000, 1_150_000]
        assert max(prices) == 2_450_000  # 30 minutes later; 8 queued GPUs add up to 2.0 credits
        assert prices[-1] == CREDIT_MICRO
        instants = [at_us for at_us, _ in posted[:-1]]
        assert {b - a for a, b in pairwise(instants)} == {MINUTE_US}

    def test_do_not_end_run_waiting_for_lower_price(self) -> None:
        """Tenant 2 pays at most 1.2.

        The queue of tenant 3 raised the price above 1.2, and then left.
        """
        nodes = make_nodes({"v100": 1}, 8)
        jobs = (
            SimJob(1, 1, 8, 0, 30 * MINUTE_US),
            SimJob(2, 2, 8, MINUTE_US, 10 * MINUTE_US, max_price_micro=1_200_000),
            SimJob(3, 3, 8, 0, HOUR_US, cancel_us=29 * MINUTE_US),
        )
        rules = Rules("fifo", round_us=MINUTE_US, lease_us=2 * HOUR_US)
        result = simulate(with_surcharges(Cluster(nodes, ())), jobs, rules)
        assert result.stranded == ()
        (row,) = [row for row in result.books.jobs if row.job == 2]
        assert row.start_us == 34 * MINUTE_US  # an empty pool still costs the surcharge
