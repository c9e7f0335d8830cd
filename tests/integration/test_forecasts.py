"""Test start forecasts: results, order, lost processes, and that they change nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from evenshare_core.policies.registry import DEFAULT
from evenshare_core.simulation.start_correction import Factors
from scheduling import tasks
from scheduling.engine.clock import wall_now
from scheduling.engine.snapshots import read_snapshot
from scheduling.models import (
    Job,
    Lease,
    Round,
    RoundState,
    StartEstimate,
    StartForecast,
)
from scheduling.selectors.jobs.start_estimates import WINDOWS, read_calibration, read_starts
from scheduling.services import execute_forecast as executing
from scheduling.services import forecasts as service
from scheduling.services import price_forecasts as prices
from scheduling.services.execute_forecast import latest_correction
from scheduling.services.jobs import cancel_job
from scheduling.services.start_history import read_history
from tenants.scopes import site_scope
from tests.factories import Cluster, cluster
from tests.integration.forecast_lab import (
    MINUTES,
    forecast,
    foreseen_lab,
    known,
    lab_of,
    queued,
    set_clock,
)
from tests.stages import Stages
from tests.tools import eventually


@pytest.fixture
def lab(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(prices, "POINTS", 1)
    with lab_of(stages) as made:
        yield made


@pytest.fixture
def foreseen(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(prices, "POINTS", 1)
    with lab_of(stages, foreseen_lab) as made:
        yield made


class TestForecast:
    def test_covers_every_queued_job_with_its_round(self, foreseen: Cluster) -> None:
        lab, row = foreseen, StartForecast.objects.get()
        assert (row.state, row.policy) == ("done", DEFAULT), row.error
        last = Round.objects.order_by("-number")[0]
        assert row.round == last.number
        starts = read_starts({lab.pool.pk: lab.at}, [job.pk for job in Job.objects.all()])
        assert set(starts) == queued(lab)
        assert len(starts) > 5
        for start in starts.values():
            assert start.round == last.number
            assert start.p50 is not None
            assert start.p90 is not None
            assert last.at < start.at <= start.p50 <= start.p90 <= start.until
            # All past jobs of the pool took ten minutes, so the next job starts when a running job
            # ends.
            assert start.p90 < start.at + timedelta(hours=2)
        assert row.facts["queued"] == len(starts)
        assert (row.facts["runs"], row.facts["ended"]) == (19, 12)
        assert row.facts["corrections"]["long"] == {"p50": 1.0, "p90": 1.0, "past": 0}

    def test_is_deterministic_for_same_round(self, foreseen: Cluster) -> None:
        def counted(row: StartForecast) -> list[tuple[Any, ...]]:
            rows = StartEstimate.objects.filter(forecast=row)
            return sorted(rows.values_list("job", "p50", "p90"))

        first = counted(StartForecast.objects.get())
        long_ago = wall_now() - timedelta(minutes=10)
        StartForecast.objects.update(round=None, state="failed", ended_at=long_ago)
        StartEstimate.objects.all().delete()
        set_clock(foreseen)
        assert counted(forecast()) == first

    def test_needs_few_queries(self, foreseen: Cluster, django_assert_num_queries: Any) -> None:
        lab = foreseen
        with site_scope():
            jobs = queued(lab)
            with django_assert_num_queries(2):
                assert read_starts({lab.pool.pk: lab.at}, jobs)
            with django_assert_num_queries(4):  # one more query if a job has a type
                assert read_history(lab.pool.pk, lab.at).ended

    @pytest.mark.usefixtures("committed_db")
    def test_explains_missing_history(self) -> None:
        new = cluster({"north": 4}, nodes=1, round_s=30)
        new.submit("north", 4, 600)
        late, large = new.submit("north", 1, 600), new.submit("north", 9, 600)
        new.round()
        set_clock(new)
        forecast()
        starts = read_starts({new.pool.pk: new.at}, [late.pk, large.pk])
        assert starts[late.pk].reason == "too_little_known"
        assert "Too few jobs" in starts[late.pk].why
        assert starts[large.pk].reason == "never_fits"
        assert not StartEstimate.objects.filter(kept=True).exists()

    def test_reports_exhausted_budget(self, lab: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(executing, "BUDGET_S", -1.0)
        row = forecast()
        assert row.state == "done"
        assert row.facts["none"].get("too_much_work")
        assert known(row.until) < known(row.at) + timedelta(hours=24)

    def test_replaces_previous_forecast_except_kept_estimates(self, foreseen: Cluster) -> None:
        lab, first = foreseen, StartForecast.objects.get()
        one = min(queued(lab))
        assert StartEstimate.objects.filter(forecast=first, kept=True).count() == len(queued(lab))
        lab.round(after_s=30)
        set_clock(lab)
        second = forecast()
        again = StartEstimate.objects.get(forecast=second, job=one)
        assert not again.kept, "it is not twice as old as at the first"
        assert read_starts({lab.pool.pk: lab.at}, [one])[one].round == second.round
        lab.round(after_s=30)
        set_clock(lab)
        third = forecast()
        kept = StartEstimate.objects.filter(job=one, kept=True).order_by("at")
        assert [row.forecast_id for row in kept] == [first.pk, third.pk]
        assert not StartEstimate.objects.filter(pk=again.pk).exists()

    def test_changes_nothing_else_and_holds_no_transaction(self, lab: Cluster) -> None:
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

        assert forecast(is_orphan=look).state == "done"
        assert rows() == before
        assert len(looks) > 10
        assert not any(looks)

    def test_rounds_continue_during_forecast(self, lab: Cluster) -> None:
        outcomes: list[str] = []

        def round_between() -> bool:
            if len(outcomes) < 3:
                outcomes.append(lab.round(after_s=30).outcome.value)
            return False

        row = forecast(is_orphan=round_between)
        assert (row.state, outcomes) == ("done", ["committed"] * 3)
        assert Round.objects.count() == known(row.round) + 3


class TestForecastOutcome:
    @pytest.fixture
    def lab(self, foreseen: Cluster) -> Cluster:
        return foreseen

    def test_records_start_of_job_or_its_absence(self, lab: Cluster) -> None:
        gone = max(queued(lab))
        cancel_job(job=Job.objects.get(pk=gone), now=lab.now())
        for _ in range(20):
            lab.round(after_s=3 * MINUTES)
        service.settle_estimates(lab.pool.pk)
        rows = {row.job_id: row for row in StartEstimate.objects.filter(kept=True)}
        assert rows[gone].fate == "gone"
        for job, row in rows.items():
            leases = Lease.objects.filter(job=job, granted_round__gt=row.forecast.round)
            starts = [one.started_at for one in leases if one.started_at]
            assert row.started_at == (min(starts) if starts else None)
            assert (row.fate == "started") == bool(starts)
        assert sum(row.fate == "started" for row in rows.values()) > 5

    @pytest.mark.parametrize(
        ("leases", "fate", "first"),
        [
            pytest.param([(-1, 0)], "open", None, id="started before the forecast, waits again"),
            pytest.param([(1, None)], "open", None, id="granted, not started"),
            pytest.param(
                [(-1, 0), (1, 5), (2, 9)], "started", 5, id="started twice after the forecast"
            ),
            pytest.param(
                [(1, None), (2, 9)], "started", 9, id="first grant withdrawn, second started"
            ),
        ],
    )
    def test_is_first_start_after_round_of_forecast(
        self, lab: Cluster, leases: list[tuple[int, int | None]], fate: str, first: int | None
    ) -> None:
        """`leases`: (round of the grant, counted from the forecast's; minute of the start)."""
        estimate = StartEstimate.objects.filter(kept=True).order_by("-job").first()
        assert estimate is not None
        round_ = known(estimate.forecast.round)
        for number, (later, minute) in enumerate(leases, start=1):
            started = None if minute is None else lab.at + timedelta(minutes=minute)
            Lease.objects.create(
                pool=lab.pool, tenant_id=estimate.tenant_id, job_id=estimate.job_id,
                gpu_type=lab.gpu_type, number=number, state="ended", gpus=1, placement=[],
                granted_round=round_ + later, granted_at=lab.at, started_at=started,
                ended_at=lab.at + timedelta(hours=1), expires_at=lab.at + timedelta(hours=1),
                own=1, borrowed=0, price=0,
            )  # fmt: skip
        service.settle_estimates(lab.pool.pk)
        estimate.refresh_from_db()
        expected = None if first is None else lab.at + timedelta(minutes=first)
        assert (estimate.fate, estimate.started_at) == (fate, expected)

    def test_counts_once_p90_has_passed(self, lab: Cluster) -> None:
        made = StartEstimate.objects.filter(kept=True)
        assert read_calibration(lab.pool.pk, lab.at, WINDOWS["day"]).whole.estimates == 0
        for _ in range(30):
            lab.round(after_s=3 * MINUTES)
        unsettled = read_calibration(lab.pool.pk, lab.at, WINDOWS["day"])
        service.settle_estimates(lab.pool.pk)
        found = read_calibration(lab.pool.pk, lab.at, WINDOWS["day"])
        assert found == unsettled, "whoever asks before it is noted reads the same"
        past = [row for row in made.all() if row.p90 and row.p90 <= lab.at]
        assert (found.whole.estimates, found.jobs, found.gone) == (len(past), len(past), 0)
        assert found.whole.estimates > 5
        starts = [(row.started_at, row.p50, row.p90) for row in past if row.started_at]
        assert found.whole.by_p90 == sum(at <= known(p90) for at, _, p90 in starts)
        assert found.whole.by_p50 == sum(at <= known(p50) for at, p50, _ in starts)
        assert len(found.steps) == 12
        later = read_calibration(lab.pool.pk, lab.at + timedelta(days=2), WINDOWS["day"])
        assert later.whole.estimates == 0

    def test_cancelled_job_counts_if_late_by_then(self, lab: Cluster) -> None:
        early, late = sorted(queued(lab))[-2:]
        p90 = lab.at + timedelta(minutes=10)
        StartEstimate.objects.filter(job__in=[early, late]).update(p50=lab.at, p90=p90)
        StartEstimate.objects.exclude(job__in=[early, late]).delete()
        for job, after in ((early, 5), (late, 15)):
            ended_at = lab.at + timedelta(minutes=after)
            Job.objects.filter(pk=job).update(state="cancelled", ended_at=ended_at)
        found = read_calibration(lab.pool.pk, lab.at + timedelta(hours=1), WINDOWS["day"])
        assert (found.whole.estimates, found.whole.by_p90, found.gone, found.jobs) == (1, 0, 1, 1)

    def test_early_estimates_correct_next_forecast(self, lab: Cluster) -> None:
        first = StartForecast.objects.get()
        one = StartEstimate.objects.filter(kept=True).first()
        assert one is not None
        late = {"p50": lab.at, "p90": lab.at, "raw_p90": lab.at, "at": lab.at - timedelta(hours=1)}
        for _ in range(40):
            of = StartForecast.objects.create(
                pool=lab.pool, state="done", claim="x", round=1, at=lab.at, policy=DEFAULT,
                started_at=wall_now(), beat_at=wall_now(), ended_at=wall_now(),
            )  # fmt: skip
            StartEstimate.objects.create(
                forecast=of, pool=lab.pool, tenant_id=one.tenant_id, job_id=one.job_id, kept=True,
                fate="started", started_at=lab.at + timedelta(hours=2), **late,
            )  # fmt: skip
        lab.round(after_s=30)
        set_clock(lab)
        row = forecast()
        assert first.facts["corrections"]["long"]["past"] == 0
        corrected = row.facts["corrections"]["long"]
        assert corrected == {"p50": 3.0, "p90": 3.0, "past": 40}
        found = StartEstimate.objects.filter(forecast=row, p90__isnull=False)
        assert found
        for wide in found:
            assert known(wide.p50) - wide.at >= 3 * (known(wide.raw_p50) - wide.at)
            assert known(wide.p90) - wide.at >= 3 * (known(wide.raw_p90) - wide.at)
        snapshot = read_snapshot(lab.pool.pk, number=1, at=lab.at)
        with site_scope():
            assert latest_correction(snapshot).long == Factors(**corrected)

    def test_is_dropped_after_a_month(self, lab: Cluster) -> None:
        lab.round(after_s=30)
        set_clock(lab)
        newest = forecast()
        tasks.housekeeping()
        assert StartForecast.objects.count() == 2
        StartForecast.objects.update(ended_at=wall_now() - timedelta(days=2))
        StartEstimate.objects.filter(kept=True).update(kept=False)
        assert service.drop_old_estimates() == 1, "forecasts are counted, not what goes with them"
        assert list(StartForecast.objects.all()) == [newest], "it is what pages show"
        StartForecast.objects.update(ended_at=wall_now() - timedelta(days=31))
        tasks.housekeeping()
        assert not StartForecast.objects.exists()
        assert not StartEstimate.objects.exists()


class TestHistory:
    def test_includes_cancelled_jobs_only_if_started(self, lab: Cluster) -> None:
        """Forecasts include jobs cancelled while they ran, but not those cancelled in the queue."""
        before = {job.id for job in read_history(lab.pool.pk, lab.at).arrivals}
        ran, waited = min(before), max(before)
        Job.objects.filter(pk__in=[ran, waited]).update(state="cancelled", ended_at=lab.at)
        started = Job.objects.filter(pk__in=[ran, waited], first_started_at__isnull=False)
        assert [job.pk for job in started] == [ran]
        after = {job.id for job in read_history(lab.pool.pk, lab.at).arrivals}
        assert before - after == {waited}


class TestUnfinishedForecast:
    def test_fails_if_worker_is_gone(self, lab: Cluster) -> None:
        row = forecast(is_orphan=lambda: True)
        assert (row.state, row.error) == ("failed", service.ORPHAN_FAILURE)
        assert not StartEstimate.objects.exists()

    def test_writes_nothing_after_it_was_given_up(self, lab: Cluster) -> None:
        def lose() -> bool:
            StartForecast.objects.update(beat_at=wall_now() - timedelta(minutes=2))
            service.fail_lost_forecasts()
            return False

        row = forecast(is_orphan=lose)
        assert (row.state, row.error) == ("failed", service.LOST_FAILURE)
        assert not StartEstimate.objects.exists()

    def test_writes_nothing_if_given_up_at_last_moment(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def given_up(row: StartForecast, *rest: Any) -> None:
            keep(row, *rest)
            service.mine(row.pk, row.claim).update(claim="another")

        keep = executing._keep
        monkeypatch.setattr(executing, "_keep", given_up)
        forecast()
        assert not StartEstimate.objects.exists()

    def test_reports_error_of_policy(self, lab: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise ValueError("boom")

        monkeypatch.setattr(executing, "estimate_starts", fail)
        row = forecast()
        assert (row.state, row.error) == ("failed", "It failed: ValueError: boom.")
        assert known(row.rest_until) > known(row.ended_at)


class TestForecastProcess:
    def test_computes_forecast_with_low_priority(self, lab: Cluster) -> None:
        assert tasks.forecasts() == 1
        (process,) = tasks._forecasts.values()
        # Check this before the process is polled, because until then even an ended process has a
        # priority.
        eventually(lambda: os.getpriority(os.PRIO_PROCESS, process.pid) == 19)
        assert tasks.forecasts() == 0

        def is_done() -> bool:
            tasks.forecasts()
            return StartForecast.objects.get().state == "done"

        eventually(is_done)
        row = StartForecast.objects.get()
        assert row.cpu_ms > 100, "its own seconds, that of its start included"
        # The pause is computed from exact seconds, but `cpu_ms` may be rounded up.
        rest = timedelta(milliseconds=4 * (row.cpu_ms - 1))
        assert known(row.rest_until) - known(row.ended_at) >= rest
        assert StartEstimate.objects.filter(forecast=row).count() == len(queued(lab))
        eventually(lambda: tasks.forecasts() == 0 and not tasks._forecasts)

    def test_kill_is_detected_at_next_check(self, lab: Cluster) -> None:
        tasks.forecasts()
        (process,) = tasks._forecasts.values()
        process.kill()
        process.wait()
        tasks.forecasts()
        row = StartForecast.objects.get()
        assert (row.state, row.error) == ("failed", service.LOST_FAILURE)
        assert not tasks._forecasts

    def test_is_ended_if_given_up(self, lab: Cluster) -> None:
        tasks.forecasts()
        ((key, process),) = tasks._forecasts.items()
        service.give_up_forecast(*key, "x")
        tasks.forecasts()
        assert process.wait() in (-9, 0)
        tasks.forecasts()
        assert not tasks._forecasts
