"""Expected starts of queued jobs: on the dashboard, on their pages, over REST; calibration."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from evenshare.cli.job_facts import _start
from evenshare_core.domain.reasons import Reason
from scheduling.engine.clock import wall_now
from scheduling.models import Job, StartEstimate, StartForecast
from tests.functional.api_stage import ApiStage
from tests.functional.queue_stages import queue, queue_stage, queue_town, text
from tests.functional.visitors import Town, reads

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def stage() -> ApiStage:
    return queue_stage()


@pytest.fixture
def place() -> Town:
    return queue_town()


def expect(place: Town, job: Job, **times: Any) -> StartEstimate:
    """Store a start estimate of the last round's forecast, as if it was just made."""
    now, at = wall_now(), place.cluster.at
    forecast, _ = StartForecast.objects.get_or_create(
        pool=place.cluster.pool, state="done", round=2, at=at, policy="ltgf", claim="x",
        until=at + timedelta(hours=24),
        defaults={
            "started_at": now, "beat_at": now, "ended_at": now,
            "facts": {
                "runs": 19, "queued": 4, "running": 2, "with_estimate": 0, "ended": 40,
                "arrivals": 12, "past_s": 86400, "hours": 24, "none": {"beyond": 1},
                "corrections": {
                    "short": {"p50": 0.5, "p90": 1.25, "past": 50},
                    "long": {"p50": 1.0, "p90": 1.0, "past": 0},
                },
            },
        },
    )  # fmt: skip
    return StartEstimate.objects.create(
        forecast=forecast, pool=place.cluster.pool, tenant_id=job.tenant_id, job=job, at=at, **times
    )


def soon(place: Town, p50_min: int, p90_min: int) -> dict[str, Any]:
    at = place.cluster.at
    p50, p90 = at + timedelta(minutes=p50_min), at + timedelta(minutes=p90_min)
    return {"p50": p50, "p90": p90, "raw_p90": p90}


class TestDashboard:
    def test_shows_queued_job_expected_to_start_first(self, place: Town) -> None:
        page = place.owner.get("/t/north/")
        assert "Next to start:" not in text(page)
        queued = Job.objects.filter(state="pending").order_by("pk")
        late, soonest, none = queued.filter(tenant=place.tenant)
        expect(place, late, **soon(place, 300, 500))
        expect(place, soonest, **soon(place, 120, 400))
        expect(place, none, reason="beyond")
        expect(place, queued.exclude(tenant=place.tenant).get(), **soon(place, 60, 70))
        page = place.owner.get("/t/north/")
        shown = text(page)
        assert f"Next to start: {soonest.name} ." in shown
        assert f'href="/jobs/{soonest.uid}/"' in page.content.decode()
        assert "Expected to start in about 2 h (p50), within 6 h (p90)" in shown
        assert "as of round 2" in shown
        assert "simulated runs 19" in shown
        Job.objects.filter(pk=soonest.pk).update(state="cancelled", ended_at=place.cluster.at)
        assert f"Next to start: {late.name} ." in text(place.owner.get("/t/north/"))

    def test_ignores_older_forecasts(self, place: Town) -> None:
        job = Job.objects.filter(state="pending", tenant=place.tenant).latest("pk")
        newest = expect(place, job, reason="beyond").forecast
        older = StartForecast.objects.get(pk=newest.pk)
        older.pk, older.round = newest.pk - 1, 1
        older.save(force_insert=True)
        StartEstimate.objects.create(
            forecast=older, pool=job.pool, tenant_id=job.tenant_id, job=job, at=place.cluster.at,
            **soon(place, 1, 2),
        )  # fmt: skip
        assert "Next to start:" not in text(place.owner.get("/t/north/"))

    def test_reads_estimates_in_one_query(self, place: Town) -> None:
        for job in Job.objects.filter(state="pending", tenant=place.tenant):
            expect(place, job, **soon(place, 120, 400))
        asked = [sql for sql in reads(place.owner, "/t/north/") if "scheduling_start" in sql]
        assert len(asked) == 1


