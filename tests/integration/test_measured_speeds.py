"""Test how the iterations that processes report determine the speeds that rounds use."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from evenshare_core.domain.instants import to_us
from evenshare_core.units import SECOND_US
from scheduling.engine.executors.base import Iterations, Report, ReportState, lease_token
from scheduling.engine.fence import FencedError, take_fence
from scheduling.engine.measure import NOTES_MAX, ROWS_MAX, measure
from scheduling.models import (
    IterationReading,
    Job,
    Lease,
    Measurement,
    MeasurementNote,
    Pool,
    Profile,
    Round,
    VirtualSpeeds,
    VirtualWork,
)
from scheduling.requests.profiles import read_profile_request
from scheduling.selectors.rounds.replay import replay_stored_round
from scheduling.selectors.rounds.stored import round_values
from scheduling.services.profiles import drop_profile, put_profile
from tenants.audit import Actor
from tenants.models import User
from tests.factories import Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")

TRUE = {"k80": 1000, "v100": 3730}
ITERATION_US = 250_000


@pytest.fixture
def lab() -> Cluster:
    lab = cluster({"a": 4, "b": 4}, lease_s=60, policy="ltgf")
    lab.add_type("k80", nodes=2, gpus=4, quotas={"a": 4, "b": 4})
    return lab


def job_type(lab: Cluster, name: str = "gru", **declared: int) -> Profile:
    """Create a job type that really runs at the speeds `TRUE`, whatever it declares."""
    profile = lab.profile("a", name, **(declared or TRUE))
    VirtualSpeeds.objects.create(
        profile=profile, tenant=profile.tenant, speedups=TRUE, iteration_us=ITERATION_US
    )
    return profile


def submit(lab: Cluster, profile: Profile, kind: str, **fields: Any) -> Job:
    given: dict[str, Any] = {"gpus": 1, "duration_s": 5000, **fields}
    return lab.submit("a", profile=profile, gpu_types=[kind], **given)


def play(lab: Cluster, rounds: int) -> None:
    for _ in range(rounds):
        lab.round(after_s=10)


class TestVirtualPool:
    def test_measures_true_speeds(self, lab: Cluster) -> None:
        profile = job_type(lab)
        for kind in TRUE:
            submit(lab, profile, kind)
        lab.round()
        play(lab, 10)
        rows = {row.gpu_type: row for row in Measurement.objects.filter(profile=profile)}
        for kind, milli in TRUE.items():
            row = rows[kind]
            assert (row.kind, row.gpus, row.several_nodes) == ("iteration", 1, False)
            assert row.mean == pytest.approx(ITERATION_US * 1000 * 1000 / milli, rel=1e-4)
            assert row.average.spread_milli <= 1
            assert row.reports == 10
            assert row.iterations == 100 * milli * SECOND_US // (1000 * ITERATION_US)
            assert row.seen_at == lab.at
        profile.refresh_from_db()
        assert profile.source == Profile.Source.MEASURED
        assert profile.speedups == TRUE
        assert profile.measured["v100"]["speed_milli"] == pytest.approx(3730, abs=1)

    def test_rounds_use_measured_speeds_and_declared_speeds_are_kept(self, lab: Cluster) -> None:
        profile = job_type(lab, k80=1000, v100=9000)
        for kind in TRUE:
            submit(lab, profile, kind)
        lab.round()
        assert speeds_of_last_round(lab) == {"k80": 1000, "v100": 9000}
        play(lab, 8)
        profile.refresh_from_db()
        assert profile.declared == {"k80": 1000, "v100": 9000}
        used = speeds_of_last_round(lab)
        assert used == profile.speedups
        assert used["v100"] == pytest.approx(3730, abs=1)
        (note,) = MeasurementNote.objects.filter(kind="used")
        assert note.data["before"] == {"k80": 1000, "v100": 9000}
        snapshot, _ = round_values(Round.objects.filter(pool=lab.pool).latest("number"))
        (row,) = snapshot.measured
        assert (row.id, row.declared) == (profile.pk, (("k80", 1000), ("v100", 9000)))
        assert dict(row.measured) == profile.as_measured
        first, _ = round_values(Round.objects.filter(pool=lab.pool).earliest("number"))
        assert (first.measured, first.schema, snapshot.schema) == ((), 2, 9)
        assert all(replay_stored_round(row).same for row in Round.objects.filter(pool=lab.pool))

    def test_new_declaration_does_not_change_measured_speeds(self, lab: Cluster) -> None:
        profile = job_type(lab)
        for kind in TRUE:
            submit(lab, profile, kind)
        lab.round()
        play(lab, 8)
        wanted = read_profile_request("gru", {"speeds": {"k80": "1", "v100": "50"}})
        actor = Actor(User.objects.create_user("ann"), "request-1")
        row = put_profile(
            tenant=profile.tenant, actor=actor, pool_id=lab.pool.pk, name="gru", request=wanted
        )
        assert row.declared == {"k80": 1000, "v100": 50_000}
        assert row.speedups == TRUE
        assert row.source == Profile.Source.MEASURED

    def test_first_lease_runs_at_true_speed(self, lab: Cluster) -> None:
        job = submit(lab, job_type(lab, k80=1000, v100=9000), "v100", duration_s=373)
        lab.round()
        assert VirtualWork.objects.get(job=job).speed_milli == 3730
        play(lab, 11)
        job.refresh_from_db()
        assert job.first_started_at is not None
        assert job.ended_at == job.first_started_at + timedelta(seconds=100)

    def test_measures_nothing_without_true_speeds(self, lab: Cluster) -> None:
        profile = lab.profile("a", "gru", **TRUE)
        submit(lab, profile, "v100")
        lab.submit("a", 1, 5000)
        lab.round()
        play(lab, 3)
        assert not Measurement.objects.exists()
        assert not IterationReading.objects.exists()

    def test_distinguishes_one_node_from_several(self, lab: Cluster) -> None:
        submit(lab, job_type(lab), "v100", gpus=8)
        lab.round()
        play(lab, 2)
        (row,) = Measurement.objects.all()
        assert (row.gpus, row.several_nodes) == (8, True)

    def test_measures_across_leases_and_drops_readings_of_ended_leases(self, lab: Cluster) -> None:
        job = submit(lab, job_type(lab), "v100", duration_s=373)
        lab.round()
        play(lab, 20)
        job.refresh_from_db()
        assert job.state == "succeeded"
        # The last part of a lease is measured as well: 373 s of work, in iterations of 250 ms.
        assert Measurement.objects.get().iterations == 373 * 4
        submit(lab, Profile.objects.get(), "v100")
        play(lab, 3)
        assert IterationReading.objects.count() == 1


def speeds_of_last_round(lab: Cluster) -> dict[str, int]:
    snapshot, _ = round_values(Round.objects.filter(pool=lab.pool).latest("number"))
    (profile,) = snapshot.profiles
    return dict(profile.speedups)


class Teller:
    """A lease whose process makes the reports that a test sets."""

    def __init__(self, lab: Cluster, profile: Profile, kind: str = "v100") -> None:
        self.lab = lab
        job = submit(lab, profile, kind)
        VirtualSpeeds.objects.all().delete()
        lab.round()
        self.lease = Lease.objects.get(job=job)
        self.token = lease_token(job.pk, self.lease.number, "es")

    def say(self, count: int, time_us: int, *, token: int | None = None, **more: Any) -> None:
        self.report(iterations=Iterations(count, time_us, **more), fence=token)

    def report(self, *, fence: int | None = None, **fields: Any) -> None:
        assert self.lease.started_at is not None
        told = {"state": ReportState.RUNNING, "started_us": to_us(self.lease.started_at)}
        one = Report(self.token, **{**told, **fields})
        token = fence if fence is not None else self.take()
        measure(self.lab.pool.pk, token, [one], installation="es", at=self.lab.at)

    def take(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE scheduling_poolfence SET until = clock_timestamp()")
        token = take_fence(self.lab.pool.pk, holder="test", hold_s=30)
        assert token is not None
        return token


@pytest.fixture
def teller(lab: Cluster) -> Teller:
    teller = Teller(lab, job_type(lab))
    lab.at += timedelta(hours=2)
    return teller


class TestReports:
    def test_repeated_report_counts_once(self, teller: Teller) -> None:
        teller.say(10, 1_000_000)
        teller.say(10, 1_000_000)
        teller.say(30, 5_000_000)
        row = Measurement.objects.get()
        # Iterations take 100 ms each at first, and 200 ms each later.
        assert (row.reports, row.iterations, row.mean) == (2, 30, 150_000_000)

    def test_resume_and_suspend_cost_count_once_per_lease(self, teller: Teller) -> None:
        for count in (1, 2, 3):
            teller.say(count, count * 1000, resumed_us=7000)
        teller.say(4, 4000, resumed_us=7000, suspended_us=900)
        teller.say(4, 4000, resumed_us=7000, suspended_us=900)
        rows = {row.kind: row for row in Measurement.objects.all()}
        assert (rows["resume"].reports, rows["resume"].mean) == (1, 7000)
        assert (rows["suspend"].reports, rows["suspend"].mean) == (1, 900)
        assert (rows["resume"].gpu_type, rows["resume"].gpus) == ("", 0)

    def test_keep_maximum_of_memory(self, teller: Teller) -> None:
        teller.say(1, 1000, memory_bytes=5 * 2**30)
        teller.say(2, 2000, memory_bytes=3 * 2**30)
        assert Measurement.objects.get().memory_bytes == 5 * 2**30

    def test_changed_speed_restarts_average_with_note(self, teller: Teller) -> None:
        count = time_us = 0
        for each in [1000] * 12 + [2000] * 5:
            count, time_us = count + 10, time_us + 10 * each
            teller.say(count, time_us)
        row = Measurement.objects.get()
        assert (row.restarts, row.mean) == (1, 2_000_000)
        note = MeasurementNote.objects.get()
        assert (note.kind, note.job_id) == ("changed", teller.lease.job_id)
        assert note.data["after"] == 2_000_000

    @pytest.mark.parametrize(
        ("said", "why"),
        [
            (Iterations(9, 1_000_001), "fewer iterations"),
            (Iterations(11, 999_999), "fewer iterations, or less time"),
            (Iterations(11, 1_000_000), "less than a microsecond"),
            (Iterations(11, 3 * 3600 * SECOND_US), "more time than its lease ran"),
            (Iterations(11, 1_000_001, suspended_us=3 * 3600 * SECOND_US), "longer to suspend"),
        ],
    )
    def test_impossible_values_are_noted_once_and_ignored(
        self, teller: Teller, said: Iterations, why: str
    ) -> None:
        teller.say(10, 1_000_000)
        before = Measurement.objects.values().get()
        for _ in range(2):
            teller.report(iterations=said)
        assert Measurement.objects.values().get() == before
        note = MeasurementNote.objects.get()
        assert note.kind == "refused"
        assert why in note.data["why"]
        # The next reports that are valid are used.
        teller.say(20, 2_000_000)
        assert Measurement.objects.get().iterations == 20

    @pytest.mark.parametrize(
        "told",
        [
            {"started_us": 1},
            {"state": ReportState.STOPPED, "ended_us": 2**62},
            {"state": ReportState.STOPPED, "started_us": -(2**62), "ended_us": 2**62},
        ],
    )
    def test_longer_time_than_lease_is_rejected(self, teller: Teller, told: dict[str, Any]) -> None:
        # The lease has run for two hours. A report of 300 years would not even fit the column.
        for hours in (300 * 365 * 24, 3):
            teller.report(iterations=Iterations(1, hours * 3600 * SECOND_US), **told)
        assert not Measurement.objects.exists()
        assert "more time than its lease ran" in MeasurementNote.objects.get().data["why"]

    def test_unreadable_reports_are_noted_once(self, teller: Teller) -> None:
        for _ in range(2):
            teller.report(refused="is not a JSON object")
        assert MeasurementNote.objects.get().data == {"lease": 1, "why": "is not a JSON object"}

    def test_stale_fence_token_writes_nothing(self, teller: Teller) -> None:
        stale = teller.take()
        teller.take()
        with pytest.raises(FencedError):
            teller.say(10, 1_000_000, token=stale)
        assert not Measurement.objects.exists()

    def test_locked_job_type_is_measured_by_next_report(
        self, teller: Teller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = Profile.objects.get_queryset
        monkeypatch.setattr(Profile.objects, "get_queryset", lambda: whole().none())
        teller.say(10, 1_000_000)
        monkeypatch.undo()
        assert not Measurement.objects.exists()
        teller.say(20, 2_000_000)
        assert Measurement.objects.get().iterations == 20


class TestTables:
    def test_are_bounded(self, teller: Teller) -> None:
        profile = Profile.objects.get()
        old = teller.lab.at - timedelta(days=1)
        Measurement.objects.bulk_create(
            Measurement(
                tenant=profile.tenant, profile=profile, kind="iteration", gpu_type="k80",
                gpus=n, reports=1, mean=1, seen_at=old,
            )
            for n in range(ROWS_MAX)
        )  # fmt: skip
        MeasurementNote.objects.bulk_create(
            MeasurementNote(tenant=profile.tenant, profile=profile, at=old, kind="changed")
            for _ in range(NOTES_MAX)
        )
        teller.report(refused="is not a JSON object")
        teller.say(10, 1_000_000)
        assert Measurement.objects.count() == ROWS_MAX
        assert Measurement.objects.filter(seen_at=teller.lab.at).count() == 1
        assert MeasurementNote.objects.count() == NOTES_MAX
        assert MeasurementNote.objects.filter(kind="refused").exists()

    def test_are_deleted_with_their_job_type(self, teller: Teller) -> None:
        teller.say(10, 1_000_000)
        Job.objects.update(state="succeeded")
        actor = Actor(User.objects.create_user("ann"), "request-1")
        tenant = teller.lab.tenants["a"]
        pool = Pool.objects.get()
        assert drop_profile(tenant=tenant, actor=actor, pool_id=pool.pk, name="gru")
        assert not Measurement.objects.exists()
