"""Every policy through the live engine, under a seeded history with many faults.

The pool is small, with two GPU types. Two tenants lend to each other, and a third has no quota.
There are gangs over nodes, jobs that accept one type, and jobs with and without a job type, an
estimate or CPUs. Nodes are lost and return, processes are lost, and jobs are cancelled. The
executor refuses, repeats and forgets answers, and rounds crash at their fault points. For every
policy, the books balance, no slot is held twice, and rounds replay to the same bytes. Promises are
kept, and every lease ends.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from django.db import connection

from billing.checks import run_checks
from billing.metering import meter_pool, settle_pool
from evenshare_core.domain.reasons import EndReason
from evenshare_core.policies.registry import POLICIES
from evenshare_core.policies.registry import policy as policy_named
from scheduling.engine import rounds as engine
from scheduling.models import (
    Intent,
    Job,
    Lease,
    LeaseEvent,
    LeaseSlot,
    LeaseTerm,
    Node,
    Pool,
    Profile,
    Round,
    VirtualWork,
)
from scheduling.requests.pools import LENGTHS
from scheduling.selectors.rounds.following import Follower
from scheduling.selectors.rounds.replay import replay_stored_round
from scheduling.selectors.rounds.stored import round_values
from scheduling.services.jobs import cancel_job
from scheduling.services.pools import change_pool
from tenants.audit import Actor
from tenants.faults import arm_faults
from tenants.models import User
from tests.factories import cluster
from tests.round_states import left_by
from tests.simulation.gated import CrashError, FaultyExecutor
from tests.tiers import SITE_POLICIES

pytestmark = pytest.mark.usefixtures("committed_db")

ROUNDS, ROUND_S, LEASE_S = 14, 10, 20
CRASH_RATE, FAULT_RATE = 0.004, 0.08
REST_ROUNDS = 60  # enough rounds to end every job, even the longest
PROFILES: tuple[dict[str, int], ...] = ({"k80": 1000, "v100": 3000}, {"k80": 1000, "v100": 1300})


class Chaos:
    """A pool and its clock for a seed; each step decides a round."""

    def __init__(self, seed: int, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = Random(seed)  # noqa: S311 - a history, not a secret
        self.lab = cluster(
            {"a": 5, "b": 3, "c": 0}, nodes=2, gpus=4, round_s=ROUND_S, lease_s=LEASE_S,
            policy=policy,
        )  # fmt: skip
        self.lab.add_type("k80", nodes=2, gpus=2, quotas={"a": 1, "b": 3})
        Node.objects.filter(name__in=("n0000", "k80-00")).update(cpus=12, memory_mb=64)
        self.profiles: dict[str, list[Profile]] = {
            slug: [self.lab.profile(slug, f"model-{n}", **row) for n, row in enumerate(PROFILES)]
            for slug in "abc"
        }
        self.executor = FaultyExecutor(self.random, FAULT_RATE)
        self.outcomes: set[str] = set()
        monkeypatch.setattr(engine, "executor_for", lambda _: self.executor)

    def step(self) -> None:
        """Make a random change, and run a round."""
        for _ in range(self.random.choice((0, 1, 1, 2, 3))):
            self.submit()
        for move, rate in ((self.cancel, 0.15), (self.lose_node, 0.12), (self.mend_node, 0.3)):
            if self.random.random() < rate:
                move()
        self.round()
        if self.random.random() < 0.3:
            self.meter()

    def submit(self) -> None:
        """Submit a job of one GPU, of part of a node, or over two nodes; some need a type."""
        tenant, gpus = self.random.choice("aabbc"), self.random.choice((1, 1, 2, 3, 4, 6))
        fields: dict[str, Any] = {}
        if gpus <= 4 and self.random.random() < 0.3:
            fields["gpu_types"] = [self.random.choice(("k80", "v100"))]
        elif self.random.random() < 0.5:
            profile = self.random.choice(self.profiles[tenant])
            fields |= {"profile": profile, "gpu_types": sorted(profile.speedups)}
        duration_s = self.random.choice((5, 15, 35, 70))
        if self.random.random() < 0.6:
            fields["estimate_s"] = duration_s * self.random.choice((1, 1, 2))
        if self.random.random() < 0.3:
            fields |= {"cpus": 3 * gpus, "memory_mb": 8}
        self.lab.submit(tenant, gpus, duration_s, **fields)

    def cancel(self) -> None:
        """Cancel a waiting or running job."""
        active = Job.objects.filter(state__in=Job.ACTIVE_STATES).order_by("id")
        if active:
            cancel_job(job=self.random.choice(list(active)), now=self.lab.now())

    def lose_node(self) -> None:
        """Lose a node, whose processes the executor then forgets."""
        node = self.random.choice(list(Node.objects.order_by("id")))
        Node.objects.filter(pk=node.pk).update(state=Node.State.LOST)
        held = LeaseSlot.objects.filter(node=node, holding=True)
        jobs = Lease.objects.filter(pk__in=held.values("lease")).values("job")
        VirtualWork.objects.filter(job__in=jobs).update(token="", launched_us=None)

    def mend_node(self) -> None:
        Node.objects.update(state=Node.State.UP)

    def round(self) -> None:
        """Run the next round, which may crash at any fault point."""
        with connection.cursor() as cursor:  # this makes the fence of a crashed holder expire
            cursor.execute("UPDATE scheduling_poolfence SET until = clock_timestamp()")
        try:
            with arm_faults(self._crash):
                outcome = self.lab.round().outcome.value
        except CrashError:
            outcome = "crashed"
        self.outcomes.add(outcome)
        assert outcome in {"committed", "not_due", "quiet", "crashed"}
        held = LeaseSlot.objects.filter(holding=True)
        assert held.count() == held.values("node", "slot").distinct().count()
        self.lab.at += timedelta(seconds=ROUND_S)

    def _crash(self, _: str) -> None:
        if self.executor.rate and self.random.random() < CRASH_RATE:
            raise CrashError

    def meter(self) -> None:
        """Meter events, and settle past hours."""
        while meter_pool(self.lab.pool.pk).events:
            pass
        settle_pool(self.lab.pool.pk)

    def rest(self) -> None:
        """Run without faults until all jobs end; cancel waiting jobs after a while."""
        self.executor.rate = 0
        self.mend_node()
        for number in range(REST_ROUNDS):
            if number == 4:
                for job in Job.objects.filter(state=Job.State.PENDING).order_by("id"):
                    cancel_job(job=job, now=self.lab.now())
            if number >= 4 and not Job.objects.filter(state__in=Job.ACTIVE_STATES).exists():
                break
            self.round()
        self.lab.at += timedelta(hours=2)
        self.round()
        self.meter()


def assert_ended(chaos: Chaos) -> None:
    """Check that every lease has ended with a reason, and no work is left."""
    assert "committed" in chaos.outcomes
    assert not Job.objects.filter(state__in=Job.ACTIVE_STATES).exists()
    assert not Job.objects.exclude(quarantine="").exists()
    assert not Intent.objects.filter(state="open").exists()
    assert not LeaseSlot.objects.filter(holding=True).exists()
    leases = Lease.objects.all()
    assert leases.count() > 10
    known = {reason.value for reason in EndReason}
    for lease in leases:
        assert lease.state == "ended"
        assert lease.end_reason in known, lease.end_reason
    numbers = list(LeaseEvent.objects.order_by("id").values_list("number", flat=True))
    assert numbers == list(range(1, len(numbers) + 1))


def assert_rounds(rounds: list[Round]) -> None:
    """Check that rounds replay, follow each other, and keep the promises of their policies."""
    follower = Follower()
    for row in rounds:
        replay = replay_stored_round(row, follower)
        assert replay.same, row.number
        assert replay.following is not None
        assert replay.following.follows, (row.number, replay.following.why)
        assert replay.certified is True, row.number
        said = row.certificate or {}
        assert (said["violated"], said.get("failure", "")) == ([], ""), (row.number, row.policy)


def assert_books() -> None:
    """Run the checks of `check_ledger`."""
    results = run_checks()
    assert [(row.name, row.violations[:2]) for row in results if not row.ok] == []
    assert next(row for row in results if row.name == "lines_match_terms").checked


def play(seed: int, policy: str, monkeypatch: pytest.MonkeyPatch, rounds: int = ROUNDS) -> None:
    chaos = Chaos(seed, policy, monkeypatch)
    for _ in range(rounds):
        chaos.step()
    chaos.rest()
    assert_ended(chaos)
    assert_rounds(list(Round.objects.order_by("number")))
    assert_books()


class TestEveryPolicy:
    @pytest.mark.parametrize("policy", sorted(SITE_POLICIES))
    def test_survives_seeded_history(self, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Other policies have rounds below, and long histories in `make soak`."""
        play(1, policy, monkeypatch)

    @pytest.mark.soak
    @pytest.mark.parametrize("seed", range(2000, 2010))
    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_survives_many_longer_histories(
        self, policy: str, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        play(seed, policy, monkeypatch, rounds=200)


class TestPolicySwitch:
    def test_keeps_leases_and_drops_memory_of_other_policy(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two rounds per policy: its memory can be kept, and must be dropped at the switch."""
        chaos = Chaos(3, min(POLICIES), monkeypatch)
        otto = Actor(User.objects.create(username="otto", site_role="operator"))
        for policy in sorted(POLICIES):
            held = self._live()
            self._switch(otto, policy)
            assert self._live() == held  # the switch of policies ends and moves no lease
            for _ in range(2):
                before = self._live()
                chaos.step()
                self._go_on_or_end_with_a_reason(before)
        chaos.rest()
        assert_ended(chaos)
        rounds = list(Round.objects.order_by("number"))
        assert {row.policy for row in rounds} == set(POLICIES)
        assert_rounds(rounds)
        assert_books()
        self._memory_is_of_its_policy(rounds)

    @staticmethod
    def _switch(actor: Actor, policy: str) -> None:
        pool = Pool.objects.get()
        change_pool(
            actor=actor, pool_id=pool.pk, policy=policy, options={},
            lengths={name: getattr(pool, name) for name in LENGTHS}, visibility=pool.visibility,
        )  # fmt: skip

    @staticmethod
    def _live() -> dict[int, list[Any]]:
        leases = Lease.objects.exclude(state="ended")
        return dict(leases.values_list("id", "placement"))

    def _go_on_or_end_with_a_reason(self, before: dict[int, list[Any]]) -> None:
        now = self._live()
        for lease in Lease.objects.filter(pk__in=before):
            if lease.pk in now:
                assert now[lease.pk] == before[lease.pk]
                continue
            assert lease.end_reason
            if lease.end_reason == EndReason.NOT_RENEWED and lease.started_at is not None:
                last = LeaseTerm.objects.filter(lease=lease).latest("number")
                assert lease.ended_at is not None
                assert lease.ended_at >= last.expires_at

    @staticmethod
    def _memory_is_of_its_policy(rounds: list[Round]) -> None:
        """Check that a round reads the previous round's memory only if the policy is the same."""
        kept = dropped = 0
        for earlier, later in pairwise(rounds):
            left, read = round_values(earlier)[1].memory, round_values(later)[0].memory
            if earlier.policy == later.policy:
                assert read == left
                kept += bool(left)
            else:
                assert read == {}
                dropped += bool(left)
        assert kept > 1
        assert dropped > 1
        state = left_by(Pool.objects.get())
        assert (state.policy, state.policy_version) == (
            rounds[-1].policy, policy_named(rounds[-1].policy).version
        )  # fmt: skip
