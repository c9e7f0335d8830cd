"""Where a queued job stands, and when it may start: the same on every page and in every answer."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from evenshare_core.policies.base import queue_order
from scheduling.engine.clock import wall_now
from scheduling.models import Job, Pool, PoolClock, Round, StartEstimate, StartForecast
from scheduling.selectors.queue_order import FIRST, NO_QUEUE
from scheduling.selectors.stored_rounds import round_values
from tests.functional.api_stage import ApiStage, api_stage
from tests.functional.visitors import Town, town

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def stage() -> ApiStage:
    """Tenant bb holds all eight GPUs; five jobs are queued, and aa's come first by rho."""
    stage = api_stage(lease_s=3600)
    stage.person("eve", site_role="operator")
    for _ in range(2):
        stage.cluster.submit("bb", 4, 9000)
    stage.cluster.round()
    for after, tenant in enumerate(("bb", "aa", "bb", "aa", "aa")):
        stage.cluster.submit(tenant, 2, 9000, after_s=after)
    stage.cluster.round(after_s=10)
    return stage


def queue(stage: ApiStage, **more: Any) -> Any:
    return stage.get(f"pools/{stage.pool}/queue", **more).json()


def order_of_last_round() -> list[str]:
    """The ids of the queued jobs as the policy itself orders the last round's bytes."""
    snapshot, decision = round_values(Round.objects.latest("number"))
    uids = dict(Job.objects.filter(state="pending").values_list("pk", "uid"))
    return [str(uids[job]) for job in queue_order(snapshot, decision.service) or ()]


class TestTheQueue:
    def test_is_in_the_order_of_the_policy_and_not_of_arrival(self, stage: ApiStage) -> None:
        answer = queue(stage, as_="eve")
        ids = [row["id"] for row in answer["results"]]
        assert ids == order_of_last_round()
        arrivals = Job.objects.filter(state="pending").order_by("submitted_at")
        assert ids != [str(job.uid) for job in arrivals]
        assert [row["position"] for row in answer["results"]] == [1, 2, 3, 4, 5]
        assert (answer["round"], answer["next"]) == (2, None)
        assert "least rho" in answer["order"]

    def test_counts_a_tenants_jobs_apart_and_hides_those_of_others(self, stage: ApiStage) -> None:
        mine = [row for row in queue(stage)["results"] if row["id"]]
        others = [row for row in queue(stage)["results"] if not row["id"]]
        assert [row["tenant_position"] for row in mine] == [1, 2, 3]
        assert [row["name"] for row in others] == [None] * 2
        assert [row["tenant_position"] for row in others] == [None] * 2
        assert {row["position"] for row in mine + others} == {1, 2, 3, 4, 5}

    def test_has_no_position_for_what_no_round_has_seen(self, stage: ApiStage) -> None:
        new = stage.job()
        row = queue(stage)["results"][-1]
        assert (row["id"], row["position"]) == (str(new.uid), None)
        stage.cluster.round(after_s=10)
        rows = queue(stage)["results"]
        assert {row["position"] for row in rows} == set(range(1, 7))

    def test_closes_up_behind_a_job_that_leaves(self, stage: ApiStage) -> None:
        first, second = order_of_last_round()[:2]
        Job.objects.filter(uid=first).update(state="cancelled", ended_at=stage.cluster.at)
        rows = queue(stage, as_="eve")["results"]
        assert (rows[0]["id"], rows[0]["position"]) == (second, 1)
        assert len(rows) == 4

    def test_goes_on_in_the_order_of_its_first_page(self, stage: ApiStage) -> None:
        before = order_of_last_round()
        first = stage.get(f"pools/{stage.pool}/queue?limit=2", as_="eve").json()
        stage.cluster.submit("aa", 1, 9000)
        stage.cluster.round(after_s=1800)
        cursor = f"limit=4&cursor={first['next']}"
        second = stage.get(f"pools/{stage.pool}/queue?{cursor}", as_="eve").json()
        assert second["round"] == first["round"] == 2
        ids = [row["id"] for row in first["results"] + second["results"]]
        assert ids[:5] == before
        assert len(set(ids)) == 6

    def test_of_a_policy_without_an_order_is_by_arrival_and_says_so(self, stage: ApiStage) -> None:
        Pool.objects.update(policy="max_min")
        stage.cluster.round(after_s=10)
        answer = queue(stage, as_="eve")
        arrivals = Job.objects.filter(state="pending").order_by("submitted_at", "id")
        assert [row["id"] for row in answer["results"]] == [str(job.uid) for job in arrivals]
        assert {row["position"] for row in answer["results"]} == {None}
        assert answer["order"] == NO_QUEUE

    def test_says_why_nobody_has_a_position(self) -> None:
        stage = api_stage()
        job = stage.job()
        assert (queue(stage)["order"], queue(stage)["round"]) == (FIRST, None)
        stage.cluster.round()
        assert queue(stage)["results"] == []
        assert stage.get(f"jobs/{job.uid}").json()["state"] == "running"