class TestJobPage:
    def test_shows_position_and_expected_start_with_assumptions(self, place: Town) -> None:
        job = Job.objects.filter(state="pending", tenant=place.tenant).latest("pk")
        expect(place, job, **soon(place, 120, 400))
        page = place.owner.get(f"/jobs/{job.uid}/")
        shown = text(page)
        order = page.context["queued"]["order"]
        assert f"Position {order.positions[job.pk].pool} of 4 in the pool" in shown
        assert f"Position {order.positions[job.pk].tenant} among the queued jobs of north" in shown
        assert "Expected to start in about 2 h (p50), within 6 h (p90)" in shown
        assert "As of round 2" in shown
        assert "simulated runs 19" in shown
        assert "125 % of its wait" in shown
        assert "no job is cancelled" in shown
        assert f'href="/pools/{place.cluster.pool.name}/starts/"' in page.content.decode()

    def test_explains_missing_or_unreliable_estimate(self, place: Town) -> None:
        job = Job.objects.filter(state="pending", tenant=place.tenant).latest("pk")
        assert "No start estimate yet" in text(place.owner.get(f"/jobs/{job.uid}/"))
        expect(place, job, reason="beyond")
        shown = text(place.owner.get(f"/jobs/{job.uid}/"))
        assert "No reliable estimate" in shown
        assert "It did not start in half" in shown

    def test_promises_no_start_to_job_larger_than_pool(self, place: Town) -> None:
        job = Job.objects.filter(state="pending", tenant=place.tenant).latest("pk")
        Job.objects.filter(pk=job.pk).update(gpus=999, reason_code=Reason.TOO_LARGE)
        expect(place, job, reason="never_fits")
        shown = text(place.owner.get(f"/jobs/{job.uid}/"))
        assert "No reliable estimate" in shown
        assert "the pool can schedule at present" in shown
        assert "it waits for more" not in shown

    def test_names_blocking_price(self, place: Town) -> None:
        job = Job.objects.filter(state="pending", tenant=place.tenant).latest("pk")
        Job.objects.filter(pk=job.pk).update(max_price="0.500000")
        forecast = expect(place, job, reason="price_above_max").forecast
        path = f"/jobs/{job.uid}/"
        assert "A borrowed GPU-hour costs more than its own" in text(place.owner.get(path))
        prices = {"v100": 1_250_000, "a100": 3_000_000}
        StartForecast.objects.filter(pk=forecast.pk).update(facts={"prices": prices})
        shown = text(place.owner.get(path))
        assert "of v100 costs 1.250000 credits, above its maximum of 0.500000" in shown

    def test_omits_p90_beyond_simulated_day(self, place: Town) -> None:
        job = Job.objects.filter(state="pending", tenant=place.tenant).latest("pk")
        expect(place, job, p50=place.cluster.at + timedelta(hours=3))
        shown = text(place.owner.get(f"/jobs/{job.uid}/"))
        assert "in about 3 h (p50), maybe not within 1 d (p90)" in shown

    def test_quarantined_job_has_reason_but_no_position_or_start(self, place: Town) -> None:
        job, other = Job.objects.filter(state="pending", tenant=place.tenant).order_by("-pk")[:2]
        expect(place, job, **soon(place, 120, 400))
        error = "ValueError: tenant 4711"
        Job.objects.filter(pk=job.pk).update(quarantine=error, reason_code="quarantined")
        page = place.owner.get(f"/jobs/{job.uid}/")
        shown = text(page)
        assert page.context["queued"] is None
        assert "In quarantine: rounds skip it." in shown
        assert "In quarantine: not queued" in shown
        assert "The policy failed with it" in shown
        assert "An operator must release it." in shown
        for word in (
            "Expected to start",
            "No start estimate yet",
            "Why it is queued",
            error,
        ):
            assert word not in shown
        assert "of 3 in the pool's queue" in text(place.owner.get(f"/jobs/{other.uid}/"))
        rows = place.owner.get("/t/north/jobs/?state=pending").context["rows"]
        assert rows[-1]["job"].uid == job.uid
        assert (rows[-1]["badge"].text, rows[-1]["listed"].position) == ("In quarantine", None)

    def test_running_job_has_no_position(self, place: Town) -> None:
        job = Job.objects.filter(state="running").earliest("pk")
        assert "in the pool's queue" not in text(place.operator.get(f"/jobs/{job.uid}/"))


class TestCalibration:
    def test_shows_past_accuracy_without_job_names_to_all_viewers(self, place: Town) -> None:
        jobs = list(Job.objects.filter(state="pending").order_by("pk"))
        path = f"/pools/{place.cluster.pool.name}/starts/"
        assert "No start estimate came due" in text(place.owner.get(path))
        for index, job in enumerate(jobs):
            began = place.cluster.at + timedelta(minutes=(1, 4, 8)[index]) if index < 3 else None
            fate = {"fate": "started", "started_at": began} if began else {}
            expect(place, job, kept=True, **soon(place, 2, 5), **fate)
        place.play(every_s=1200)
        for client in (place.owner, place.mate, place.neighbour, place.operator):
            page = client.get(path)
            shown = text(page)
            assert "2 of 4 estimates held (start before p90)." in shown
            past = page.context["past"]
            assert (past.whole.by_p90, past.whole.by_p50, past.whole.of_p50) == (2, 1, 4)
            assert "corrected by 50 past estimates: p50 to 50 %, p90 to 125 % of its wait." in shown
            assert "1 job without a reliable estimate" in shown
            assert "<svg" in page.content.decode()
            assert not any(job.name in shown or str(job.uid) in shown for job in jobs)
        for window in ("week", "month", "odd"):
            assert place.owner.get(f"{path}?window={window}").status_code == 200


WRONG = "The last estimate was wrong"
REFUTED = "The last estimate was wrong"


