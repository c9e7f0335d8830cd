"""Test profiling runs, which measure the speed of a job type while a larger job of it waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.units import SECOND_US
from scheduling.engine.job_holds import add_hold
from scheduling.engine.profiling import KEPT, RUNS_MOST
from scheduling.models import (
    Job,
    Lease,
    Measurement,
    Pool,
    Profile,
    Round,
    RunRecord,
    VirtualSpeeds,
    VirtualWork,
)
from scheduling.requests.profiles import read_profile_request
from scheduling.selectors.rounds.replay import replay_stored_round
from scheduling.selectors.rounds.stored import round_values
from scheduling.services.holds import Side, hold_job
from scheduling.services.jobs import cancel_job
from scheduling.services.profiles import put_profile
from tenants.audit import Actor
from tenants.faults import arm_faults
from tenants.input.errors import InvalidInputError
from tenants.models import Quota, User
from tenants.scopes import engine_scope
from tests.factories import Cluster, cluster
from tests.patience import few
from tests.plugin import Services
from tests.shapeless import drop_shapes

pytestmark = pytest.mark.usefixtures("committed_db")

ITERATION_US = 250_000
PER_S = SECOND_US // ITERATION_US
HALF_S = 150


@pytest.fixture
def lab() -> Cluster:
    """Return a node of eight GPUs, of which another job holds four for a long time."""
    lab = cluster(
        {"a": 4, "b": 4}, nodes=1, gpus=8, lease_s=600, policy="unisched", profiling_s=2 * HALF_S
    )
    lab.submit("b", 4, 50_000)
    lab.round()
    return lab


def job_type(lab: Cluster, name: str = "gru", *, reports: bool = True) -> Profile:
    profile = lab.profile("a", name, v100=1000)
    if reports:
        VirtualSpeeds.objects.create(
            profile=profile, tenant=profile.tenant, speedups=profile.speedups,
            iteration_us=ITERATION_US,
        )  # fmt: skip
    return profile


def submit(lab: Cluster, profile: Profile, **fields: Any) -> Job:
    given: dict[str, Any] = {"gpus": 8, "duration_s": 500, "iterations": 500 * PER_S, **fields}
    gpus, duration_s = given.pop("gpus"), given.pop("duration_s")
    return lab.submit("a", gpus, duration_s, profile=profile, **given)


def runs(profile: Profile) -> list[Job]:
    return list(Job.objects.filter(profile=profile, profiling_s__gt=0).order_by("id"))


def ran_s(run: Job) -> float:
    """Return how long a run held its GPUs in its only lease."""
    assert run.ended_at is not None
    assert run.first_started_at is not None
    return (run.ended_at - run.first_started_at).total_seconds()


def declare(lab: Cluster, profile: Profile) -> None:
    """Declare a job type again, unchanged."""
    user, _ = User.objects.get_or_create(username="ada")
    request = read_profile_request(profile.name, {"speeds": {"v100": "1"}})
    put_profile(
        tenant=profile.tenant, actor=Actor(user), pool_id=lab.pool.pk, name=profile.name,
        request=request,
    )  # fmt: skip


def play(lab: Cluster, seconds: int) -> None:
    for _ in range(seconds // 10):
        lab.round(after_s=10)


def last(lab: Cluster) -> Snapshot:
    return round_values(Round.objects.filter(pool=lab.pool).latest("number"))[0]


def estimate(lab: Cluster, job: Job) -> JobEstimate | None:
    return next((one for one in last(lab).estimates if one.id == job.pk), None)


class TestWaitingJob:
    def test_is_estimated_by_runs_on_one_and_two_gpus(self, lab: Cluster) -> None:
        profile = job_type(lab)
        job = submit(lab, profile)
        lab.round(after_s=10)
        assert (runs(profile), estimate(lab, job)) == ([], None)
        lab.round(after_s=10)
        (one,) = runs(profile)
        assert (one.gpus, one.profiling_s, one.profiled_for) == (1, HALF_S, job)
        assert last(lab).profilers == (one.pk,)
        play(lab, HALF_S + 20)
        one, two = runs(profile)
        assert (one.state, two.gpus) == ("succeeded", 2)
        assert ran_s(one) == HALF_S
        play(lab, HALF_S + 20)
        assert [run.state for run in runs(profile)] == ["succeeded", "succeeded"]
        made = estimate(lab, job)
        assert made is not None
        assert (made.source, made.is_profiled) == (EstimateSource.FITTED, True)
        known = next(one for one in last(lab).jobs if one.id == job.pk)
        assert known.estimate_us == pytest.approx(500 * SECOND_US, rel=0.01)
        measured = Measurement.objects.filter(profile=profile, kind="iteration")
        assert set(measured.values_list("gpus", flat=True)) == {1, 2}
        for row in Round.objects.filter(pool=lab.pool):
            assert replay_stored_round(row).same

    def test_keeps_its_own_work_and_history_of_its_type(self, lab: Cluster) -> None:
        profile = job_type(lab)
        job = submit(lab, profile)
        play(lab, 2 * HALF_S + 60)
        assert len(runs(profile)) == 2
        job.refresh_from_db()
        assert (job.state, job.terms) == ("pending", 0)
        work = VirtualWork.objects.get(job=job)
        assert (work.duration_us, work.done_us) == (500 * SECOND_US, 0)
        assert not RunRecord.objects.filter(profile=profile).exists()

    def test_gets_no_run_if_pool_disables_profiling(self, lab: Cluster) -> None:
        Pool.objects.update(profiling_s=0)
        profile = job_type(lab)
        submit(lab, profile)
        play(lab, 60)
        assert runs(profile) == []
        assert last(lab).schema < 9

    def test_gets_no_run_if_it_starts_at_once(self, lab: Cluster) -> None:
        profile = job_type(lab)
        job = submit(lab, profile, gpus=4)
        play(lab, 60)
        job.refresh_from_db()
        assert (job.state, runs(profile)) == ("running", [])

    @pytest.mark.parametrize("gpus", [1, 2])
    def test_gets_no_run_for_one_or_two_gpus(self, lab: Cluster, gpus: int) -> None:
        lab.submit("a", 4, 5000)
        profile = job_type(lab)
        submit(lab, profile, gpus=gpus)
        play(lab, 60)
        assert runs(profile) == []

    def test_gets_no_run_if_its_size_was_measured_recently(self, lab: Cluster) -> None:
        profile = job_type(lab)
        row = Measurement.objects.create(
            profile=profile, tenant=profile.tenant, kind="iteration", gpu_type="v100", gpus=8,
            used_reports=9, used_mean=10**9, seen_at=lab.at,
        )  # fmt: skip
        submit(lab, profile)
        play(lab, 60)
        assert runs(profile) == []
        Measurement.objects.filter(pk=row.pk).update(seen_at=lab.at - timedelta(days=7, seconds=1))
        play(lab, 20)
        assert [run.gpus for run in runs(profile)] == [1]


class TestProfilingRun:
    def test_lasts_equally_long_over_several_leases(self, lab: Cluster) -> None:
        Pool.objects.update(lease_s=60)
        profile = job_type(lab)
        profile.speedups = {"v100": 3000}
        profile.save()
        VirtualSpeeds.objects.update(speedups={"v100": 3000})
        submit(lab, profile)
        play(lab, HALF_S + 60)
        one = runs(profile)[0]
        held = [
            (lease.ended_at - lease.started_at).total_seconds()
            for lease in Lease.objects.filter(job=one)
            if lease.ended_at and lease.started_at
        ]
        assert (one.state, sum(held)) == ("succeeded", HALF_S)
        seen = Measurement.objects.get(profile=profile, kind="iteration", gpus=1)
        assert seen.mean * 3 == pytest.approx(ITERATION_US * 1000, rel=0.01)

    def test_has_price_limit_of_zero(self, lab: Cluster) -> None:
        lab.submit("a", 4, 5000)
        profile = job_type(lab)
        submit(lab, profile)
        play(lab, 60)
        (run,) = runs(profile)
        assert run.state == "pending"
        assert run.max_price == 0

    def test_is_withdrawn_if_no_job_waits_for_it(self, lab: Cluster) -> None:
        lab.submit("a", 4, 50_000)
        profile = job_type(lab)
        job = submit(lab, profile)
        play(lab, 30)
        (run,) = runs(profile)
        Job.objects.filter(pk=job.pk).update(cancel_asked_at=lab.at)
        play(lab, 20)
        assert runs(profile)[0].state == "pending"
        lab.round(after_s=round(KEPT.total_seconds()))
        (run,) = runs(profile)
        assert (run.state, run.profiled_for) == ("cancelled", None)
        submit(lab, profile)
        play(lab, 20)
        assert [one.state for one in runs(profile)] == ["cancelled", "pending"]

    def test_cancellation_stops_profiling_until_new_declaration(self, lab: Cluster) -> None:
        lab.submit("a", 4, 5000)
        profile = job_type(lab)
        submit(lab, profile)
        play(lab, 30)
        cancel_job(job=runs(profile)[0], now=lab.now())
        play(lab, 60)
        assert [run.state for run in runs(profile)] == ["cancelled"]
        declare(lab, profile)
        play(lab, 20)
        assert [run.state for run in runs(profile)] == ["cancelled", "pending"]

    def test_program_without_reports_stops_profiling(self, lab: Cluster) -> None:
        profile = job_type(lab, reports=False)
        submit(lab, profile)
        play(lab, 2 * HALF_S + 60)
        assert [(run.gpus, run.state) for run in runs(profile)] == [(1, "succeeded")]
        declare(lab, profile)
        play(lab, 20)
        assert [run.gpus for run in runs(profile)] == [1, 1]

    def test_is_created_once_despite_failed_round(self, lab: Cluster) -> None:
        profile = job_type(lab)
        submit(lab, profile)
        lab.round(after_s=10)

        def fail(point: str) -> None:
            if point == "profiling.before_commit":
                raise OSError

        with arm_faults(fail), pytest.raises(OSError):
            lab.round(after_s=10)
        assert runs(profile) == []
        lab.round(after_s=10)
        assert len(runs(profile)) == 1

    def test_database_rejects_large_or_second_run_of_type(self, lab: Cluster) -> None:
        profile = job_type(lab)
        submit(lab, profile)
        play(lab, 30)
        for gpus in (1, 3):
            with pytest.raises(IntegrityError), transaction.atomic():
                lab.submit("a", gpus, 1, profile=profile, profiling_s=10)


class TestStoppedRun:
    @pytest.fixture
    def stopped(self, lab: Cluster) -> Job:
        """Return a run that held GPUs for half a minute until its tenant lost its quota."""
        Pool.objects.update(lease_s=60)
        profile = job_type(lab)
        job = submit(lab, profile)
        play(lab, 50)
        (run,) = runs(profile)
        assert run.state == "running"
        cancel_job(job=job, now=lab.now())
        Quota.objects.filter(tenant=lab.tenants["a"]).delete()
        lab.submit("b", 4, 50_000)
        play(lab, 60)
        (run,) = runs(profile)
        assert (run.state, run.terms) == ("pending", 1)
        return run

    def test_is_withdrawn_after_timeout(self, lab: Cluster, stopped: Job) -> None:
        lab.round(after_s=round(KEPT.total_seconds()))
        stopped.refresh_from_db()
        assert (stopped.state, stopped.profiled_for) == ("cancelled", None)
        assert stopped.profile is not None
        submit(lab, stopped.profile)
        Measurement.objects.all().delete()
        play(lab, 20)
        assert [run.state for run in runs(stopped.profile)] == ["cancelled", "pending"]

    def test_is_withdrawn_if_pool_disables_profiling(self, lab: Cluster, stopped: Job) -> None:
        Pool.objects.update(profiling_s=0)
        lab.round(after_s=round(KEPT.total_seconds()))
        stopped.refresh_from_db()
        assert stopped.state == "cancelled"

    def test_succeeds_after_its_full_time(self, lab: Cluster, stopped: Job) -> None:
        lease = Lease.objects.get(job=stopped)
        assert lease.started_at is not None
        lease.started_at -= timedelta(seconds=HALF_S)
        lease.save(update_fields=["started_at"])
        lab.round(after_s=10)
        stopped.refresh_from_db()
        assert (stopped.state, stopped.terms, stopped.ended_at) == ("succeeded", 1, lab.at)

    def test_ends_at_its_full_time_though_held(self, lab: Cluster, stopped: Job) -> None:
        Job.objects.filter(pk=stopped.pk).update(holds=["idle"])
        granted = F("started_at") - timedelta(seconds=HALF_S)
        Lease.objects.filter(job=stopped).update(started_at=granted)
        lab.round(after_s=10)
        stopped.refresh_from_db()
        assert (stopped.state, stopped.holds) == ("succeeded", [])

    def test_cannot_be_held(self, stopped: Job) -> None:
        with engine_scope(stopped.pool_id):
            assert add_hold([stopped.pk], Job.Hold.IDLE) == []
        person = Actor(User.objects.create(username="eve"))
        with pytest.raises(InvalidInputError, match="profiling run cannot be held"):
            hold_job(job=stopped, actor=person, side=Side.OPERATOR)
        stopped.refresh_from_db()
        assert stopped.holds == []

    def test_delays_other_types_only_until_timeout(self, lab: Cluster) -> None:
        lab.add_type("k80", nodes=1, gpus=8, quotas={"b": 8})
        lab.submit("b", 8, 50_000, gpu_types=["k80"])
        lab.round(after_s=10)
        types = [job_type(lab, f"net-{number}") for number in range(RUNS_MOST + 1)]
        Profile.objects.update(speedups={"k80": 1000, "v100": 2000})
        for profile in types[:RUNS_MOST]:
            submit(lab, profile, gpu_types=["k80"])
        play(lab, 20)
        submit(lab, types[-1], gpu_types=["v100"])
        play(lab, 40)
        assert [len(runs(profile)) for profile in types] == [1] * RUNS_MOST + [0]
        lab.round(after_s=round(KEPT.total_seconds()))
        play(lab, 40)
        assert [run.state for run in runs(types[-1])] == ["running"]

    def test_quarantined_runs_delay_no_other_type(self, lab: Cluster) -> None:
        lab.submit("a", 4, 5000)
        types = [job_type(lab, f"net-{number}") for number in range(RUNS_MOST + 1)]
        for profile in types:
            submit(lab, profile)
        play(lab, 30)
        assert runs(types[-1]) == []
        Job.objects.filter(pk=runs(types[0])[0].pk).update(quarantine="It was lost ten times.")
        play(lab, 20)
        assert [len(runs(profile)) for profile in types] == [1] * len(types)


class TestUnreadableRows:
    @pytest.mark.parametrize("speedups", [[], {"v100": "fast"}])
    def test_quarantine_only_their_own_jobs(
        self, lab: Cluster, speedups: object, committed_db: str, services: Services
    ) -> None:
        with services.postgres.connect(committed_db) as owner:
            drop_shapes(owner)
        lab.submit("a", 4, 5000)
        good, bad = job_type(lab, "good"), job_type(lab, "bad")
        jobs = [submit(lab, profile) for profile in (good, bad)]
        Measurement.objects.create(
            profile=bad, tenant=bad.tenant, kind="iteration", gpu_type="v100", gpus=1,
            used_reports=9, used_mean=10**9, seen_at=lab.at,
        )  # fmt: skip
        lab.round(after_s=10)
        Profile.objects.filter(pk=bad.pk).update(speedups=speedups)
        play(lab, 30)
        quarantined = [bool(Job.objects.get(pk=job.pk).quarantine) for job in jobs]
        assert quarantined == [False, True]
        assert [len(runs(profile)) for profile in (good, bad)] == [1, 0]


class TestTenant:
    def test_has_limited_number_of_concurrent_runs(self, lab: Cluster) -> None:
        types = [job_type(lab, f"net-{number}") for number in range(RUNS_MOST + 2)]
        for profile in types:
            submit(lab, profile)
        play(lab, 40)
        active = Job.objects.filter(profiling_s__gt=0, state__in=Job.ACTIVE_STATES)
        assert {run.profile_id for run in active} == {one.pk for one in types[:RUNS_MOST]}
        play(lab, 4 * HALF_S + 120)
        assert [len(runs(profile)) for profile in types] == [2] * len(types)


class TestRandomPool:
    @settings(
        max_examples=few(),
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(st.data())
    def test_runs_stay_small_and_unique_per_type(self, lab: Cluster, data: Any) -> None:
        """Jobs arrive and are cancelled, and types are declared again. Every round must replay."""
        types = [job_type(lab, f"t{Profile.objects.count()}") for _ in range(2)]
        for _ in range(12):
            profile = data.draw(st.sampled_from(types))
            act = data.draw(st.sampled_from(("submit", "cancel", "declare", "wait")))
            if act == "submit":
                submit(lab, profile, gpus=data.draw(st.sampled_from((2, 4, 8))))
            elif act == "declare":
                declare(lab, profile)
            elif act == "cancel":
                for job in Job.objects.filter(profile=profile, state__in=Job.ACTIVE_STATES)[:1]:
                    cancel_job(job=job, now=lab.now())
            lab.round(after_s=data.draw(st.sampled_from((10, 60, 200))))
            active = Job.objects.filter(profiling_s__gt=0, state__in=Job.ACTIVE_STATES)
            assert len({run.profile_id for run in active}) == len(active) <= RUNS_MOST
            assert all(run.gpus <= 2 for run in active)
            over = Job.objects.filter(profiling_s__gt=0, state="succeeded")
            for lease in Lease.objects.filter(job__in=over, ended_at__isnull=False):
                assert lease.started_at is not None
                assert lease.ended_at is not None
                assert lease.ended_at - lease.started_at <= timedelta(seconds=HALF_S)
        for row in Round.objects.filter(pool=lab.pool):
            assert replay_stored_round(row).same
