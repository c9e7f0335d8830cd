"""Test that an operator can end a lease whose engine does not: its GPUs, charge and process."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import timedelta

import pytest

from billing.checks import run_checks
from billing.metering import meter_pool
from billing.models import UsageLine
from evenshare_core.domain.instants import to_us
from scheduling.engine import rounds as engine
from scheduling.engine.clock import wall_now
from scheduling.engine.executors.base import ExecutorError, Report, Stop
from scheduling.engine.executors.virtual import VirtualExecutor
from scheduling.models import (
    ExecutorHealth,
    Job,
    Lease,
    LeaseEvent,
    Node,
    PoolClock,
    RoundSealing,
    VirtualWork,
)
from scheduling.requests.leases import EndLeaseRequest, Processes
from scheduling.selectors.operate.overdue import (
    ROUNDS_LATER,
    OverdueLease,
    StopAnswer,
    orphan_processes,
    overdue_leases,
)
from scheduling.selectors.rounds.replay import find_rounds, replay_stored_round
from scheduling.services.write_offs import end_lease
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError
from tenants.models import AuditRecord, User
from tenants.scopes import site_scope
from tests.factories import BEGIN, Cluster, cluster
from tests.stages import staged

GRACE_S = 30


class StubbornExecutor(VirtualExecutor):
    """An executor that ends no process on request until the test allows it."""

    def __init__(self) -> None:
        self.heeds, self.is_silent = False, False

    def stop(self, stops: Sequence[Stop]) -> builtins.list[Report]:
        self._answer()
        return super().stop(stops) if self.heeds else []

    def list(self, pool_id: int, at_us: int) -> builtins.list[Report]:
        self._answer()
        return super().list(pool_id, at_us)

    def _answer(self) -> None:
        if self.is_silent:
            raise ExecutorError("did not answer within 5 s")


class Stage:
    """A pool in which job `runs` holds one of two nodes, and job `waits` needs both."""

    def __init__(self) -> None:
        self.lab: Cluster = cluster({"a": 4, "b": 8}, grace_s=GRACE_S)
        self.executor = StubbornExecutor()
        self.actor = Actor(User.objects.create(username="eve", site_role=User.SiteRole.OPERATOR))
        self.runs = self.lab.submit("a", 4, 100_000)
        self.round(0)
        self.waits = self.lab.submit("b", 8, 1000)
        self.round()

    def round(self, after_s: int = 10) -> None:
        """Run a round, and set the pool's clock to the time of the round."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "executor_for", lambda _: self.executor)
            self.lab.round(after_s=after_s)
        PoolClock.objects.filter(pool=self.lab.pool).update(
            anchor_pool=self.lab.at, anchor_wall=wall_now()
        )

    def cancel(self) -> None:
        """Cancel the job, and run a round that asks the engine to end it."""
        Job.objects.filter(pk=self.runs.pk).update(cancel_asked_at=self.lab.at)
        self.round()

    def lease(self, job: Job | None = None) -> Lease:
        return Lease.objects.get(job=job or self.runs)

    def end(self, processes: Processes = Processes.GONE) -> bool:
        request = EndLeaseRequest(processes=processes, reason="node is dead")
        return end_lease(
            actor=self.actor, pool=self.lab.pool, job=self.runs.uid, number=1, request=request
        )

    def overdue(self) -> list[OverdueLease]:
        with site_scope():
            return overdue_leases(self.lab.pool, self.lab.at, 1)

    def orphans(self) -> list[int]:
        with site_scope():
            return [len(row.orphans) for row in orphan_processes()]


