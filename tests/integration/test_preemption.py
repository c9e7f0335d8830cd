"""Test leases that end before their expiry with notice: the engine's events, and spared leases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from billing.checks import run_checks
from billing.metering import meter_pool
from billing.models import UsageLine
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.money.fixed_point import charge_micro, to_micro
from evenshare_core.policies import registry
from evenshare_core.policies.base import decide_round
from evenshare_core.units import SECOND_US
from scheduling.engine import rounds as engine
from scheduling.models import (
    Intent,
    Job,
    Lease,
    LeaseEvent,
    LeaseSlot,
    MaintenanceWindow,
    Node,
    Pool,
    Round,
    VirtualWork,
)
from scheduling.selectors.rounds.replay import replay_stored_round
from tenants.faults import arm_faults
from tenants.models import Budget
from tenants.scopes import site_scope
from tests.factories import Cluster, cluster
from tests.integration.injected import InjectedError, once
from tests.integration.test_handover import SlowExecutor
from tests.toy_policy.preempting import POLICY

pytestmark = pytest.mark.usefixtures("committed_db")
LONG_S = 1000


@pytest.fixture(autouse=True)
def policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowExecutor:
    executor = SlowExecutor()
    monkeypatch.setattr(engine, "executor_for", lambda _: executor)
    return executor


def full(*, gpus: int = 8, nodes: int = 1, size: int = 4, **fields: Any) -> tuple[Cluster, Job]:
    """Return a pool whose GPUs `a` holds, half borrowed; a minute later `b` needs its quota."""
    half = gpus * nodes // 2
    lab = cluster({"a": half, "b": half}, nodes=nodes, gpus=gpus, policy=POLICY.name, **fields)
    for _ in range(2 * half // size):
        lab.submit("a", size, LONG_S)
    lab.round()
    assert Lease.objects.filter(state="running").count() == 2 * half // size
    claim = lab.submit("b", size, LONG_S)
    return lab, claim


def between(monkeypatch: pytest.MonkeyPatch, change: Callable[[Decision], None]) -> None:
    """Run `change` after the decision and before it is applied."""

    def decide(snapshot: Snapshot) -> Decision:
        decision = decide_round(snapshot)
        if decision.preemptions:
            with site_scope():
                change(decision)
        return decision

    monkeypatch.setattr(engine, "decide_round", decide)


def cancel(job: Job, lab: Cluster) -> None:
    Job.objects.filter(pk=job.pk).update(cancel_asked_at=lab.at)


def drain() -> None:
    Node.objects.update(state="drained")


def why_superseded(round_: Round | None) -> list[tuple[str, int, str]]:
    assert round_ is not None
    return [(row["item"], row["id"], row["why"]) for row in round_.superseded]


class TestPreemptedLease:
    def test_ends_early_with_notice_and_frees_gpus_for_claimant(self) -> None:
        lab, claim = full()
        result = lab.round(after_s=60)
        victim = Lease.objects.get(state="ended")
        assert (victim.end_reason, victim.ended_at) == ("preempted", lab.at)
        assert victim.expires_at > lab.at
        notice, end = LeaseEvent.objects.filter(
            lease=victim, kind__in=("stop_asked", "ended")
        ).order_by("number")
        assert (notice.kind, end.kind) == ("stop_asked", "ended")
        assert notice.data == {
            "reason": "preempted", "rule": "guarantee", "for_job": claim.pk,
            "for_tenant": claim.tenant_id, "numbers": {"held": 0, "quota": 4}, "notice_s": 30,
        }  # fmt: skip
        assert end.data["reason"] == "preempted"
        assert Lease.objects.get(job=claim).state == "running"
        assert result.round
        assert result.round.summary["preempted"] == {"guarantee": 1}
        assert replay_stored_round(result.round).same

    def test_requeues_job_with_reason_and_loses_no_work(self) -> None:
        lab, claim = full()
        lab.round(after_s=60)
        loser = Lease.objects.get(state="ended").job
        loser.refresh_from_db()
        assert (loser.state, loser.reason_code) == ("pending", "lease_turn")
        assert VirtualWork.objects.get(job=loser).done_us == 60 * SECOND_US
        cancel(claim, lab)
        lab.round(after_s=60)
        again = Lease.objects.get(job=loser, number=2)
        lab.round(after_s=LONG_S)
        again.refresh_from_db()
        assert again.started_at is not None
        assert again.ended_at == again.started_at + timedelta(seconds=LONG_S - 60)
        assert again.end_reason == "finished"

    def test_successor_waits_for_its_end(self, slow: SlowExecutor) -> None:
        lab, claim = full(grace_s=45)
        lab.round(after_s=60)
        new, old = Lease.objects.get(job=claim), Lease.objects.get(state="stopping")
        assert (new.state, old.end_reason) == ("waiting", "preempted")
        assert LeaseSlot.objects.filter(lease=new, planned=True).count() == 4
        (stop,) = slow.asked.values()
        assert (stop.job_id, stop.grace_us) == (old.job_id, 45 * SECOND_US)
        assert Intent.objects.filter(kind="stop").count() == 1
        slow.stops_now = True
        lab.round(after_s=20)
        new.refresh_from_db()
        assert (new.state, new.started_at) == ("running", lab.at)

    def test_waiting_lease_ends_at_once_with_reason(self, slow: SlowExecutor) -> None:
        lab, claim = full()
        Pool.objects.update(policy="fifo")
        lab.pool.refresh_from_db()
        Job.objects.filter(pk=Lease.objects.earliest("id").job_id).update(cancel_asked_at=lab.at)
        cancel(claim, lab)
        more = lab.submit("a", 4, LONG_S)
        # The lease waits for GPUs of another lease that is being cancelled.
        lab.round(after_s=10)
        lab.round(after_s=10)
        waiting = Lease.objects.get(job=more)
        assert waiting.state == "waiting"
        Pool.objects.update(policy=POLICY.name)
        lab.submit("b", 4, LONG_S)
        lab.round(after_s=10)
        waiting.refresh_from_db()
        assert (waiting.state, waiting.end_reason) == ("ended", "preempted")
        event = LeaseEvent.objects.get(lease=waiting, kind="ended")
        assert (event.data["rule"], event.data["started"]) == ("guarantee", False)


class TestMove:
    def test_makes_room_for_gang_and_job_keeps_running(self) -> None:
        lab = cluster({"a": 8}, nodes=2, gpus=4, policy=POLICY.name)
        jobs = [lab.submit("a", gpus, LONG_S) for gpus in (3, 1, 3, 1)]
        lab.round()
        first, _, third, _ = jobs
        Job.objects.filter(pk__in=[first.pk, third.pk]).update(cancel_asked_at=lab.at)
        lab.round(after_s=10)
        gang = lab.submit("a", 4, LONG_S)
        result = lab.round(after_s=10)
        old = Lease.objects.get(end_reason="moved")
        new = Lease.objects.get(job=old.job, number=2)
        assert (new.state, new.started_at, new.placement == old.placement) == (
            "running", lab.at, False,
        )  # fmt: skip
        assert Lease.objects.get(job=gang).state == "running"
        notice = LeaseEvent.objects.get(lease=old, kind="stop_asked")
        assert (notice.data["rule"], notice.data["for_job"]) == ("defragment", gang.pk)
        assert result.round
        assert result.round.summary["preempted"] == {"defragment": 1}
        assert VirtualWork.objects.get(job=old.job).done_us == 20 * SECOND_US


class TestProtectedLease:
    def test_no_policy_ends_it_before_minimum_runtime(self) -> None:
        lab, _ = full(options={"min_runtime_s": 300}, lease_s=60)
        until = {lease.protected_until for lease in Lease.objects.all()}
        assert until == {lab.at + timedelta(seconds=300)}
        lab.round(after_s=30)
        # This must also hold after the lease's expiry, and under a policy without a minimum
        # runtime.
        Pool.objects.update(policy="ltgf", options={})
        lab.pool.refresh_from_db()
        lab.rounds(5, every_s=50)
        assert not Lease.objects.filter(state="ended").exists()
        lab.round(after_s=70)
        (ended,) = Lease.objects.filter(state="ended")
        assert ended.ended_at is not None
        assert ended.protected_until is not None
        assert ended.ended_at >= ended.protected_until

    def test_can_be_preempted_after_minimum_runtime(self) -> None:
        lab, claim = full(options={"min_runtime_s": 300})
        lab.round(after_s=290)
        assert not Lease.objects.filter(job=claim).exists()
        lab.round(after_s=10)
        assert Lease.objects.get(job=claim).state == "running"
        assert Lease.objects.filter(end_reason="preempted").count() == 1

    def test_minimum_runtime_counts_from_start(self, slow: SlowExecutor) -> None:
        lab, claim = full()
        Pool.objects.update(options={"min_runtime_s": 300})
        lab.pool.refresh_from_db()
        lab.round(after_s=10)
        new = Lease.objects.get(job=claim)
        assert new.protected_until == lab.at + timedelta(seconds=300)
        slow.stops_now = True
        lab.round(after_s=20)
        new.refresh_from_db()
        assert new.started_at == lab.at
        assert new.protected_until == lab.at + timedelta(seconds=300)

    def test_executor_limit_covers_minimum_runtime(
        self,
        monkeypatch: pytest.MonkeyPatch,
        slow: SlowExecutor,
    ) -> None:
        limits: list[int] = []
        monkeypatch.setattr(
            slow, "extend", lambda _, leases: limits.extend(row.until_us for row in leases)
        )
        lab, _ = full(options={"min_runtime_s": 300}, lease_s=60)
        protected = Lease.objects.earliest("id").protected_until
        assert protected is not None
        assert set(limits) == {int(protected.timestamp() * SECOND_US)}
        assert lab.pool.lease_s == 60

    def test_is_not_granted_into_maintenance_window(self) -> None:
        """The lease's minimum runtime exceeds a lease length and would overlap the maintenance."""
        lab = cluster(
            {"a": 4}, nodes=1, policy=POLICY.name, lease_s=60, options={"min_runtime_s": 1800}
        )
        begins = lab.at + timedelta(seconds=1500)
        MaintenanceWindow.objects.create(
            pool=lab.pool, node=Node.objects.get(pool=lab.pool), reason="fans",
            starts_at=begins, ends_at=begins + timedelta(seconds=60),
        )  # fmt: skip
        job = lab.submit("a", 1, LONG_S)
        lab.round()
        assert not Lease.objects.exists()
        lab.round(after_s=1560)
        assert Lease.objects.get(job=job).state == "running"


