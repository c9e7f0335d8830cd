"""Test leases that wait until another process has saved its checkpoint and released the GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, End, Grant, Key
from evenshare_core.domain.instants import to_us
from evenshare_core.domain.reasons import EndReason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round
from scheduling.engine import rounds as engine
from scheduling.engine.executors.base import ExecutorError, Report, ReportState, Stop
from scheduling.engine.executors.virtual import VirtualExecutor
from scheduling.models import Intent, Job, Lease, LeaseEvent, LeaseSlot
from tests.factories import BEGIN, Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")


class SlowExecutor(VirtualExecutor):
    """An executor that stops a process only if the test allows it or the process ends by itself."""

    def __init__(self) -> None:
        self.asked: dict[str, Stop] = {}
        self.stops_now = False

    def stop(self, stops: Sequence[Stop]) -> list[Report]:
        """Record the request; report nothing yet."""
        self.asked |= {stop.token: stop for stop in stops}
        return []

    def list(self, pool_id: int, at_us: int) -> list[Report]:
        """Report the running processes, and those that have stopped by now."""
        reports = {report.token: report for report in super().list(pool_id, at_us)}
        if self.stops_now:
            due = [
                Stop(token, stop.job_id, at_us, stop.grace_us)
                for token, stop in self.asked.items()
                if token in reports and reports[token].state is ReportState.RUNNING
            ]
            reports |= {report.token: report for report in super().stop(due)}
        return list(reports.values())


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowExecutor:
    executor = SlowExecutor()
    monkeypatch.setattr(engine, "executor_for", lambda _: executor)
    return executor


def decide_with(monkeypatch: pytest.MonkeyPatch, change: Callable[[Decision], Decision]) -> None:
    """Replace the decisions of the next rounds."""

    def decide(snapshot: Snapshot) -> Decision:
        return change(decide_round(snapshot))

    monkeypatch.setattr(engine, "decide_round", decide)


def move(lab: Cluster, job: Job, monkeypatch: pytest.MonkeyPatch) -> Lease:
    """Run a round that ends the job's lease and grants it the other node; return the old lease."""
    old = Lease.objects.get(job=job)
    (home, gpus), *_ = old.placement
    away = lab.pool.nodes.exclude(pk=home).get().pk
    tenant = job.tenant_id
    key = Key(None, None)
    decide_with(
        monkeypatch,
        lambda decision: replace(
            decision,
            renewals=(),
            ends=(End(old.pk, job.pk, tenant, EndReason.NOT_RENEWED),),
            grants=(Grant(9, job.pk, tenant, "v100", ((away, gpus),), key, own=gpus),),
        ),
    )
    lab.round(after_s=20)
    monkeypatch.setattr(engine, "decide_round", decide_round)
    return old


