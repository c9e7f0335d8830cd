"""Test that rounds skipped while jobs wait would have granted nothing and left the same memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.placement.consolidated import FreeGpus
from evenshare_core.policies.evenshare.calm import Calm
from evenshare_core.policies.evenshare.session import IncrementalEvenshare
from evenshare_core.policies.ltgf.policy import IncrementalLtgf
from evenshare_core.policies.ltgf.quiet import CalmQueues
from evenshare_core.policies.shared.session import KeptRound
from evenshare_core.simulation.fast_forward import Rounds
from evenshare_core.simulation.simulator import SimulationResult, run
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob, make_nodes, quotas_by_demand
from evenshare_core.units import SECOND_US
from tests.simulation.test_fast_forward import WORK, drawn, pool
from tests.unit.core.snapshots import lease

Done = tuple[SimulationState, SimulationResult, dict[tuple[str, str], int]]
HOUR_US = 3600 * SECOND_US
# The cases cover the options of each policy in test_fast_forward, and pools with and without churn,
# limits and several GPU types.
SEEDS = range(8)


def of_one_type(cluster: Cluster, jobs: tuple[SimJob, ...]) -> tuple[Cluster, tuple[SimJob, ...]]:
    """Return the same nodes as one GPU type, which every job accepts."""
    nodes = tuple(with_fields(node, gpu_type="v100") for node in cluster.nodes)
    jobs = tuple(replace(job, gpu_types=()) for job in jobs)
    quotas = quotas_by_demand(jobs, nodes)
    return replace(cluster, nodes=nodes, quotas=quotas), jobs


def remembered(
    state: SimulationState, result: SimulationResult, until_us: int
) -> dict[tuple[str, str], int]:
    """Run a state, and return when each entry of its memory first appeared."""
    seen: dict[tuple[str, str], int] = {}

    def look(_: int) -> None:
        for name, part in state.memory.items():
            for row in _rows(part):
                seen.setdefault((name, str(row)), state.at_us)

    run(state, result, until_us=until_us, timer=_counter(), progress=look)
    return seen


def _rows(part: object) -> Iterable[object]:
    return part.items() if isinstance(part, dict) else ()


def done(policy: str, seed: int) -> Done:
    """Run an hour with a round every 2 s, in which leases end often and jobs wait."""
    cluster, jobs, rules = drawn(policy, seed)
    if seed % 3:  # with one GPU type, claims do not change as time passes
        cluster, jobs = of_one_type(cluster, jobs)
    state = SimulationState(cluster, jobs, replace(rules, round_us=2 * SECOND_US))
    result = SimulationResult(state.books, 0, 0)
    return state, result, remembered(state, result, HOUR_US)


# In these cases few events occur, so effects of time are visible.
CALM: list[tuple[str, dict[str, Any], int, int]] = [  # policy, options, nodes, minutes of a lease
    ("evenshare", {}, 3, 60),
    ("evenshare", {"window_s": 600, "min_runtime_s": 1200}, 3, 90),
    ("evenshare", {"preset": "tight"}, 2, 60),
    ("ltgf", {}, 2, 30),
    ("ltgf", {"reserve_after_leases": 1, "tenant_share": "quota"}, 3, 60),
    ("market", {}, 2, 30),
    ("market", {"interval_s": 900, "theta": "fixed"}, 3, 60),
]


def calm(policy: str, options: dict[str, Any], nodes: int, minutes: int) -> Done:
    """Run ten hours of a small pool with long leases and a round every 5 s."""
    lease_us = minutes * 60 * SECOND_US
    rules = Rules(policy, options, round_us=5 * SECOND_US, lease_us=lease_us)
    state = SimulationState(pool(nodes), WORK.jobs, rules)
    result = SimulationResult(state.books, 0, 0)
    return state, result, remembered(state, result, 10 * HOUR_US)


def _counter() -> Callable[[], float]:
    ticks = iter(range(10**9))
    return lambda: float(next(ticks))


def outcome(done: Done) -> tuple[object, ...]:
    """Return all results of a run."""
    state, result, seen = done
    return (
        state.books.sha256(), result.rounds, state.memory, state.prices, state.service,
        state.number, seen,
    )  # fmt: skip


class TestSkippedRounds:
    """Skipping changes no result."""

    def skipped(self, patch: pytest.MonkeyPatch, go: Callable[[], Done]) -> int:
        """Compare a run with one that skips no round, and return the number of skipped rounds."""
        found = go()
        with patch.context() as without:
            without.setattr(Rounds, "pass_over", lambda *_: 0)
            asked = go()
        assert outcome(found) == outcome(asked)
        assert len(asked[1].decide_s) == asked[1].rounds
        return found[1].rounds - len(found[1].decide_s)

    @pytest.mark.parametrize("policy", ["evenshare", "ltgf", "srtf", "market"])
    def test_change_nothing_under_churn_and_limits(
        self, policy: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        skipped = sum(self.skipped(monkeypatch, partial(done, policy, seed)) for seed in SEEDS)
        assert skipped > 200, skipped

    @pytest.mark.parametrize("case", CALM)
    def test_change_nothing_in_quiet_pool(
        self, case: tuple[str, dict[str, Any], int, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        skipped = self.skipped(monkeypatch, partial(calm, *case))
        assert skipped > 1500, skipped


class TestNodeReservedForOwner:
    """The market policy keeps a node free, which it chooses by the expired leases."""

    def test_is_chosen_again_after_renewals(self) -> None:
        """Job 1 is renewed at 120 s; job 3 waits for the node on which job 2 borrows."""
        second = SECOND_US
        jobs = (
            SimJob(1, 2, 1, 0, 999 * second),
            SimJob(2, 1, 4, 50 * second, 999 * second),
            SimJob(3, 2, 4, 90 * second, 999 * second),
        )
        quotas = (Entitlement(1, "v100", 0), Entitlement(2, "v100", 8))
        rules = Rules("market", {"interval_s": 50}, round_us=10 * second, lease_us=120 * second)
        state = SimulationState(Cluster(make_nodes({"v100": 2}, 4), quotas), jobs, rules)
        rounds = Rounds(state)
        passed = {}
        for at_s in range(0, 140, 10):
            state.advance(at_s * second)
            if not state.is_quiet:
                granted = rounds.run()
                passed[at_s] = 0 if granted else rounds.pass_over((at_s + 20) * second)
        assert state.leases[1].term == 2
        assert state.queue == {3}
        assert (passed[120], passed[130]) == (0, 1)


class TestRenewalOnlyRounds:
    """Rounds that only renew expired leases and try no other job (`evenshare.calm`)."""

    @pytest.mark.parametrize(
        ("options", "nodes"),
        [
            *(({}, 1), ({}, 3), ({"preset": "tight"}, 2)),
            *(({"pays": False}, 3), ({"guarantee": False}, 1)),
        ],
    )
    def test_outcome_matches_full_rounds(
        self, options: dict[str, Any], nodes: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        go = partial(calm, "evenshare", options, nodes, 5)
        found = go()
        with monkeypatch.context() as without:
            without.setattr(Calm, "only_renews", lambda *_: False)
            without.setattr(IncrementalEvenshare, "outlasts_renewals", False)
            tried = go()
        assert outcome(found) == outcome(tried)

    @pytest.mark.parametrize(
        ("options", "nodes"),
        [
            *(({}, 1), ({}, 3), ({"reserve_after_leases": 0}, 2)),
            *(({"reserve_after_leases": 40}, 3), ({"spread": True}, 2)),
        ],
    )
    def test_outcome_matches_full_rounds_under_ltgf(
        self, options: dict[str, Any], nodes: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        go = partial(calm, "ltgf", options, nodes, 5)
        answers: list[bool] = []
        asked = CalmQueues.only_renews

        def only_renews(self: CalmQueues, view: KeptRound) -> bool:
            answers.append(asked(self, view) and bool(view.due))
            return answers[-1]

        with monkeypatch.context() as counted:
            counted.setattr(CalmQueues, "only_renews", only_renews)
            found = go()
        with monkeypatch.context() as without:
            without.setattr(CalmQueues, "only_renews", lambda *_: False)
            without.setattr(IncrementalLtgf, "outlasts_renewals", False)
            tried = go()
        assert outcome(found) == outcome(tried)
        assert 0 < sum(answers) < len(answers)

    def test_runs_include_renewal_only_rounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answers: list[bool] = []
        asked = Calm.only_renews

        def only_renews(self: Calm, view: KeptRound) -> bool:
            answers.append(asked(self, view) and bool(view.due))
            return answers[-1]

        monkeypatch.setattr(Calm, "only_renews", only_renews)
        for nodes in (1, 2, 3):
            calm("evenshare", {}, nodes, 5)
        assert sum(answers) > 20, (sum(answers), len(answers))
        assert not all(answers)

    @pytest.mark.parametrize(
        ("least", "beyond", "is_sure"),
        [
            ((8, 16), {}, True),
            ((8, 12), {}, False),  # 12 GPUs on both nodes, 4 of them in an expired lease
            ((6, 16), {}, False),
            ((8, 16), {(1, "v100"): 5}, True),
            ((8, 16), {(1, "v100"): 4}, False),
        ],
    )
    def test_gpus_of_expired_leases_count_as_free(
        self, least: tuple[int, int], beyond: dict[tuple[int, str], int], is_sure: bool
    ) -> None:
        due = [lease(1, 1, (1, 4), tenant=1)]
        free = {"v100": FreeGpus({1: 2, 2: 6}, 8)}
        view: Any = SimpleNamespace(is_limited=False, at_us=5, due=due, free=free)
        assert Calm(9, {"v100": least}, beyond).only_renews(view) is is_sure
        assert not Calm(5, {"v100": least}, beyond).only_renews(view)
