"""Start forecasts: what they say, whose turn it is, what is lost, what they leave alone."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from django.db import IntegrityError, connection

from scheduling import tasks
from scheduling.engine.clock import wall_now
from scheduling.models import (
    Job,
    Lease,
    PoolClock,
    PoolState,
    Round,
    StartEstimate,
    StartForecast,
)
from scheduling.selectors.start_estimates import WINDOWS, read_calibration, read_starts
from scheduling.services import execute_forecast as executing
from scheduling.services import forecasts as service
from scheduling.services.jobs import cancel_job
from tests.factories import Cluster, cluster
from tests.tools import eventually

pytestmark = pytest.mark.usefixtures("committed_db")
MINUTES = 60
Known = TypeVar("Known")


@pytest.fixture
def lab() -> Cluster:
    """Eight GPUs, twelve jobs that ended after ten minutes each, and more queued than fit."""
    made = cluster({"north": 4, "south": 4}, round_s=30)
    for _ in range(6):
        made.submit("north", 1, 10 * MINUTES)
        made.submit("south", 1, 10 * MINUTES)
    made.round()
    for _ in range(5):
        made.round(after_s=6 * MINUTES)
    for _ in range(8):
        made.submit("north", 2, 10 * MINUTES)
        made.submit("south", 1, 10 * MINUTES)
    made.rounds(2, every_s=30)
    set_clock(made)
    return made


def set_clock(lab: Cluster) -> None:
    PoolClock.objects.filter(pool=lab.pool).update(anchor_pool=lab.at, anchor_wall=wall_now())


def every_beat() -> Callable[[], float]:
    """A timer on which every second round gives a sign of life."""
    return itertools.count(0, 0.5).__next__


def forecast(**options: Any) -> StartForecast:
    """Claim one and make it in this process, as if no other had been made before."""
    StartForecast.objects.update(rest_until=None)
    claimed = service.claim_forecast()
    assert claimed is not None
    given = {"timer": every_beat(), "cpu": lambda: 1.5, **options}
    executing.execute_forecast(*claimed, **given)
    return StartForecast.objects.get(pk=claimed[0])


def known(value: Known | None) -> Known:
    assert value is not None
    return value


def queued(lab: Cluster) -> set[int]:
    jobs = Job.objects.filter(pool=lab.pool, state=Job.State.PENDING)
    return set(jobs.values_list("pk", flat=True))


class TestAForecast:
    def test_says_of_every_queued_job_when_as_of_which_round(self, lab: Cluster) -> None:
        row = forecast()
        assert (row.state, row.policy) == ("done", "ltgf"), row.error
        last = Round.objects.order_by("-number")[0]
        assert row.round == last.number
        starts = read_starts([lab.pool.pk], [job.pk for job in Job.objects.all()])
        assert set(starts) == queued(lab)
        assert len(starts) > 5
        for start in starts.values():
            assert start.round == last.number
            assert start.p50 is not None
            assert start.p90 is not None
            assert last.at < start.at <= start.p50 <= start.p90 <= start.until
            # All jobs of this pool took ten minutes: whoever is next waits for one of them.
            assert start.p90 < start.at + timedelta(hours=2)
        assert row.facts["queued"] == len(starts)
        assert (row.facts["runs"], row.facts["ended"], row.facts["widening"]) == (19, 12, 1.0)

    def test_is_the_same_again_from_the_same_round(self, lab: Cluster) -> None:
        def counted() -> list[tuple[Any, ...]]:
            rows = StartEstimate.objects.filter(forecast=forecast())
            return sorted(rows.values_list("job", "p50", "p90"))

        first = counted()
        StartForecast.objects.update(round=None, state="failed")
        StartEstimate.objects.all().delete()
        set_clock(lab)
        assert counted() == first

    def test_of_a_pool_without_a_past_says_so(self) -> None:
        new = cluster({"north": 4}, nodes=1, round_s=30)
        new.submit("north", 4, 600)
        late, large = new.submit("north", 1, 600), new.submit("north", 9, 600)
        new.round()
        set_clock(new)
        forecast()
        starts = read_starts([new.pool.pk], [late.pk, large.pk])
        assert starts[late.pk].reason == "too_little_known"
        assert "Too few jobs" in starts[late.pk].why
        assert starts[large.pk].reason == "never_fits"
        assert not StartEstimate.objects.filter(kept=True).exists()

    def test_cut_by_its_budget_says_so(self, lab: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(executing, "BUDGET_S", -1.0)
        row = forecast()
        assert row.state == "done"
        assert row.facts["none"].get("too_much_work")
        assert known(row.until) < known(row.at) + timedelta(hours=24)

    def test_is_replaced_by_the_next_but_for_what_is_kept(self, lab: Cluster) -> None:
        first = forecast()
        one = min(queued(lab))
        assert StartEstimate.objects.filter(forecast=first, kept=True).count() == len(queued(lab))
        lab.round(after_s=30)
        set_clock(lab)
        second = forecast()
        again = StartEstimate.objects.get(forecast=second, job=one)
        assert not again.kept, "it has not waited twice as long as at the first"
        assert read_starts([lab.pool.pk], [one])[one].round == second.round
        lab.round(after_s=30)
        set_clock(lab)
        third = forecast()
        kept = StartEstimate.objects.filter(job=one, kept=True).order_by("at")
        assert [row.forecast_id for row in kept] == [first.pk, third.pk]
        assert not StartEstimate.objects.filter(pk=again.pk).exists()

    def test_changes_nothing_of_the_pool_and_holds_no_transaction(self, lab: Cluster) -> None:
        def rows() -> list[Any]:
            return [
                list(Job.objects.order_by("id").values()),
                list(Lease.objects.order_by("id").values()),
                [(row.round, bytes(row.service)) for row in PoolState.objects.all()],
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

    def test_lets_rounds_go_on_meanwhile(self, lab: Cluster) -> None:
        outcomes: list[str] = []

        def round_between() -> bool:
            if len(outcomes) < 3:
                outcomes.append(lab.round(after_s=30).outcome.value)
            return False

        row = forecast(is_orphan=round_between)
        assert (row.state, outcomes) == ("done", ["committed"] * 3)
        assert Round.objects.count() == known(row.round) + 3


class TestWhatBecameOfIt:
    def test_is_the_start_of_its_job_or_that_there_will_be_none(self, lab: Cluster) -> None:
        forecast()
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

    def test_is_counted_once_its_p90_has_passed(self, lab: Cluster) -> None:
        forecast()
        made = StartEstimate.objects.filter(kept=True)
        assert read_calibration(lab.pool.pk, lab.at, WINDOWS["day"]).estimates == 0
        for _ in range(30):
            lab.round(after_s=3 * MINUTES)
        unsettled = read_calibration(lab.pool.pk, lab.at, WINDOWS["day"])
        service.settle_estimates(lab.pool.pk)
        found = read_calibration(lab.pool.pk, lab.at, WINDOWS["day"])
        assert found == unsettled, "whoever asks before it is noted reads the same"
        past = [row for row in made.all() if row.p90 and row.p90 <= lab.at]
        assert (found.estimates, found.jobs, found.gone) == (len(past), len(past), 0)
        assert found.estimates > 5
        starts = [(row.started_at, row.p50, row.p90) for row in past if row.started_at]
        assert found.by_p90 == sum(at <= known(p90) for at, _, p90 in starts)
        assert found.by_p50 == sum(at <= known(p50) for at, p50, _ in starts)
        assert len(found.steps) == 12
        later = read_calibration(lab.pool.pk, lab.at + timedelta(days=2), WINDOWS["day"])
        assert later.estimates == 0

    def test_of_a_job_that_was_cancelled_counts_if_it_was_late_by_then(self, lab: Cluster) -> None:
        forecast()
        early, late = sorted(queued(lab))[-2:]
        p90 = lab.at + timedelta(minutes=10)
        StartEstimate.objects.filter(job__in=[early, late]).update(p50=lab.at, p90=p90)
        StartEstimate.objects.exclude(job__in=[early, late]).delete()
        for job, after in ((early, 5), (late, 15)):
            ended_at = lab.at + timedelta(minutes=after)
            Job.objects.filter(pk=job).update(state="cancelled", ended_at=ended_at)
        found = read_calibration(lab.pool.pk, lab.at + timedelta(hours=1), WINDOWS["day"])
        assert (found.estimates, found.by_p90, found.gone, found.jobs) == (1, 0, 1, 1)

    def test_widens_the_next_p90_where_past_ones_were_too_early(self, lab: Cluster) -> None:
        first = forecast()
        one = StartEstimate.objects.filter(kept=True).first()
        assert one is not None
        late = {"p50": lab.at, "p90": lab.at, "raw_p90": lab.at, "at": lab.at - timedelta(hours=1)}
        for _ in range(40):
            of = StartForecast.objects.create(
                pool=lab.pool, state="done", claim="x", round=1, at=lab.at, policy="ltgf",
                started_at=wall_now(), beat_at=wall_now(), ended_at=wall_now(),
            )  # fmt: skip
            StartEstimate.objects.create(
                forecast=of, pool=lab.pool, tenant_id=one.tenant_id, job_id=one.job_id, kept=True,
                fate="started", started_at=lab.at + timedelta(hours=2), **late,
            )  # fmt: skip
        lab.round(after_s=30)
        set_clock(lab)
        row = forecast()
        assert (first.facts["widening"], row.facts["widening"]) == (1.0, 3.0)
        assert row.facts["scores"] == 40
        for wide in StartEstimate.objects.filter(forecast=row, p90__isnull=False):
            assert known(wide.p90) - wide.at >= 3 * (known(wide.raw_p90) - wide.at)

    def test_is_dropped_after_a_month(self, lab: Cluster) -> None:
        forecast()
        lab.round(after_s=30)
        set_clock(lab)
        newest = forecast()
        tasks.housekeeping()
        assert StartForecast.objects.count() == 2
        StartForecast.objects.update(ended_at=wall_now() - timedelta(days=2))
        StartEstimate.objects.filter(kept=True).update(kept=False)
        tasks.housekeeping()
        assert list(StartForecast.objects.all()) == [newest], "it is what pages show"
        StartForecast.objects.update(ended_at=wall_now() - timedelta(days=31))
        tasks.housekeeping()
        assert not StartForecast.objects.exists()
        assert not StartEstimate.objects.exists()


class TestItsTurn:
    def test_comes_with_a_queue_and_a_new_round(self, lab: Cluster) -> None:
        forecast()
        StartForecast.objects.update(rest_until=None)
        assert service.claim_forecast() is None, "no round since"
        lab.round(after_s=30)
        claimed = service.claim_forecast()
        assert claimed is not None
        service.give_up_forecast(*claimed, "x")
        StartForecast.objects.update(rest_until=None)
        Job.objects.filter(state="pending").update(state="cancelled", ended_at=lab.at)
        assert service.claim_forecast() is None, "nobody is queued"

    def test_comes_after_four_times_the_cpu_seconds_of_the_last(self, lab: Cluster) -> None:
        row = forecast(cpu=lambda: 7500.5)  # so many that no round here takes four times as long
        assert row.cpu_ms == 7_500_500
        assert known(row.rest_until) - known(row.ended_at) == timedelta(seconds=30_002)
        lab.round(after_s=30)
        assert service.claim_forecast() is None
        StartForecast.objects.update(rest_until=wall_now())
        assert service.claim_forecast() is not None

    def test_is_one_at_a_time_of_all_pools_the_longest_unseen_first(self, lab: Cluster) -> None:
        other = cluster({"west": 4}, nodes=1, round_s=30)
        other.submit("west", 4, 600)
        other.submit("west", 4, 600)
        other.round()
        first = forecast()
        assert first.pool == lab.pool
        lab.round(after_s=30)
        StartForecast.objects.update(rest_until=None)
        claimed = service.claim_forecast()
        assert claimed is not None
        assert StartForecast.objects.get(pk=claimed[0]).pool == other.pool
        assert service.claim_forecast() is None
        with pytest.raises(IntegrityError, match="forecast_one_runs"):
            StartForecast.objects.create(
                pool=lab.pool, claim="x", started_at=wall_now(), beat_at=wall_now()
            )


class TestAnEndBeforeTheEnd:
    def test_without_its_worker_it_fails(self, lab: Cluster) -> None:
        row = forecast(is_orphan=lambda: True)
        assert (row.state, row.error) == ("failed", executing.ORPHAN_FAILURE)
        assert not StartEstimate.objects.exists()

    def test_given_up_it_writes_nothing_more(self, lab: Cluster) -> None:
        def lose() -> bool:
            StartForecast.objects.update(beat_at=wall_now() - timedelta(minutes=2))
            service.fail_lost_forecasts()
            return False

        row = forecast(is_orphan=lose)
        assert (row.state, row.error) == ("failed", service.LOST_FAILURE)
        assert not StartEstimate.objects.exists()

    def test_given_up_at_its_very_end_it_keeps_nothing(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def given_up(row: StartForecast, *rest: Any) -> None:
            keep(row, *rest)
            service.mine(row.pk, row.claim).update(claim="another")

        keep = executing._keep
        monkeypatch.setattr(executing, "_keep", given_up)
        forecast()
        assert not StartEstimate.objects.exists()

    def test_an_error_of_the_policy_is_told(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise ValueError("boom")

        monkeypatch.setattr(executing, "estimate_starts", fail)
        row = forecast()
        assert (row.state, row.error) == ("failed", "It failed: ValueError: boom.")
        assert known(row.rest_until) > known(row.ended_at)


class TestItsProcess:
    def test_makes_it_and_is_low_in_priority(self, lab: Cluster) -> None:
        assert tasks.forecasts() == 1
        (process,) = tasks._forecasts.values()
        # Before anybody asks whether it has ended: until then even an ended one can be looked at.
        eventually(lambda: os.getpriority(os.PRIO_PROCESS, process.pid) == 19)
        assert tasks.forecasts() == 0

        def is_done() -> bool:
            tasks.forecasts()
            return StartForecast.objects.get().state == "done"

        eventually(is_done)
        row = StartForecast.objects.get()
        assert row.cpu_ms > 100, "its own seconds, that of its start included"
        assert known(row.rest_until) - known(row.ended_at) >= timedelta(milliseconds=4 * row.cpu_ms)
        assert StartEstimate.objects.filter(forecast=row).count() == len(queued(lab))
        eventually(lambda: tasks.forecasts() == 0 and not tasks._forecasts)

    def test_killed_it_is_noticed_at_the_next_look(self, lab: Cluster) -> None:
        tasks.forecasts()
        (process,) = tasks._forecasts.values()
        process.kill()
        process.wait()
        tasks.forecasts()
        row = StartForecast.objects.get()
        assert (row.state, row.error) == ("failed", service.LOST_FAILURE)
        assert not tasks._forecasts

    def test_given_up_it_is_ended(self, lab: Cluster) -> None:
        tasks.forecasts()
        ((key, process),) = tasks._forecasts.items()
        service.give_up_forecast(*key, "x")
        tasks.forecasts()
        assert process.wait() in (-9, 0)
        tasks.forecasts()
        assert not tasks._forecasts
