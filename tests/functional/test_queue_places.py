"""Where a queued job stands, and when it may start: the same on every page and in every answer."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.signing import Signer

from evenshare_core.policies.base import queue_order
from scheduling.engine.clock import wall_now
from scheduling.models import Job, Pool, PoolClock, Round, StartEstimate, StartForecast
from scheduling.selectors.jobs import PAGE, JobFilter, jobs_page
from scheduling.selectors.queue_order import FIRST, NO_QUEUE, _order, read_queue_order
from scheduling.selectors.stored_rounds import round_values
from tenants.api.cursors import make_cursor
from tenants.models import Quota
from tests.factories import cluster
from tests.functional.api_stage import ApiStage, api_stage
from tests.functional.visitors import Town, reads, town

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

    def test_is_without_a_job_in_quarantine(self, stage: ApiStage) -> None:
        first, second = order_of_last_round()[:2]
        Job.objects.filter(uid=first).update(quarantine="it fails", reason_code="quarantined")
        row = queue(stage, as_="eve")["results"][0]
        assert (row["id"], row["position"]) == (second, 1)
        for policy in ("ltgf", "max_min"):
            Pool.objects.update(policy=policy)
            stage.cluster.round(after_s=10)
            rows = queue(stage, as_="eve")["results"]
            assert len(rows) == 4, policy
            assert first not in {row["id"] for row in rows}
            shown = stage.get(f"jobs/{first}", as_="eve").json()
            assert (shown["queue"], shown["reason_code"]) == (None, "quarantined")

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

    def test_refuses_a_cursor_of_another_shape(self, stage: ApiStage) -> None:
        pool = stage.cluster.pool.pk
        former = make_cursor(f"queue.{pool}", 1, 2)
        route = f"queue-2.{pool}"
        keys: list[Any] = [
            [], [1], [2, 0, 0], [2, 0, 0, 1, 1], [2, 0, 0, None], [2, 0, 0, "1"], [2, 0, 0.5, 1],
            [True, 0, 0, 1], [2, 0, [0], 1], [2**63, 0, 0, 1], {"2": 0}, "2001", 2, None,
        ]  # fmt: skip
        signer = Signer(salt=f"evenshare.cursor.{route}")
        signed = [*map(signer.sign_object, keys), *map(signer.sign, ("", ".x", "x", "W10", "{}"))]
        for cursor in (former, *signed):
            refused = stage.get(f"pools/{stage.pool}/queue?{urlencode({'cursor': cursor})}")
            assert refused.status_code == 400, cursor
            assert refused.json()["errors"][0]["field"] == "cursor"
            assert "`next`" in refused.content.decode()
        good = urlencode({"cursor": make_cursor(route, 2, 0, 0, 1)})
        assert stage.get(f"pools/{stage.pool}/queue?{good}").status_code == 200

    def test_of_a_policy_without_an_order_is_by_arrival_and_says_so(self, stage: ApiStage) -> None:
        Pool.objects.update(policy="max_min")
        stage.cluster.round(after_s=10)
        answer = queue(stage, as_="eve")
        arrivals = Job.objects.filter(state="pending").order_by("submitted_at", "id")
        assert [row["id"] for row in answer["results"]] == [str(job.uid) for job in arrivals]
        assert {row["position"] for row in answer["results"]} == {None}
        assert answer["order"] == NO_QUEUE

    def test_is_read_by_two_queries_while_its_round_is_remembered(
        self, stage: ApiStage, django_assert_num_queries: Any
    ) -> None:
        pool = stage.cluster.pool.pk
        _order.cache_clear()
        for queries in (3, 2, 2):
            with django_assert_num_queries(queries + 3):  # three are a scope's
                assert len(read_queue_order(pool).positions) == 5

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
    """South holds the pool; three of north's jobs are queued, and one of south's.

    The pool's clock stands at its last round, however long a page takes.
    """
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
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", page.content.decode())))


class TestTheDashboard:
    def test_says_which_queued_job_is_expected_to_start_first(self, place: Town) -> None:
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

    def test_knows_no_start_but_of_the_newest_forecast(self, place: Town) -> None:
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

    def test_asks_one_query_for_it(self, place: Town) -> None:
        for job in Job.objects.filter(state="pending", tenant=place.tenant):
            expect(place, job, **soon(place, 120, 400))
        asked = [sql for sql in reads(place.owner, "/t/north/") if "scheduling_start" in sql]
        assert len(asked) == 1


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

    def test_of_a_job_in_quarantine_promises_no_start_and_says_why(self, place: Town) -> None:
        job, other = Job.objects.filter(state="pending", tenant=place.tenant).order_by("-pk")[:2]
        expect(place, job, **soon(place, 120, 400))
        told = "ValueError: tenant 4711"
        Job.objects.filter(pk=job.pk).update(quarantine=told, reason_code="quarantined")
        page = place.owner.get(f"/jobs/{job.uid}/")
        shown = text(page)
        assert page.context["queued"] is None
        assert "In quarantine: it takes part in no round." in shown
        assert "In quarantine: it does not queue" in shown
        assert "It made the policy fail" in shown
        assert "An operator looks at it." in shown
        for word in ("Expected to start", "No estimate of its start yet", "Why it is queued", told):
            assert word not in shown
        assert "of 3 in the pool's queue" in text(place.owner.get(f"/jobs/{other.uid}/"))
        rows = place.owner.get("/t/north/jobs/?state=pending").context["rows"]
        assert rows[-1]["job"].uid == job.uid
        assert (rows[-1]["badge"].text, rows[-1]["job"].position) == ("In quarantine", None)

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

    def test_claims_no_order_that_the_policy_has_not(self, place: Town) -> None:
        Pool.objects.filter(pk=place.cluster.pool.pk).update(policy="max_min")
        place.play()
        page = place.owner.get("/t/north/jobs/?state=pending")
        assert [row["job"].position for row in page.context["rows"]] == [None] * 3
        assert "In the order of the queue" not in text(page)
        assert f"By arrival, without positions. {NO_QUEUE}" in text(page)

    def test_goes_on_behind_a_page_while_the_queue_moves(self, place: Town) -> None:
        for _ in range(PAGE):
            place.submit(1, 9000)
        place.play()
        whole = read_queue_order(place.cluster.pool.pk).jobs
        jobs = Job.objects.filter(state="pending", tenant=place.tenant).in_bulk()
        uids = [jobs[pk].uid for pk in whole if pk in jobs]
        first = place.owner.get("/t/north/jobs/?state=pending")
        (link,) = re.findall(r'rel="next"\s+href="([^"]*)"', first.content.decode())
        # The first three leave the queue, and one arrives: an offset would pass three over.
        Job.objects.filter(uid__in=uids[:3]).update(state="cancelled", ended_at=place.cluster.at)
        late = place.submit(1, 9000)
        place.play()
        second = place.owner.get(f"/t/north/jobs/{html.unescape(link)}")
        rows = [*first.context["rows"], *second.context["rows"]]
        assert len(first.context["rows"]) == PAGE
        assert [row["job"].uid for row in rows] == [*uids, late.uid]
        assert "Further back, as of round 3 in pool-1; this page does not" in text(second)
        assert "That is all." in text(second)

    def test_goes_on_from_pool_to_pool(self, place: Town) -> None:
        other = cluster({})
        quota = Quota.objects.filter(tenant=place.tenant, pool=place.cluster.pool).get()
        quota.pk, quota.pool = None, other.pool
        quota.save()
        other.tenants["north"] = place.tenant
        for _ in range(3):
            other.submit("north", 1, 9000)
        listed = [row.uid for row in jobs_page(place.tenant.pk, JobFilter("pending")).rows]
        assert len(listed) == 6
        for limit in (1, 2, 3, 4, 6):
            seen, after = [], None
            for _ in listed:
                page = jobs_page(place.tenant.pk, JobFilter("pending", after=after), limit=limit)
                seen += [row.uid for row in page.rows]
                after = page.next_after
                if after is None:
                    break
            assert seen == listed, limit

    def test_reads_no_mark_that_it_did_not_write(self, place: Town) -> None:
        path = "/t/north/jobs/?state=pending&after="
        for made_up in ("x", "9", "1.2.3", "1.3.0.0.pool-1", "1.0.0.0.", f"{10**18}.0.0.0.pool-1"):
            assert len(place.owner.get(f"{path}{made_up}").context["rows"]) == 3, made_up
        for mark in ("2.2.0.999.pool-1", "99.0.0.0.pool-1", "1.0.0.0.zz"):
            assert "No further job" in text(place.owner.get(f"{path}{mark}")), mark
        assert len(place.owner.get(f"{path}1.0.0.0.elsewhere").context["rows"]) == 3


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
