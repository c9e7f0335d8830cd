"""Test the demo pool `mixed`: GPUs of three types, and a change of policy while it runs."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping
from datetime import timedelta

import pytest

from billing.checks import run_checks
from billing.metering import meter_pool
from evenshare_core.domain.decision import Decision
from evenshare_core.policies.registry import POLICIES
from evenshare_core.units import SECOND_US
from portal.demo.data import DATA
from portal.demo.mixed import BEGIN, GPU_TYPES
from portal.demo.mixed_trace import COLUMNS, CYCLE_H, TEAMS, mixed_rows
from portal.demo.philly import seed_demo
from scheduling.engine.rounds import RoundOutcome
from scheduling.models import Job, Lease, LeaseEvent, LeaseTerm, Pool, Profile, Round, TraceFeed
from scheduling.requests.pools import LENGTHS
from scheduling.selectors.pools.throughput import read_throughput
from scheduling.selectors.rounds.replay import replay_stored_round
from scheduling.selectors.rounds.stored import round_decision
from scheduling.selectors.visibility import Visibility
from scheduling.services.pools import change_pool
from tenants.audit import Actor
from tenants.models import Quota, Tenant, User
from tests.factories import Cluster
from tests.stages import Stages

# Policies with options, which an operator sets one after the other while jobs run.
SWITCHES = [
    (name, options)
    for name, options in (
        ("ltgf", {}),
        ("oef", {"environment": "noncooperative"}),
        ("oef", {"environment": "cooperative"}),
        ("gandiva_fair", {}),
        ("fifo", {}),
        ("ltgf", {}),
    )
    if name in POLICIES
]
ROUND_S, ROUNDS = 600, 6


@pytest.fixture
def pool(stages: Stages) -> Iterator[Pool]:
    with stages.copy(seed_demo):
        yield Pool.objects.get(name="mixed")


def lab_of(pool: Pool) -> Cluster:
    first = pool.nodes.select_related("gpu_type").first()
    assert first is not None
    return Cluster(pool, first.gpu_type, {}, BEGIN)


def switch(pool: Pool, policy: str, options: Mapping[str, object]) -> None:
    change_pool(
        actor=Actor(User.objects.get(username="otto")),
        pool_id=pool.pk,
        policy=policy,
        options=options,
        lengths={name: getattr(pool, name) for name in LENGTHS},
        visibility=pool.visibility,
    )


class TestDemoTrace:
    def test_matches_its_seed(self) -> None:
        with gzip.open(DATA / "mixed_24h.csv.gz", "rt", newline="") as file:
            rows = list(csv.reader(file))
        assert rows == [list(COLUMNS), *([str(cell) for cell in row] for row in mixed_rows())]


class TestDemoSeed:
    def test_shares_all_gpus_of_each_type(self, pool: Pool) -> None:
        for kind in GPU_TYPES:
            quotas = Quota.objects.filter(pool=pool, gpu_type__name=kind.name)
            assert sum(row.gpus for row in quotas) == kind.nodes * kind.gpus

    def test_gives_every_team_speeds_for_types_of_pool(self, pool: Pool) -> None:
        types = {kind.name for kind in GPU_TYPES}
        profiles = Profile.objects.filter(pool=pool)
        assert profiles.count() == 7
        for profile in profiles:
            assert set(profile.speedups) == types
            assert min(profile.speedups.values()) == 1000
            # The demo's jobs run at the published speeds, and report them.
            assert profile.virtual_speeds.speedups == profile.declared == profile.speedups

    def test_is_idempotent(self, pool: Pool) -> None:
        assert not seed_demo()
        assert pool.profiles.count() == 7


class TestDemoFeed:
    def test_sets_profile_and_gpu_types_of_jobs(self, pool: Pool) -> None:
        lab_of(pool).round()
        jobs = Job.objects.filter(pool=pool).select_related("profile")
        assert jobs.count() == 48
        for job in jobs:
            assert job.profile is not None
            assert job.profile.tenant_id == job.tenant_id
            assert job.name.startswith(job.profile.name)
            assert job.gpu_types == sorted(job.profile.speedups)

    def test_pauses_while_queue_is_too_long(self, pool: Pool) -> None:
        TraceFeed.objects.filter(pool=pool).update(max_pending=0)
        lab = lab_of(pool)
        lab.rounds(4, every_s=ROUND_S)
        feed = TraceFeed.objects.get(pool=pool)
        assert feed.held_back == 3
        TraceFeed.objects.filter(pool=pool).update(max_pending=500)
        lab.round(after_s=ROUND_S)
        late = Job.objects.filter(pool=pool, submitted_at__gt=BEGIN)
        # Jobs that arrive now must not get times from before the pause of the trace.
        assert late.exists()
        assert all(job.submitted_at >= lab.at - timedelta(seconds=ROUND_S) for job in late)


class TestTradesPool:
    @pytest.mark.skipif("gandiva_fair" not in POLICIES, reason="it needs the policy gandiva_fair")
    def test_trades_within_minutes(self, pool: Pool) -> None:
        trades = Pool.objects.get(name="trades")
        assert trades.policy == "gandiva_fair"
        lab_of(trades).rounds(2, every_s=ROUND_S)
        assert LeaseEvent.objects.filter(pool=trades, kind="traded").exists()
        assert not LeaseEvent.objects.filter(pool=pool, kind="traded").exists()


class TestMeasuring:
    def test_finds_true_speeds_despite_wrong_declarations(self, pool: Pool) -> None:
        lab = lab_of(pool)
        Profile.objects.filter(pool=pool).update(
            declared={"k80": 1000, "p100": 9000, "v100": 50_000},
            speedups={"k80": 1000, "p100": 9000, "v100": 50_000},
        )
        lab.rounds(12, every_s=ROUND_S)
        measured = [row for row in Profile.objects.filter(pool=pool) if row.measured]
        assert measured
        for row in measured:
            truth = row.virtual_speeds.speedups
            for kind, one in row.measured.items():
                slowest = min(truth[other] for other in row.measured)
                assert abs(one["speed_milli"] - truth[kind] * 1000 / slowest) <= 2
            assert row.source == Profile.Source.MEASURED
        for round_ in Round.objects.filter(pool=pool):
            assert replay_stored_round(round_).same


class TestTrades:
    """Trades under gandiva_fair, in three minutes of wall time after operators selected it."""

    def test_are_made_at_once_and_undone_when_team_leaves(self, pool: Pool) -> None:
        lab = lab_of(pool)
        lab.rounds(ROUNDS, every_s=ROUND_S)
        switch(pool, "gandiva_fair", {})
        first = self.decided(lab)
        assert [trade for trade in first.trades if trade.rate_micro > 0]
        assert first.swaps
        assert {row.lease_us for row in first.lengths} == {ROUND_S * SECOND_US}
        standing, undone, left = list(first.trades), 0, []
        leaver = next(team for team in TEAMS if team.stays_h < CYCLE_H)
        leaver_id = Tenant.objects.get(slug=f"vc-{leaver.tenant}").pk
        for _ in range(17):
            decision = self.decided(lab)
            for trade in decision.trades:
                if trade.rate_micro > 0:
                    standing.append(trade)
                    continue
                made = standing.pop()
                assert (made.buyer, made.seller) == (trade.buyer, trade.seller)
                assert made.rate_micro == -trade.rate_micro
                undone += 1
            parties = {party for row in standing for party in (row.buyer, row.seller)}
            here = set(
                Job.objects.filter(pool=pool, submitted_at__lte=lab.at)
                .exclude(state__in=("succeeded", "failed", "cancelled"))
                .values_list("tenant_id", flat=True)
            )
            left.append(leaver_id not in here)
            assert not (left[-1] and leaver_id in parties)
        assert undone
        assert any(left)
        assert not all(left)
        assert not Job.objects.filter(pool=pool).exclude(quarantine="").exists()
        for round_ in Round.objects.filter(pool=pool).order_by("number")[::4]:
            assert replay_stored_round(round_).same

    def decided(self, lab: Cluster) -> Decision:
        assert lab.round(after_s=ROUND_S).outcome is RoundOutcome.COMMITTED
        return round_decision(Round.objects.filter(pool=lab.pool).latest("number"))


class TestPolicySwitch:
    def test_keeps_all_leases_and_shows_effect_on_throughput(self, pool: Pool) -> None:
        lab = lab_of(pool)
        for policy, options in SWITCHES:
            held = set(Lease.objects.exclude(state="ended").values_list("id", flat=True))
            switch(pool, policy, options)
            pool.refresh_from_db()
            assert held == set(Lease.objects.exclude(state="ended").values_list("id", flat=True))
            for _ in range(ROUNDS):
                result = lab.round(after_s=ROUND_S if Round.objects.exists() else 0)
                assert result.outcome is RoundOutcome.COMMITTED
        self.leases_end_at_their_terms(pool)
        self.books_add_up(pool)
        self.rounds_replay(pool)
        self.throughput_is_told(pool)

    def test_keeps_all_leases_under_any_policy(self, pool: Pool) -> None:
        lab = lab_of(pool)
        lab.round()
        for policy in (*POLICIES, pool.policy):
            held = set(Lease.objects.exclude(state="ended").values_list("id", flat=True))
            switch(pool, policy, {})
            assert held == set(Lease.objects.exclude(state="ended").values_list("id", flat=True))
            for _ in range(2):
                assert lab.round(after_s=ROUND_S).outcome is RoundOutcome.COMMITTED
            rows = Round.objects.filter(pool=pool).order_by("-number")[:2]
            assert [row.policy for row in rows] == [policy] * 2
            assert not any(row.fallback for row in rows)
        # Some policies preempt or move jobs (`decide` checks that the job continues on other GPUs).
        # Other leases end at their expiry.
        self.leases_end_at_their_terms(pool, "preempted", "moved")
        held_by = Lease.objects.filter(pool=pool).exclude(state="ended").values_list("job_id")
        runs = Job.objects.filter(pool=pool, state="running").values_list("id")
        assert sorted(held_by) == sorted(runs)
        self.books_add_up(pool)
        self.rounds_replay(pool)

    def leases_end_at_their_terms(self, pool: Pool, *besides: str) -> None:
        """Check that each lease ended with its job, at its expiry, or for a reason in `besides`."""
        ended = Lease.objects.filter(pool=pool, state="ended")
        assert ended.count() > 30
        assert {lease.end_reason for lease in ended} <= {"finished", "not_renewed", *besides}
        for lease in ended.filter(end_reason="not_renewed"):
            last = LeaseTerm.objects.filter(lease=lease).order_by("-number").first()
            assert last is not None
            assert lease.ended_at is not None
            assert lease.ended_at >= last.expires_at
        assert not Job.objects.filter(pool=pool).exclude(quarantine="").exists()

    def books_add_up(self, pool: Pool) -> None:
        while meter_pool(pool.pk).events:
            pass
        results = {result.name: result for result in run_checks()}
        assert [result for result in results.values() if not result.ok] == []
        assert results["lines_match_terms"].checked > 0

    def rounds_replay(self, pool: Pool) -> None:
        for round_ in Round.objects.filter(pool=pool):
            assert replay_stored_round(round_).same

    def throughput_is_told(self, pool: Pool) -> None:
        visibility = Visibility(pool.visibility)
        told = read_throughput(pool.pk, visibility, since=BEGIN)
        assert told is not None
        assert [reign.policy.split(",")[0] for reign in told.policy_periods] == [
            policy for policy, _ in SWITCHES
        ]
        assert [reign.rounds for reign in told.policy_periods] == [ROUNDS] * len(SWITCHES)
        # The total is the sum over the leases and also over the tenants.
        held = Lease.objects.filter(pool=pool).exclude(state="ended")
        speeds = [
            row.gpus * row.job.profile.speedups[row.gpu_type.name]
            for row in held.select_related("job__profile", "gpu_type")
            if row.job.profile is not None
        ]
        assert told.last.milli == sum(speeds)
        assert sum(row.milli for row in told.tenants) == told.last.milli