class TestSuccessor:
    def test_waits_for_gpus_and_takes_them_when_released(self, slow: SlowExecutor) -> None:
        lab = cluster({"a": 4, "b": 4}, nodes=1, gpus=8, lease_s=20, policy="ltgf")
        hog = lab.submit("a", 8, 1000)
        lab.round()
        claim = lab.submit("b", 8, 1000)
        lab.round(after_s=20)
        new = Lease.objects.get(job=claim)
        assert (new.state, new.started_at) == ("waiting", None)
        assert LeaseSlot.objects.filter(lease=new, planned=True, holding=False).count() == 8
        assert Lease.objects.get(job=hog).state == "stopping"
        lab.round(after_s=10)
        slow.stops_now = True
        lab.round(after_s=5)
        lab.round(after_s=5)
        new.refresh_from_db()
        assert (new.state, new.started_at) == ("running", lab.at)
        assert LeaseSlot.objects.filter(lease=new, planned=False, holding=True).count() == 8
        hog.refresh_from_db()
        assert hog.state == "pending"

    def test_releases_slots_if_not_renewed_before_start(
        self, slow: SlowExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lab = cluster({"a": 4, "b": 4}, nodes=1, gpus=8, lease_s=20, policy="ltgf")
        lab.submit("a", 8, 1000)
        lab.round()
        claim = lab.submit("b", 8, 1000)
        lab.round(after_s=20)
        waiting = Lease.objects.get(job=claim)
        end = End(waiting.pk, claim.pk, claim.tenant_id, EndReason.NOT_RENEWED)
        decide_with(monkeypatch, lambda d: replace(d, renewals=(), grants=(), ends=(end,)))
        lab.round(after_s=20)
        waiting.refresh_from_db()
        claim.refresh_from_db()
        assert (waiting.state, waiting.started_at, claim.state) == ("ended", None, "pending")
        ended = LeaseEvent.objects.get(lease=waiting, kind="ended")
        assert ended.data == {"reason": "not_renewed", "exit_code": None, "started": False}
        assert not LeaseSlot.objects.filter(planned=True).exists()


class TestMove:
    def test_waits_for_old_process_even_if_new_gpus_are_free(
        self, slow: SlowExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lab = cluster({"a": 8}, lease_s=20, policy="ltgf")
        job = lab.submit("a", 2, 1000)
        lab.round()
        old = move(lab, job, monkeypatch)
        new = Lease.objects.get(job=job, number=2)
        old.refresh_from_db()
        assert (old.state, new.state) == ("stopping", "waiting")
        slow.stops_now = True
        lab.round(after_s=10)
        job.refresh_from_db()
        new.refresh_from_db()
        assert (job.state, new.state, new.started_at) == ("running", "running", lab.at)

    def test_replacement_of_withdrawn_lease_waits_for_old_process(
        self, slow: SlowExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If two leases of a job held GPUs, every round would fail until the engine answers."""
        lab = cluster({"a": 8}, lease_s=20, policy="ltgf")
        job = lab.submit("a", 2, 1000)
        lab.round()
        old = move(lab, job, monkeypatch)
        waiting = Lease.objects.get(job=job, number=2)
        end = End(waiting.pk, job.pk, job.tenant_id, EndReason.NOT_RENEWED)
        decide_with(monkeypatch, lambda d: replace(d, renewals=(), grants=(), ends=(end,)))
        lab.round(after_s=20)
        monkeypatch.setattr(engine, "decide_round", decide_round)
        lab.round(after_s=20)
        third = Lease.objects.get(job=job, number=3)
        old.refresh_from_db()
        waiting.refresh_from_db()
        assert (old.state, waiting.state, third.state) == ("stopping", "ended", "waiting")
        slow.stops_now = True
        lab.rounds(2, every_s=10)
        old.refresh_from_db()
        third.refresh_from_db()
        job.refresh_from_db()
        assert (old.state, third.state, job.state) == ("ended", "running", "running")

    def test_job_finished_meanwhile_ends_both_leases_without_restart(
        self, slow: SlowExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lab = cluster({"a": 8}, lease_s=20, policy="ltgf")
        job = lab.submit("a", 2, 25)
        lab.round()
        move(lab, job, monkeypatch)
        lab.round(after_s=10)
        lab.rounds(3, every_s=10)
        job.refresh_from_db()
        assert (job.state, job.exit_code) == ("succeeded", 0)
        assert set(Lease.objects.filter(job=job).values_list("state", flat=True)) == {"ended"}
        assert LeaseEvent.objects.filter(job=job, kind="started").count() == 1
        assert not LeaseSlot.objects.filter(planned=True).exists()
        assert not Intent.objects.filter(kind="launch", lease__number=2).exists()


class TestStoppingJob:
    def test_gets_no_lease_unless_moved(
        self, slow: SlowExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its process may still finish. A new lease waits for that end only if the job is moved."""
        lab = cluster({"a": 8}, lease_s=20, policy="ltgf")
        job = lab.submit("a", 2, 1000)
        lab.round()
        lease = Lease.objects.get(job=job)
        end = End(lease.pk, job.pk, job.tenant_id, EndReason.NOT_RENEWED)
        decide_with(monkeypatch, lambda d: replace(d, renewals=(), grants=(), ends=(end,)))
        lab.round(after_s=20)
        lab.submit("a", 1, 1000)  # otherwise the next round would be skipped as quiet
        grant = Grant(1, job.pk, job.tenant_id, "v100", lease.placement, Key(None, None), own=2)
        decide_with(monkeypatch, lambda d: replace(d, renewals=(), grants=(grant,), ends=()))
        result = lab.round(after_s=10)
        assert result.round
        assert result.round.superseded == [
            {"item": "grant", "id": job.pk, "why": "the job no longer waited"}
        ]
        assert Lease.objects.get(job=job).state == "stopping"


class TestReportsOfOneCall:
    def test_become_events_in_chronological_order(
        self, slow: SlowExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lab = cluster({"a": 8})
        for duration_s in (7, 3, 5):
            lab.submit("a", 1, duration_s)
        lab.round()
        listed = slow.list
        monkeypatch.setattr(
            slow,
            "list",
            lambda *about: sorted(listed(*about), key=lambda r: r.ended_us or 0, reverse=True),
        )
        lab.round(after_s=10)
        ends = LeaseEvent.objects.filter(kind="ended").order_by("number")
        assert [(row.at - BEGIN).total_seconds() for row in ends] == [3, 5, 7]


def _silent(*_: object) -> list[Report]:
    raise ExecutorError("not now")


class TestLateReport:
    def test_start_does_not_revive_stopping_lease(
        self, slow: SlowExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lab = cluster({"a": 8}, lease_s=20, policy="ltgf")
        job = lab.submit("a", 2, 1000)
        launch = slow.launch
        monkeypatch.setattr(slow, "launch", lambda launches: launch(launches)[:0])
        monkeypatch.setattr(slow, "list", _silent)
        lab.round()
        lease = Lease.objects.get(job=job)
        assert lease.state == "launching"
        Job.objects.filter(pk=job.pk).update(cancel_asked_at=lab.at)
        lab.round(after_s=10)
        token = f"es-{job.pk}-1"
        started = Report(token, ReportState.RUNNING, to_us(lab.at))
        monkeypatch.setattr(slow, "list", lambda *_: [started])
        lab.round(after_s=10)
        lease.refresh_from_db()
        assert (lease.state, lease.started_at is not None) == ("stopping", True)
