"""Trades in a live pool: income from idle quota, and the records of each trade.

A seeded hour of gandiva_fair runs through the real engine, on PostgreSQL and a clock moved by the
test. Leases, charges and incomes equal the simulator's.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from billing.checks import run_checks
from billing.metering import meter_pool
from billing.models import UsageShare
from evenshare_core.domain.decision import Decision, Trade
from evenshare_core.domain.instants import to_us
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.simulation.simulator import SimulationResult
from evenshare_core.simulation.workloads import SimJob
from evenshare_core.units import SECOND_US
from scheduling.models import LeaseEvent, Pool, Round
from scheduling.selectors.rounds.replay import replay_stored_round
from scheduling.selectors.rounds.stored import round_values
from tests.factories import BEGIN, Cluster, cluster
from tests.round_states import left_by
from tests.simulation.test_live_equals_simulated import (
    HOUR_S,
    ROUND_S,
    live_hour,
    live_leases,
    live_terms,
    simulated_hour,
    simulated_leases,
    simulated_terms,
)

pytestmark = pytest.mark.usefixtures("committed_db")

QUOTAS = {"a": 2, "b": 2, "c": 0}
SPEEDS = {"a": 1200, "b": 5000, "c": 3000}  # the speed of a V100 relative to a K80, in thousandths
JOBS = 60


def trading_pool() -> Cluster:
    """Return a pool of four V100s and four K80s; a and b own half of each, and c borrows."""
    lab = cluster(QUOTAS, nodes=1, gpus=4, round_s=ROUND_S, lease_s=60, policy="gandiva_fair")
    lab.add_type("k80", nodes=1, gpus=4, quotas={"a": 2, "b": 2})
    return lab


def submit_jobs(lab: Cluster, seed: int) -> list[SimJob]:
    """Submit jobs over the hour, in order of arrival, one kind per tenant."""
    rng = Random(seed)  # noqa: S311 - a history, not a secret
    profiles = {
        slug: lab.profile(slug, "one", k80=1000, v100=speed) for slug, speed in SPEEDS.items()
    }
    rows = []
    for after_s in sorted(rng.randrange(HOUR_S) for _ in range(JOBS)):
        tenant, gpus = rng.choice("aabbc"), rng.choice((1, 1, 2))
        duration_s = max(20, int(rng.lognormvariate(5.6, 1.0)))
        job = lab.submit(
            tenant, gpus, duration_s, after_s=after_s, profile=profiles[tenant],
            gpu_types=["k80", "v100"],
        )  # fmt: skip
        rows.append(
            SimJob(
                id=job.pk,
                tenant=lab.tenants[tenant].pk,
                gpus=gpus,
                submitted_us=to_us(BEGIN) + after_s * SECOND_US,
                duration_us=duration_s * SECOND_US,
                gpu_types=("k80", "v100"),
                profile=profiles[tenant].pk,
            )
        )
    return rows


def decisions(pool: Pool) -> list[Decision]:
    return [round_values(row)[1] for row in Round.objects.filter(pool=pool).order_by("number")]


def live_incomes() -> dict[tuple[str, int], int]:
    """Return income in micro-credits by GPU type and tenant; 0 is the operator."""
    sums: dict[tuple[str, int], int] = {}
    rows = UsageShare.objects.select_related("line__gpu_type", "account")
    for row in rows:
        key = (row.line.gpu_type.name, row.account.tenant_id or 0)
        sums[key] = sums.get(key, 0) + to_micro(row.amount)
    return {key: amount for key, amount in sums.items() if amount}


def simulated_incomes(outcome: SimulationResult) -> dict[tuple[str, int], int]:
    return {
        (gpu_type, tenant): amount
        for gpu_type, incomes in outcome.books.incomes.items()
        for tenant, amount in incomes.items()
        if amount
    }


def kept_trades(pool: Pool) -> list[Trade]:
    events = LeaseEvent.objects.filter(pool=pool, kind="traded").order_by("number")
    return [Trade(**event.data) for event in events]


def made(decided: Iterable[Decision]) -> list[Trade]:
    return [trade for decision in decided for trade in decision.trades]


class TestSeededHourOfTrades:
    def test_leases_charges_and_incomes_match_simulator(self) -> None:
        lab = trading_pool()
        jobs = submit_jobs(lab, seed=1)
        rounds = live_hour(lab, {})
        outcome = simulated_hour(lab, jobs, "gandiva_fair")
        assert simulated_leases(outcome) == live_leases()
        assert simulated_terms(outcome) == live_terms()
        assert outcome.rounds == rounds
        decided = decisions(lab.pool)
        assert {decision.swaps for decision in decided} - {()}
        assert simulated_incomes(outcome) == live_incomes()
        self._kept(lab, decided)

    @staticmethod
    def _kept(lab: Cluster, decided: list[Decision]) -> None:
        """Check that trades and their reversals are events in order, and that the books balance."""
        assert kept_trades(lab.pool) == made(decided)
        assert {trade.rate_micro > 0 for trade in made(decided)} == {True, False}
        assert [result for result in run_checks() if not result.ok] == []
        assert all(replay_stored_round(row).same for row in Round.objects.filter(pool=lab.pool))


class TestTradedQuota:
    def test_earns_for_buyer_until_policy_changes(self) -> None:
        lab = trading_pool()
        profiles = {
            slug: lab.profile(slug, "one", k80=1000, v100=speed) for slug, speed in SPEEDS.items()
        }
        for slug in "ab":
            for _ in range({"a": 9, "b": 4}[slug]):
                lab.submit(slug, 1, 36_000, profile=profiles[slug], gpu_types=["k80", "v100"])
        lab.rounds(12, every_s=60)
        ids = {slug: str(lab.tenants[slug].pk) for slug in "ab"}
        state = left_by(lab.pool)
        own = {slug: state.entitled["v100"]["quotas"][ids[slug]][0] for slug in "ab"}
        last = Round.objects.filter(pool=lab.pool).order_by("-number")[0]
        shares = {(row["tenant"], row["gpu_type"]): row for row in last.shares}
        row = shares[lab.tenants["b"].pk, "v100"]
        assert own["b"] > 2
        assert own["a"] + own["b"] == 4
        assert (row["quota"], row["swapped"]) == (2, own["b"] - 2)
        Pool.objects.filter(pk=lab.pool.pk).update(policy="ltgf")
        lab.round(after_s=60)
        state = left_by(lab.pool)
        assert state.entitled["v100"]["quotas"] == {ids["a"]: [2, None], ids["b"]: [2, None]}
        assert all("swapped" not in row for row in Round.objects.latest("number").shares)
        while meter_pool(lab.pool.pk).events:
            pass
        assert [result for result in run_checks() if not result.ok] == []
