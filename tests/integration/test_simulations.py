"""Test simulations of a pool's next hours: limits, ends, and that they change nothing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evenshare_core.policies.registry import DEFAULT
from scheduling import tasks
from scheduling.engine.clock import wall_now
from scheduling.engine.snapshots import read_snapshot
from scheduling.models import Job, Lease, PoolClock, Round, RoundState, Simulation
from scheduling.requests.simulations import LeaseComparisonRequest, SimulationRequest
from scheduling.selectors.jobs.work_left import work_done, work_left
from scheduling.services import simulations as service
from scheduling.services.execute_simulation import execute_simulation
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError
from tenants.input.requests import read_request
from tenants.models import AuditRecord, User
from tests.factories import Cluster, cluster
from tests.stages import staged
from tests.tools import eventually


def crowded_lab() -> Cluster:
    """Return a pool of 8 GPUs; both tenants need more than their quota of 4, one job has ended."""
    made = cluster({"north": 4, "south": 4}, round_s=30)
    made.submit("north", 1, 90)
    made.round()
    made.round(after_s=120)
    for index in range(6):
        made.submit("north", 2, 4000, estimate_s=3000 + 600 * index)
        made.submit("south", 1, 4000)
    made.rounds(3, every_s=30)
    PoolClock.objects.filter(pool=made.pool).update(anchor_pool=made.at, anchor_wall=wall_now())
    return made


lab = staged(crowded_lab)


@pytest.fixture
def operator() -> Actor:
    return Actor(User.objects.create(username="eve", site_role=User.SiteRole.OPERATOR))


def ask(lab: Cluster, actor: Actor, policy: str = "fifo", hours: int = 6, **options: Any) -> Any:
    asked = {"policy": policy, "options": options, "hours": hours}
    wanted = read_request(SimulationRequest, asked)
    return service.request_simulation(actor=actor, pool_id=lab.pool.pk, request=wanted)


def every_beat() -> Callable[[], float]:
    """Return a timer by which four rounds take a second, so every fourth round reports progress."""
    return itertools.count(0, 0.25).__next__


def run(row: Simulation, **options: Any) -> str:
    """Claim a simulation and run it in this process."""
    (((found, claim)),) = service.claim_simulations()
    assert found == row.pk
    state = execute_simulation(found, claim, **{"timer": every_beat(), **options})
    row.refresh_from_db()
    return state


class TestRequest:
    def test_creates_row_and_audit_record(self, lab: Cluster, operator: Actor) -> None:
        row = ask(lab, operator)
        assert (row.state, row.hours, row.policy) == ("queued", 6, "fifo")
        record = AuditRecord.objects.get()
        assert (record.action, record.subject) == ("simulation.asked", f"pool {lab.pool.name}")
        assert record.after["simulation"] == row.pk

    def test_is_restricted_to_operators(self, lab: Cluster) -> None:
        nobody = Actor(User.objects.create(username="ada"))
        with pytest.raises(PermissionDenied):
            ask(lab, nobody)
        assert not Simulation.objects.exists()

    @pytest.mark.parametrize(
        ("asked", "field"),
        [
            ({"policy": "magic"}, "policy"),
            ({"hours": 5}, "hours"),
            ({"policy": "ltgf", "spread": 3}, "options.spread"),
            ({"policy": "ltgf", "magic": 3}, "options.magic"),
        ],
    )
    def test_names_invalid_field(
        self, lab: Cluster, operator: Actor, asked: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(InvalidInputError) as refused:
            ask(lab, operator, **asked)
        assert set(refused.value.by_field) == {field}
        assert not Simulation.objects.exists()

    def test_rejects_third_simulation_of_pool(self, lab: Cluster, operator: Actor) -> None:
        first = ask(lab, operator)
        ask(lab, operator)
        with pytest.raises(InvalidInputError, match="Cancel one, or wait"):
            ask(lab, operator)
        service.cancel_simulation(actor=operator, simulation_id=first.pk)
        assert ask(lab, operator).state == "queued"

    def test_rejects_too_much_work_and_suggests_alternative(
        self, lab: Cluster, operator: Actor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jobs = Job.objects.filter(state__in=Job.ACTIVE_STATES).count()
        monkeypatch.setattr(service, "WORK_MOST", jobs * 24 * 120 * 2)
        with pytest.raises(InvalidInputError, match=r"8,640 rounds.*Choose at most 24 h"):
            ask(lab, operator, hours=72)
        assert ask(lab, operator, hours=24).state == "queued"
        monkeypatch.setattr(service, "WORK_MOST", 1)
        with pytest.raises(InvalidInputError, match="Try again when fewer jobs are open"):
            ask(lab, operator, hours=6)

    @pytest.mark.usefixtures("committed_db")
    def test_rejects_empty_queue(self, operator: Actor) -> None:
        with pytest.raises(InvalidInputError, match="is queued or running"):
            ask(cluster({"north": 4}), operator)


class TestSimulationRun:
    def test_compares_both_policies_from_same_start(self, lab: Cluster, operator: Actor) -> None:
        row = ask(lab, operator)
        assert run(row) == "done", row.error
        assert row.progress_milli == 1000
        own, other = (one["row"] for one in row.result["runs"])
        assert (own["policy"], other["policy"]) == (DEFAULT, "fifo")
        assert own["jobs"] == other["jobs"] == 12
        assert own["finished"] + own["running"] + own["waiting"] == 12
        assert own["deadline_miss_rate"] is None
        assert len(own["sha256"]) == len(row.snapshot_sha256) == 64
        assert [one["tenant"] for one in row.result["runs"][0]["tenants"]] == sorted(
            tenant.pk for tenant in lab.tenants.values()
        )

    def test_current_policy_is_simulated_once(self, lab: Cluster, operator: Actor) -> None:
        row = ask(lab, operator, DEFAULT)
        run(row)
        assert len(row.result["runs"]) == 1

    def test_other_option_is_compared_with_current_one(self, lab: Cluster, operator: Actor) -> None:
        row = ask(lab, operator, "ltgf", spread=True)
        run(row)
        assert [one["row"]["options"].get("spread") for one in row.result["runs"]] == [None, True]

    def test_changes_nothing_in_pool_and_holds_no_transaction(
        self, lab: Cluster, operator: Actor
    ) -> None:
        def rows() -> list[Any]:
            return [
                list(Job.objects.order_by("id").values()),
                list(Lease.objects.order_by("id").values()),
                list(RoundState.objects.order_by("number").values()),
                Round.objects.count(),
            ]

        before, looks = rows(), []

        def look() -> bool:
            looks.append(connection.in_atomic_block)
            return False

        assert run(ask(lab, operator), is_orphan=look) == "done"
        assert rows() == before
        assert len(looks) > 10
        assert not any(looks)

    def test_rounds_continue_during_simulation(self, lab: Cluster, operator: Actor) -> None:
        outcomes: list[str] = []

        def round_between() -> bool:
            if len(outcomes) < 3:
                outcomes.append(lab.round(after_s=30).outcome.value)
            return False

        assert run(ask(lab, operator), is_orphan=round_between) == "done"
        assert outcomes == ["committed"] * 3


class TestRemainingWork:
    def test_is_estimate_minus_completed_work(self, lab: Cluster) -> None:
        snapshot = read_snapshot(lab.pool.pk, number=9, at=lab.at + timedelta(seconds=30))
        work, assumed = work_left(snapshot)
        lease = next(one for one in snapshot.leases if one.tenant == lab.tenants["north"].pk)
        job = next(job for job in snapshot.jobs if job.id == lease.job)
        assert job.estimate_us is not None
        held_us = snapshot.at_us - lease.started_us
        assert work[job.id].left_us == job.estimate_us - held_us > 0
        assert assumed.estimate == 6

    def test_defaults_to_median_of_tenant_then_pool_then_one_hour(self, lab: Cluster) -> None:
        """A job of north ended after 90 s; no job of south has ended."""
        lab.submit("north", 1, 50)
        lab.round(after_s=30)
        snapshot = read_snapshot(lab.pool.pk, number=9, at=lab.at + timedelta(seconds=30))
        work, assumed = work_left(snapshot)
        assert (assumed.tenant, assumed.pool, assumed.unknown) == (1, 6, 0)
        assert assumed.pool_s == 90
        waits = max(job.id for job in snapshot.jobs)
        assert work[waits].left_us == 90_000_000
        Job.objects.filter(state="succeeded").update(state="cancelled")
        assert work_left(snapshot)[1].unknown == 7

    def test_equals_elapsed_time_past_estimate(self, lab: Cluster) -> None:
        at = lab.at + timedelta(seconds=600)
        snapshot = read_snapshot(lab.pool.pk, number=9, at=at)
        work, assumed = work_left(snapshot)
        past = [lease for lease in snapshot.leases if lease.tenant == lab.tenants["south"].pk]
        assert assumed.past == len(past) > 0
        assert work[past[0].job].left_us == snapshot.at_us - past[0].started_us

    def test_is_unaffected_by_events_after_snapshot(self, lab: Cluster) -> None:
        lab.rounds(3, every_s=400)
        snapshot = read_snapshot(lab.pool.pk, number=99, at=lab.at)
        before = work_left(snapshot)
        for _ in range(6):
            lab.round(after_s=300)
        assert Lease.objects.filter(
            state="ended", ended_at__gt=lab.at - timedelta(hours=1)
        ).exists()
        assert work_left(snapshot) == before

    def test_counts_ended_leases(self, lab: Cluster) -> None:
        for _ in range(8):
            lab.round(after_s=300)
        snapshot = read_snapshot(lab.pool.pk, number=99, at=lab.at + timedelta(seconds=30))
        work, _ = work_left(snapshot)
        with CaptureQueriesContext(connection) as context:
            done = work_done(snapshot)
        assert len(context) == 1, "no medians, which nobody asked for"
        assert set(done) == set(work)
        for job_id, row in work.items():
            over = Lease.objects.filter(job=job_id, state="ended")
            held = [
                one.ended_at - one.started_at for one in over if one.ended_at and one.started_at
            ]
            assert row.held_us == sum(held, timedelta()).total_seconds() * 1_000_000
            assert row.leases == len(over)
            assert done[job_id] == row._replace(left_us=0)
        assert any(row.leases for row in work.values())


class TestLeaseLengths:
    def test_equals_tune_lease_with_measured_restart(self, lab: Cluster, operator: Actor) -> None:
        wanted = read_request(LeaseComparisonRequest, {"days": 1, "restart_s": 20})
        row = service.request_lease_comparison(actor=operator, pool_id=lab.pool.pk, request=wanted)
        assert AuditRecord.objects.get().after["options"] == {"restart_s": 20}
        assert run(row) == "done", row.error
        printed = StringIO()
        call_command(
            *("tune_lease", "--pool", lab.pool.name, "--days", "1", "--cold-s", "20", "--json"),
            stdout=printed,
            stderr=StringIO(),
        )
        figures = json.loads(printed.getvalue())
        assert row.result is not None
        assert row.result["recommended"]["lease_s"] == figures["recommended_s"]
        assert row.result["rows"] == figures["lengths"]
        assert len({one["avg_jct_s"] for one in figures["lengths"]}) > 1
        assert not any("Length" in text for text in row.result["remarks"])

    @pytest.mark.usefixtures("committed_db")
    def test_no_jobs_is_explained_without_option_of_command(self, operator: Actor) -> None:
        empty = cluster({"north": 4})
        wanted = read_request(LeaseComparisonRequest, {"days": 3})
        row = service.request_lease_comparison(
            actor=operator, pool_id=empty.pool.pk, request=wanted
        )
        assert run(row) == "failed"
        assert row.error.startswith(f"Pool {empty.pool.name} has no job to simulate")

    def test_is_restricted_to_operators_and_two_per_pool(
        self, lab: Cluster, operator: Actor
    ) -> None:
        wanted = read_request(LeaseComparisonRequest, {"days": 7})
        nobody = Actor(User.objects.create(username="ada"))
        with pytest.raises(PermissionDenied):
            service.request_lease_comparison(actor=nobody, pool_id=lab.pool.pk, request=wanted)
        ask(lab, operator)
        ask(lab, operator)
        with pytest.raises(InvalidInputError, match="Cancel one, or wait"):
            service.request_lease_comparison(actor=operator, pool_id=lab.pool.pk, request=wanted)


class TestUnfinishedSimulation:
    def test_cancelled_while_running_stops_at_next_check(
        self, lab: Cluster, operator: Actor
    ) -> None:
        row, looks = ask(lab, operator), []

        def cancel() -> bool:
            looks.append(service.cancel_simulation(actor=operator, simulation_id=row.pk))
            return False

        assert run(row, is_orphan=cancel) == ""
        assert looks == [True]
        assert (row.state, row.result) == ("cancelled", None)
        actions = AuditRecord.objects.order_by("id").values_list("action", flat=True)
        assert list(actions) == ["simulation.asked", "simulation.cancelled"]

    def test_cancelled_before_start_never_runs(self, lab: Cluster, operator: Actor) -> None:
        row = ask(lab, operator)
        service.cancel_simulation(actor=operator, simulation_id=row.pk)
        assert service.claim_simulations() == []
        assert not service.cancel_simulation(actor=operator, simulation_id=row.pk)

    def test_timeout_fails_with_advice(self, lab: Cluster, operator: Actor) -> None:
        row = ask(lab, operator)
        assert run(row, timer=itertools.count(0, 400).__next__) == "failed"
        assert "longer than 10 minutes" in row.error
        assert "Choose a shorter time" in row.error

    def test_fails_if_worker_is_gone(self, lab: Cluster, operator: Actor) -> None:
        row = ask(lab, operator)
        assert run(row, is_orphan=lambda: True) == "failed"
        assert "worker that started it was stopped" in row.error

    def test_reports_error_of_policy(
        self, lab: Cluster, operator: Actor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        row = ask(lab, operator)
        Simulation.objects.filter(pk=row.pk).update(options={"magic": 1})
        assert run(row) == "failed"
        assert "magic: unknown option" in row.error

    def test_lost_simulation_is_failed_by_housekeeping(self, lab: Cluster, operator: Actor) -> None:
        row = ask(lab, operator)
        ((found, claim),) = service.claim_simulations()
        tasks.housekeeping()
        row.refresh_from_db()
        assert row.state == "running", "its last sign of life is new"
        Simulation.objects.filter(pk=found).update(beat_at=wall_now() - timedelta(minutes=2))
        tasks.housekeeping()
        row.refresh_from_db()
        assert (row.state, row.ended_at is not None) == ("failed", True)
        assert "start it again" in row.error
        assert execute_simulation(found, claim, timer=every_beat()) == ""
        assert not service.beat_simulation(found, claim, 500)


class TestSimulationProcess:
    def test_runs_one_at_a_time_in_order(self, lab: Cluster, operator: Actor) -> None:
        first, second = ask(lab, operator), ask(lab, operator, hours=24)
        assert tasks.simulations() == 1
        assert tasks.simulations() == 0

        def turned() -> bool:
            tasks.simulations()
            states = Simulation.objects.filter(pk__in=[first.pk, second.pk]).order_by("pk")
            return list(states.values_list("state", flat=True)) == ["done", "done"]

        eventually(turned)
        first.refresh_from_db()
        second.refresh_from_db()
        assert first.ended_at < second.started_at
        eventually(lambda: tasks.simulations() == 0 and not tasks._simulations)

    def test_kill_is_detected_at_next_check(self, lab: Cluster, operator: Actor) -> None:
        row = ask(lab, operator)
        tasks.simulations()
        (process,) = tasks._simulations.values()
        process.kill()
        process.wait()
        tasks.simulations()
        row.refresh_from_db()
        assert row.state == "failed"
        assert "its worker was stopped" in row.error
        assert not tasks._simulations

    def test_is_ended_if_cancelled(self, lab: Cluster, operator: Actor) -> None:
        row = ask(lab, operator)
        tasks.simulations()
        (process,) = tasks._simulations.values()
        service.cancel_simulation(actor=operator, simulation_id=row.pk)
        tasks.simulations()
        assert process.wait() in (-9, 0)
        tasks.simulations()
        row.refresh_from_db()
        assert row.state == "cancelled"
        assert not tasks._simulations