class TestMissingBeneficiary:
    def test_cancelled_job_leaves_lease_running(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lab, claim = full()
        between(monkeypatch, lambda _: cancel(claim, lab))
        result = lab.round(after_s=60)
        assert Lease.objects.filter(state="running").count() == 2
        assert not Intent.objects.filter(kind="stop").exists()
        items = why_superseded(result.round)
        assert [item for item, _, _ in items] == ["end", "grant"]
        assert items[0][2].endswith("no longer waited, so the lease goes on")
        assert result.round
        assert "preempted" not in result.round.summary
        lab.rounds(3, every_s=450)
        assert [v for check in run_checks() for v in check.violations] == []

    def test_drained_node_leaves_lease_running(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lab, _ = full()
        between(monkeypatch, lambda _: drain())
        result = lab.round(after_s=60)
        assert Lease.objects.filter(state="running").count() == 2
        assert "was drained or lost, so the lease goes on" in why_superseded(result.round)[0][2]

    def test_lease_still_ends_if_other_grant_needs_its_gpus(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another job was granted GPUs of the same node, and placement is not decided again."""
        lab, claim = full(size=2)
        lab.submit("b", 2, LONG_S)
        between(monkeypatch, lambda _: cancel(claim, lab))
        result = lab.round(after_s=60)
        assert Lease.objects.filter(end_reason="preempted").count() == 2
        assert [item for item, _, _ in why_superseded(result.round)] == ["grant"]

    def test_lease_still_ends_if_renewal_uses_its_quota(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A renewal got the ending lease's quota, which would count twice if both leases ran."""
        lab = cluster({"a": 4, "b": 4}, nodes=2, gpus=4, policy=POLICY.name)
        lab.submit("a", 4, 4000)
        lab.round()
        lab.submit("a", 4, 4000)
        lab.round(after_s=10)
        lab.round(after_s=890)
        claim = lab.submit("b", 4, LONG_S)
        between(monkeypatch, lambda _: cancel(claim, lab))
        result = lab.round(after_s=10)
        assert result.round
        assert (result.round.summary["renewed"], result.round.summary["ended"]) == (1, 1)
        assert Lease.objects.get(state="running").own <= 4

    def test_moves_no_job(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lab = cluster({"a": 8, "b": 0}, nodes=2, gpus=4, policy=POLICY.name)
        jobs = [lab.submit("a", gpus, LONG_S) for gpus in (3, 1, 3, 1)]
        lab.round()
        done = [jobs[0].pk, jobs[2].pk]
        Job.objects.filter(pk__in=done).update(cancel_asked_at=lab.at)
        lab.round(after_s=10)
        gang = lab.submit("b", 4, LONG_S)
        between(monkeypatch, lambda _: cancel(gang, lab))
        result = lab.round(after_s=10)
        assert not Lease.objects.filter(end_reason="moved").exists()
        assert Lease.objects.filter(state="running").count() == 2
        left_out = why_superseded(result.round)
        (spared,) = (id_ for item, id_, _ in left_out if item == "end")
        grants = {id_ for item, id_, _ in left_out if item == "grant"}
        assert grants == {gang.pk, Lease.objects.get(pk=spared).job_id}


class TestVictim:
    def test_end_is_superseded_if_lease_ended_since_snapshot(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lab, claim = full()

        def finish(decision: Decision) -> None:
            lease = decision.preemptions[0].lease
            Lease.objects.filter(pk=lease).update(
                state="ended", ended_at=lab.at, end_reason="finished"
            )
            LeaseSlot.objects.filter(lease=lease).update(holding=False)
            Job.objects.filter(leases=lease).update(state="succeeded", ended_at=lab.at)

        between(monkeypatch, finish)
        result = lab.round(after_s=60)
        ((item, _, why),) = why_superseded(result.round)
        assert (item, why) == ("end", "the lease had ended since the snapshot")
        assert not LeaseEvent.objects.filter(data__has_key="rule").exists()
        assert Lease.objects.get(job=claim).state == "running"

    def test_job_succeeds_if_it_finishes_while_stopping(self, slow: SlowExecutor) -> None:
        lab = cluster({"c": 4, "d": 4}, nodes=1, gpus=8, policy=POLICY.name)
        done = lab.submit("c", 8, 65)
        lab.round()
        claim = lab.submit("d", 4, LONG_S)
        lab.round(after_s=60)
        assert Lease.objects.get(job=done).state == "stopping"
        lab.round(after_s=10)
        done.refresh_from_db()
        assert (done.state, Lease.objects.get(job=done).end_reason) == ("succeeded", "finished")
        assert Lease.objects.get(job=claim).state == "running"
        assert not slow.stops_now


FAULTS = (
    *("round.mid_write", "round.before_commit", "round.after_commit", "dispatch.before_call"),
    *("dispatch.after_call", "observe.before_commit", "dispatch.after_observe"),
)


class TestFault:
    @pytest.mark.parametrize("point", FAULTS)
    def test_preempting_round_recovers_with_single_notice(self, point: str) -> None:
        lab, claim = full()
        lab.at += timedelta(seconds=60)

        def fail() -> None:
            raise InjectedError(point)

        hook, reached = once(point, fail)
        with arm_faults(hook), pytest.raises(InjectedError):
            lab.round()
        assert reached
        lab.round(after_s=10)
        lab.round(after_s=10)
        assert Lease.objects.get(job=claim).state == "running"
        victim = Lease.objects.get(end_reason="preempted")
        assert victim.state == "ended"
        assert LeaseEvent.objects.filter(data__has_key="rule").count() == 1
        assert not Intent.objects.filter(state="open").exists()
        assert victim.ended_at is not None
        assert victim.started_at is not None
        held = victim.ended_at - victim.started_at
        done = VirtualWork.objects.get(job=victim.job).done_us
        assert done == held // timedelta(microseconds=1)


class TestBooks:
    def test_charge_early_ended_term_for_used_time(self) -> None:
        lab, _ = full(lease_s=900)
        Budget.objects.filter(tenant=lab.tenants["a"]).update(credit_limit=10_000)
        lab.round(after_s=10)  # the first round posted this price
        lab.rounds(2, every_s=450)
        lab.submit("a", 4, LONG_S)
        lab.rounds(2, every_s=450)
        lab.submit("b", 4, LONG_S)
        lab.rounds(4, every_s=60)
        meter_pool(lab.pool.pk)
        assert [v for check in run_checks() for v in check.violations] == []
        early = Lease.objects.filter(end_reason="preempted")
        assert early.exists()
        borrowed = 0
        for lease in early:
            assert lease.ended_at is not None
            assert lease.ended_at < lease.expires_at
            line = UsageLine.objects.filter(lease=lease).order_by("-term")[0]
            assert line.ends_at == lease.ended_at
            rows = UsageLine.objects.filter(lease=lease, meter="borrowed", amount__gt=0)
            for row in rows:
                held_us = int((row.ends_at - row.starts_at).total_seconds() * SECOND_US)
                price_micro = to_micro(row.price)
                assert to_micro(row.amount) == charge_micro(row.gpus, price_micro, held_us)
                borrowed += 1
        assert borrowed