class TestEstimateWithPassedP90:
    """The estimate is no longer shown. The page states whether a price was the cause."""

    def outbid(self, job: Job, reason: Reason = Reason.PRICE_ABOVE_VALUE) -> None:
        Job.objects.filter(pk=job.pk).update(reason_code=reason)

    @pytest.mark.parametrize("reason", [Reason.PRICE_ABOVE_VALUE, Reason.PRICE_ABOVE_MAX])
    def test_is_unreliable_and_omitted_from_dashboard(self, place: Town, reason: Reason) -> None:
        job = Job.objects.filter(state="pending", tenant=place.tenant).latest("pk")
        expect(place, job, **soon(place, -90, -60))
        path = f"/jobs/{job.uid}/"
        shown = text(place.owner.get(path))
        assert "No reliable estimate" in shown
        assert WRONG in shown
        assert "Expected to" not in shown
        self.outbid(job, reason)
        shown = text(place.owner.get(path))
        assert REFUTED in shown
        assert "Expected to" not in shown
        assert "Next to start:" not in text(place.owner.get("/t/north/"))

    def test_estimate_is_shown_until_its_p90(self, place: Town) -> None:
        job = Job.objects.filter(state="pending", tenant=place.tenant).latest("pk")
        expect(place, job, **soon(place, -90, 60))
        self.outbid(job)
        assert "Expected to start any time now" in text(place.owner.get(f"/jobs/{job.uid}/"))
        assert f"Next to start: {job.name} ." in text(place.owner.get("/t/north/"))

    def test_rest_and_command_report_refuted_estimate(self, stage: ApiStage) -> None:
        (uid, *_) = [row["id"] for row in queue(stage)["results"] if row["id"]]
        job, now, at = Job.objects.get(uid=uid), wall_now(), stage.cluster.at
        forecast = StartForecast.objects.create(
            pool=job.pool, state="done", round=2, at=at, until=at + timedelta(hours=24), claim="x",
            started_at=now, beat_at=now, ended_at=now,
        )  # fmt: skip
        past = at - timedelta(minutes=5)
        StartEstimate.objects.create(
            forecast=forecast, pool=job.pool, tenant_id=job.tenant_id, job=job, at=at, p50=past,
            p90=past, raw_p90=past,
        )  # fmt: skip
        start = stage.get(f"jobs/{uid}").json()["queue"]["start"]
        assert (start["p50"], start["p90"], start["reason"]) == (None, None, "refuted")
        assert start["why"].startswith(WRONG)
        self.outbid(job)
        start = stage.get(f"jobs/{uid}").json()["queue"]["start"]
        assert (start["p50"], start["p90"], start["reason"]) == (None, None, "refuted")
        assert start["why"].startswith(REFUTED)
        assert REFUTED in _start(start)
        (row,) = [row for row in stage.get("jobs?limit=100").json()["results"] if row["id"] == uid]
        assert row["queue"]["start"] == start


class TestRest:
    def test_returns_estimate_of_the_newest_forecast(self, stage: ApiStage) -> None:
        (uid, *_) = [row["id"] for row in queue(stage)["results"] if row["id"]]
        job, now = Job.objects.get(uid=uid), wall_now()
        at = stage.cluster.at
        forecast = StartForecast.objects.create(
            pool=job.pool, state="done", round=2, at=at, until=at + timedelta(hours=24), claim="x",
            started_at=now, beat_at=now, ended_at=now,
        )  # fmt: skip
        p50, p90 = at + timedelta(minutes=12), at + timedelta(minutes=40)
        StartEstimate.objects.create(
            forecast=forecast, pool=job.pool, tenant_id=job.tenant_id, job=job, at=at, p50=p50,
            p90=p90, raw_p90=p90,
        )  # fmt: skip
        start = stage.get(f"jobs/{uid}").json()["queue"]["start"]
        assert start == {
            "round": 2,
            "as_of": "2030-01-01T00:00:10.000000Z",
            "p50": "2030-01-01T00:12:10.000000Z",
            "p90": "2030-01-01T00:40:10.000000Z",
            "simulated_until": "2030-01-02T00:00:10.000000Z",
            "reason": "",
            "why": "",
        }

    def test_ignores_estimate_of_older_forecast(self, stage: ApiStage) -> None:
        (uid, *_) = [row["id"] for row in queue(stage)["results"] if row["id"]]
        job, now, at = Job.objects.get(uid=uid), wall_now(), stage.cluster.at
        for number in (1, 2):
            forecast = StartForecast.objects.create(
                pool=job.pool, state="done", round=number, at=at, until=at, claim="x",
                started_at=now, beat_at=now, ended_at=now,
            )  # fmt: skip
            if number == 1:
                StartEstimate.objects.create(
                    forecast=forecast, pool=job.pool, tenant_id=job.tenant_id, job=job, at=at,
                    reason="beyond",
                )  # fmt: skip
        assert stage.get(f"jobs/{uid}").json()["queue"]["start"] is None
