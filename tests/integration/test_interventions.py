"""Test the effects of users and faults on rounds: cancellations, rounds on demand, a faulty job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.formulations import shares
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.options import OptionError
from scheduling.engine import rounds as engine
from scheduling.engine.quarantine import find_faulty_job
from scheduling.engine.rounds import RoundOutcome, execute_round
from scheduling.models import Job, Lease, LeaseEvent, LeaseSlot
from scheduling.selectors.rounds.replay import find_rounds, replay_stored_round
from scheduling.services.pools import complete_options
from tenants.input.errors import FieldErrors
from tests.factories import BEGIN, Cluster, cluster
from tests.patience import some


def cancel(lab: Cluster, job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(cancel_asked_at=lab.at)


@pytest.mark.usefixtures("committed_db")
class TestCancellation:
    def test_ends_lease_and_charges_until_then(self) -> None:
        lab = cluster({"a": 8})
        job = lab.submit("a", 4, 1000)
        lab.round()
        lab.at += timedelta(seconds=7)
        cancel(lab, job)
        lab.round(after_s=3)
        job.refresh_from_db()
        lease = Lease.objects.get(job=job)
        assert (job.state, job.ended_at) == ("cancelled", BEGIN + timedelta(seconds=10))
        assert (lease.state, lease.end_reason) == ("ended", "cancelled")
        assert not LeaseSlot.objects.filter(holding=True).exists()
        kinds = LeaseEvent.objects.filter(job=job).order_by("number").values_list("kind", flat=True)
        assert list(kinds) == ["granted", "started", "stop_asked", "ended"]

    def test_ends_job_that_was_preempted_meanwhile(self) -> None:
        lab = cluster({"a": 4, "b": 4}, nodes=1, gpus=8, lease_s=20, policy="ltgf")
        hog = lab.submit("a", 8, 1000)
        lab.round()
        lab.submit("b", 8, 1000)
        lab.round(after_s=20)
        hog.refresh_from_db()
        assert hog.state == "pending"
        cancel(lab, hog)
        lab.round(after_s=10)
        hog.refresh_from_db()
        assert hog.state == "cancelled"

    def test_is_idempotent(self) -> None:
        lab = cluster({"a": 8})
        job = lab.submit("a", 4, 1000)
        lab.round()
        cancel(lab, job)
        lab.round(after_s=10)
        cancel(lab, job)
        lab.rounds(3, every_s=10)
        assert LeaseEvent.objects.filter(job=job, kind="stop_asked").count() == 1


@pytest.mark.usefixtures("committed_db")
class TestRoundOnDemand:
    def test_starts_job_between_two_grid_times(self) -> None:
        lab = cluster({"a": 8}, on_demand=True)
        lab.submit("a", 1, 1000)
        lab.round()
        lab.at += timedelta(seconds=3)
        late = lab.submit("a", 1, 1000)
        result = execute_round(lab.pool.pk, now=lab.now(), on_demand=True)
        assert result.outcome is RoundOutcome.COMMITTED
        assert Lease.objects.get(job=late).started_at == BEGIN + timedelta(seconds=3)

    def test_runs_at_most_once_a_second(self) -> None:
        lab = cluster({"a": 8}, on_demand=True)
        lab.submit("a", 1, 1000)
        lab.round()
        outcomes = []
        for _ in range(8):
            lab.at += timedelta(milliseconds=250)
            lab.submit("a", 1, 1000)
            outcomes.append(execute_round(lab.pool.pk, now=lab.now(), on_demand=True).outcome)
        assert outcomes.count(RoundOutcome.COMMITTED) == 2

    def test_quiet_round_does_not_delay_it(self) -> None:
        lab = cluster({"a": 8}, on_demand=True)
        lab.submit("a", 1, 1000)
        lab.rounds(2, every_s=10)
        assert lab.round(after_s=10).outcome is RoundOutcome.QUIET
        lab.at += timedelta(milliseconds=100)
        late = lab.submit("a", 1, 1000)
        result = execute_round(lab.pool.pk, now=lab.now(), on_demand=True)
        assert result.outcome is RoundOutcome.COMMITTED
        assert Lease.objects.get(job=late).started_at == lab.at

    def test_is_not_due_if_pool_disallows_it(self) -> None:
        lab = cluster({"a": 8})
        lab.submit("a", 1, 1000)
        lab.round()
        lab.at += timedelta(seconds=3)
        assert (
            execute_round(lab.pool.pk, now=lab.now(), on_demand=True).outcome
            is RoundOutcome.NOT_DUE
        )


class BadJobError(Exception):
    """The error of the broken policy."""


def breaking_on(*names: int) -> Callable[[Snapshot], Decision]:
    """Return a `decide_round` that fails if one of these jobs is in the snapshot."""

    def decide(snapshot: Snapshot) -> Decision:
        for job in snapshot.jobs:
            if job.id in names:
                raise BadJobError(f"cannot digest job {job.id}")
        return decide_round(snapshot)

    return decide


@pytest.mark.usefixtures("committed_db")
class TestMissingSolver:
    def test_is_rejected_as_setting_and_quarantines_no_job(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lab = cluster({"a": 8}, policy="oef", options={"backend": "pyomo"})
        job = lab.submit("a", 1, 1000)
        monkeypatch.setitem(shares.BACKENDS, "pyomo", ("nowhere_at_all", "Pyomo"))
        errors = FieldErrors()
        complete_options("oef", {"backend": "pyomo"}, errors)
        assert [error.field for error in errors.errors] == ["options.backend"]
        with pytest.raises(OptionError, match="'pyomo' is not installed"):
            lab.round()
        job.refresh_from_db()
        assert (job.state, job.quarantine) == ("pending", "")


@pytest.mark.usefixtures("committed_db")
class TestFaultyJob:
    def test_is_quarantined_with_reason_and_round_continues(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lab = cluster({"a": 8})
        jobs = [lab.submit("a", 1, 1000) for _ in range(6)]
        bad = jobs[2]
        monkeypatch.setattr(engine, "decide_round", breaking_on(bad.pk))
        result = lab.round()
        bad.refresh_from_db()
        assert result.outcome is RoundOutcome.COMMITTED
        assert (bad.state, bad.reason_code) == ("pending", "quarantined")
        assert bad.quarantine == f"BadJobError: cannot digest job {bad.pk}"
        assert Lease.objects.count() == 5
        lab.rounds(2, every_s=10)
        assert all(replay_stored_round(r).same for r in find_rounds(lab.pool.name, [], every=True))

    def test_runs_after_release(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lab = cluster({"a": 8})
        bad = lab.submit("a", 1, 1000)
        with monkeypatch.context() as broken:
            broken.setattr(engine, "decide_round", breaking_on(bad.pk))
            lab.round()
        Job.objects.filter(pk=bad.pk).update(quarantine="")
        lab.round(after_s=10)
        bad.refresh_from_db()
        assert bad.state == "running"

    def test_failing_policy_quarantines_no_job(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lab = cluster({"a": 8})
        lab.submit("a", 1, 1000)

        def broken(_: Snapshot) -> Decision:
            raise BadJobError("always")

        monkeypatch.setattr(engine, "decide_round", broken)
        with pytest.raises(BadJobError):
            lab.round()
        assert not Job.objects.exclude(quarantine="").exists()


@pytest.mark.usefixtures("committed_db")
def test_finds_each_of_several_faulty_jobs() -> None:
    lab = cluster({"a": 8})
    ids = [lab.submit("a", 1, 1000).pk for _ in range(12)]
    from scheduling.engine.snapshots import read_snapshot

    snapshot = read_snapshot(lab.pool.pk, number=1, at=BEGIN)

    @settings(max_examples=some())
    @given(st.sets(st.sampled_from(ids), min_size=1, max_size=4))
    def finds(bad: set[int]) -> None:
        faulty_job = find_faulty_job(snapshot, breaking_on(*bad))
        assert faulty_job is not None
        assert faulty_job.id in bad

    finds()