class TestAJob:
    def test_says_its_positions_as_the_queue_does(self, stage: ApiStage) -> None:
        rows = {row["id"]: row for row in queue(stage)["results"] if row["id"]}
        listed = {row["id"]: row for row in stage.get("jobs").json()["results"]}
        assert len(rows) == 3
        for uid, row in rows.items():
            shown = stage.get(f"jobs/{uid}").json()["queue"]
            assert shown == listed[uid]["queue"]
            assert (shown["position"], shown["tenant_position"]) == (
                row["position"],
                row["tenant_position"],
            )
            assert shown["round"] == 2
            assert shown["start"] is None

    def test_that_runs_is_in_no_queue(self, stage: ApiStage) -> None:
        running = Job.objects.filter(state="running").earliest("pk")
        assert stage.get(f"jobs/{running.uid}", as_="bob").json()["queue"] is None


@pytest.fixture
def place() -> Town:
    """South holds the pool; three of north's jobs are queued, and one of south's."""
    place = town()
    for _ in range(2):
        place.submit(4, 9000, "south")
    place.play()
    for gpus in (2, 1, 1):
        place.submit(gpus, 9000)
    place.submit(1, 9000, "south")
    place.play()
    # So that times are as far away as they were made, however slow the machine.
    PoolClock.objects.update(paused=True, pause_reason="maintenance")
    return place