def overdue_stage() -> Stage:
    """Return a stage whose job is cancelled, and not ended by its engine within the notice."""
    stage = Stage()
    stage.cancel()
    for _ in range(GRACE_S // 10 + ROUNDS_LATER):
        stage.round()
    return stage


stage = staged(overdue_stage)
fresh = staged(Stage)


class TestOverdueLease:
    def test_ends_at_deadline_of_notice_and_frees_gpus(self, stage: Stage) -> None:
        (row,) = stage.overdue()
        due = BEGIN + timedelta(seconds=20 + GRACE_S)
        assert (row.due, row.engine, row.reason) == (due, StopAnswer.RUNS, "cancelled")
        assert (stage.end(), stage.end()) == (True, False)
        assert stage.overdue()[0].is_written_off
        stage.round()
        lease = stage.lease()
        assert (lease.state, lease.end_reason, lease.ended_at) == ("ended", "cancelled", due)
        stage.runs.refresh_from_db()
        assert (stage.runs.state, stage.runs.ended_at) == ("cancelled", due)
        event = LeaseEvent.objects.get(lease=lease, kind="ended")
        assert (event.at, event.data["written_off"]) == (due, True)
        assert stage.lease(stage.waits).state == "running"
        assert stage.overdue() == []
        assert ExecutorHealth.objects.get().written_off == []
        assert AuditRecord.objects.filter(action="lease.written_off").count() == 1

    def test_is_charged_until_deadline_and_rounds_replay(self, stage: Stage) -> None:
        stage.end()
        for _ in range(3):
            stage.round()
        meter_pool(stage.lab.pool.pk)
        lines = UsageLine.objects.filter(lease=stage.lease())
        assert {(row.meter, row.ends_at, row.charged_until) for row in lines} == {
            (meter, stage.lease().ended_at, None) for meter in ("own", "borrowed")
        }
        assert [text for result in run_checks() for text in result.violations] == []
        with site_scope():
            for stored in find_rounds(stage.lab.pool.name, [], every=True):
                assert replay_stored_round(stored).same, stored.number
        stage.lab.seal()
        assert RoundSealing.objects.get(pool=stage.lab.pool).findings == []

    def test_can_be_written_off_while_engine_is_silent(self, stage: Stage) -> None:
        stage.executor.is_silent = True
        stage.round()
        assert stage.overdue()[0].engine is StopAnswer.SILENT
        stage.end()
        stage.round()
        assert stage.lease().state == "ended"
        # The engine did not answer, so the row of the job's work did not change.
        assert VirtualWork.objects.get(job=stage.runs).token

    def test_still_running_process_is_stopped_and_not_adopted(self, stage: Stage) -> None:
        stage.end()
        stage.round()
        stage.round()
        assert stage.lease().state == "ended"
        assert stage.orphans() == [1]
        stage.executor.heeds = True
        stage.round()
        assert stage.orphans() == []
        assert VirtualWork.objects.get(job=stage.runs).token == ""
        assert LeaseEvent.objects.filter(lease=stage.lease(), kind="ended").count() == 1

    def test_ends_by_report_of_engine_if_it_comes_first(self, stage: Stage) -> None:
        stage.end()
        stage.executor.heeds = True
        VirtualWork.objects.filter(job=stage.runs).update(stopped_us=to_us(stage.lab.at))
        stage.round()
        event = LeaseEvent.objects.get(lease=stage.lease(), kind="ended")
        assert "written_off" not in event.data
        assert ExecutorHealth.objects.get().written_off == []

    def test_node_is_drained_if_its_processes_are_unknown(self, stage: Stage) -> None:
        stage.end(Processes.UNKNOWN)
        node = stage.lease().placement[0][0]
        assert Node.objects.get(pk=node).effective_state == "drained"
        for _ in range(2):
            stage.round()
        assert stage.lease().state == "ended"
        assert not Lease.objects.filter(job=stage.waits).exclude(state="ended").exists()
        stage.waits.refresh_from_db()
        assert stage.waits.state == "pending"
        assert AuditRecord.objects.filter(action="node.drained").count() == 1


def refusal(stage: Stage) -> str:
    with pytest.raises(InvalidInputError) as refused:
        stage.end()
    (error,) = refused.value.errors
    assert error.field == "lease"
    return error.reason


class TestLeaseNotOverdue:
    def test_cannot_be_written_off(self, fresh: Stage) -> None:
        assert "It was not asked to end: cancel the job" in refusal(fresh)
        fresh.cancel()
        assert fresh.lease().state == "stopping"
        assert "wait until then" in refusal(fresh)
        assert fresh.overdue() == []
        fresh.executor.heeds = True
        VirtualWork.objects.filter(job=fresh.runs).update(stopped_us=to_us(fresh.lab.at))
        fresh.round()
        assert "has already ended (cancelled)" in refusal(fresh)
        fresh.lab.pool = cluster({"z": 1}).pool
        assert "no such lease" in refusal(fresh)
        assert not AuditRecord.objects.filter(action="lease.written_off").exists()