def expect(place: Town, job: Job, **times: Any) -> StartEstimate:
    """An estimate of a forecast of the last round, as if it had just been made."""
    now, at = wall_now(), place.cluster.at
    forecast, _ = StartForecast.objects.get_or_create(
        pool=place.cluster.pool, state="done", round=2, at=at, policy="ltgf", claim="x",
        until=at + timedelta(hours=24),
        defaults={
            "started_at": now, "beat_at": now, "ended_at": now,
            "facts": {
                "runs": 19, "queued": 4, "running": 2, "with_estimate": 0, "ended": 40,
                "arrivals": 12, "past_s": 86400, "hours": 24, "widening": 1.25, "scores": 50,
                "none": {"beyond": 1},
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


def text(page: Any) -> str:
    """A page's text without tags, in one line."""
    assert page.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.content.decode()))


class TestTheJobPage:
    def test_says_position_and_start_with_its_assumptions(self, place: Town) -> None:
        job = Job.objects.filter(state="pending", tenant=place.tenant).latest("pk")
        expect(place, job, **soon(place, 120, 400))
        page = place.owner.get(f"/jobs/{job.uid}/")
        shown = text(page)
        order = page.context["queued"]["order"]
        assert f"Position {order.positions[job.pk].pool} of 4 in the pool" in shown
        assert f"Position {order.positions[job.pk].tenant} among the queued jobs of north" in shown
        assert "Expected to start in about 2 h (p50), within 6 h (p90)" in shown
        assert "as of round 2" in shown
        assert "simulated runs 19" in shown
        assert "125 % of its wait" in shown
        assert "nobody cancels" in shown
        assert f'href="/pools/{place.cluster.pool.name}/starts/"' in page.content.decode()

    def test_says_that_there_is_no_honest_estimate_and_why(self, place: Town) -> None:
        job = Job.objects.filter(state="pending", tenant=place.tenant).latest("pk")
        assert "No estimate of its start yet" in text(place.owner.get(f"/jobs/{job.uid}/"))
        expect(place, job, reason="beyond")
        shown = text(place.owner.get(f"/jobs/{job.uid}/"))
        assert "No honest estimate" in shown
        assert "In half of the simulated runs" in shown

    def test_says_no_p90_where_it_may_not_start_within_the_day(self, place: Town) -> None:
        job = Job.objects.filter(state="pending", tenant=place.tenant).latest("pk")
        expect(place, job, p50=place.cluster.at + timedelta(hours=3))
        shown = text(place.owner.get(f"/jobs/{job.uid}/"))
        assert "in about 3 h (p50), maybe not within 1 d (p90)" in shown

    def test_of_a_running_job_has_none_of_it(self, place: Town) -> None:
        job = Job.objects.filter(state="running").earliest("pk")
        assert "in the pool's queue" not in text(place.operator.get(f"/jobs/{job.uid}/"))


class TestTheList:
    def test_of_queued_jobs_is_in_their_order_with_their_positions(self, place: Town) -> None:
        page = place.owner.get("/t/north/jobs/?state=pending")
        rows = [row["job"] for row in page.context["rows"]]
        assert [row.position.tenant for row in rows] == [1, 2, 3]
        assert [row.position.pool for row in rows] == sorted(row.position.pool for row in rows)
        assert "In the order of the queue" in text(page)
        mixed = place.owner.get("/t/north/jobs/")
        assert {row["job"].uid: row["job"].position for row in mixed.context["rows"]} == {
            row.uid: row.position for row in rows
        }

    def test_goes_on_behind_a_page(self, place: Town) -> None:
        whole = place.owner.get("/t/north/jobs/?state=pending").context["rows"]
        rest = place.owner.get("/t/north/jobs/?state=pending&after=2")
        assert [row["job"].uid for row in rest.context["rows"]] == [whole[2]["job"].uid]
        assert place.owner.get("/t/north/jobs/?state=pending&after=x").status_code == 200
        assert "No further job" in text(place.owner.get("/t/north/jobs/?state=pending&after=9"))


class TestTheCalibration:
    def test_counts_for_whoever_sees_the_pool(self, place: Town) -> None:
        jobs = list(Job.objects.filter(state="pending").order_by("pk"))
        path = f"/pools/{place.cluster.pool.name}/starts/"
        assert "No start estimate has come due" in text(place.owner.get(path))
        for index, job in enumerate(jobs):
            began = place.cluster.at + timedelta(minutes=(1, 4, 8)[index]) if index < 3 else None
            fate = {"fate": "started", "started_at": began} if began else {}
            expect(place, job, kept=True, **soon(place, 2, 5), **fate)
        place.play(every_s=1200)
        for client in (place.owner, place.mate, place.neighbour, place.operator):
            page = client.get(path)
            shown = text(page)
            assert "2 of 4 estimates held: the job started before p90." in shown
            assert (page.context["past"].by_p90, page.context["past"].by_p50) == (2, 1)
            assert "p90 was widened by a factor of 1.25" in shown
            assert "1 job without an honest estimate" in shown
            assert "<svg" in page.content.decode()
            assert not any(job.name in shown or str(job.uid) in shown for job in jobs)
        for window in ("week", "month", "odd"):
            assert place.owner.get(f"{path}?window={window}").status_code == 200


class TestRest:
    def test_tells_the_estimate_of_the_page(self, stage: ApiStage) -> None:
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

    def test_tells_none_of_an_older_forecast(self, stage: ApiStage) -> None:
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
