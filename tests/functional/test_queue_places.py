"""The position of a queued job: the same on every page and in every answer."""

from __future__ import annotations

import html
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.signing import Signer

from evenshare_core.policies.base import queue_order
from evenshare_core.policies.registry import DEFAULT, POLICIES
from scheduling.models import Job, Pool, Round
from scheduling.selectors.jobs.queue_order import FIRST, NO_QUEUE, _order, read_queue_order
from scheduling.selectors.jobs.tenant_jobs import PAGE, JobFilter, jobs_page
from scheduling.selectors.rounds.stored import round_values
from tenants.api.cursors import make_cursor
from tenants.models import Quota
from tests.factories import cluster
from tests.functional.api_stage import ApiStage, api_stage
from tests.functional.queue_stages import queue, queue_stage, queue_town, text
from tests.functional.visitors import Town

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def stage() -> ApiStage:
    return queue_stage()


def order_of_last_round() -> list[str]:
    """Return the ids of queued jobs in the policy's order, from the last round's bytes."""
    snapshot, decision = round_values(Round.objects.latest("number"))
    uids = dict(Job.objects.filter(state="pending").values_list("pk", "uid"))
    return [str(uids[job]) for job in queue_order(snapshot, decision.service) or ()]


class TestQueue:
    def test_follows_order_of_policy(self, stage: ApiStage) -> None:
        answer = queue(stage, as_="eve")
        assert [row["id"] for row in answer["results"]] == order_of_last_round()
        assert [row["position"] for row in answer["results"]] == [1, 2, 3, 4, 5]
        assert (answer["round"], answer["next"]) == (2, None)
        assert answer["order"] == POLICIES[DEFAULT].order_text

    def test_numbers_own_jobs_and_hides_those_of_others(self, stage: ApiStage) -> None:
        mine = [row for row in queue(stage)["results"] if row["id"]]
        others = [row for row in queue(stage)["results"] if not row["id"]]
        assert [row["tenant_position"] for row in mine] == [1, 2, 3]
        assert [row["name"] for row in others] == [None] * 2
        assert [row["tenant_position"] for row in others] == [None] * 2
        assert {row["position"] for row in mine + others} == {1, 2, 3, 4, 5}

    def test_new_job_has_no_position_until_next_round(self, stage: ApiStage) -> None:
        new = stage.job()
        row = queue(stage)["results"][-1]
        assert (row["id"], row["position"]) == (str(new.uid), None)
        stage.cluster.round(after_s=10)
        rows = queue(stage)["results"]
        assert {row["position"] for row in rows} == set(range(1, 7))

    def test_positions_close_up_after_a_job_leaves(self, stage: ApiStage) -> None:
        first, second = order_of_last_round()[:2]
        Job.objects.filter(uid=first).update(state="cancelled", ended_at=stage.cluster.at)
        rows = queue(stage, as_="eve")["results"]
        assert (rows[0]["id"], rows[0]["position"]) == (second, 1)
        assert len(rows) == 4

    def test_omits_quarantined_jobs(self, stage: ApiStage) -> None:
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

    def test_cursor_keeps_order_of_first_page(self, stage: ApiStage) -> None:
        before = order_of_last_round()
        first = stage.get(f"pools/{stage.pool}/queue?limit=2", as_="eve").json()
        stage.cluster.submit("aa", 1, 9000)
        stage.cluster.round(after_s=200)  # no lease ends, and none may be preempted yet
        cursor = f"limit=4&cursor={first['next']}"
        second = stage.get(f"pools/{stage.pool}/queue?{cursor}", as_="eve").json()
        assert second["round"] == first["round"] == 2
        ids = [row["id"] for row in first["results"] + second["results"]]
        assert ids[:5] == before
        assert len(set(ids)) == 6

    def test_rejects_malformed_cursors(self, stage: ApiStage) -> None:
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

    def test_is_by_arrival_if_policy_has_no_order(self, stage: ApiStage) -> None:
        Pool.objects.update(policy="max_min")
        stage.cluster.round(after_s=10)
        answer = queue(stage, as_="eve")
        arrivals = Job.objects.filter(state="pending").order_by("submitted_at", "id")
        assert [row["id"] for row in answer["results"]] == [str(job.uid) for job in arrivals]
        assert {row["position"] for row in answer["results"]} == {None}
        assert answer["order"] == NO_QUEUE

    def test_needs_two_queries_with_cached_round(
        self, stage: ApiStage, django_assert_num_queries: Any
    ) -> None:
        pool = stage.cluster.pool.pk
        _order.cache_clear()
        for queries in (3, 2, 2):
            # three of the queries open and close the scope
            with django_assert_num_queries(queries + 3):
                assert len(read_queue_order(pool).positions) == 5

    def test_explains_missing_positions_before_first_round(self) -> None:
        stage = api_stage()
        job = stage.job()
        assert (queue(stage)["order"], queue(stage)["round"]) == (FIRST, None)
        stage.cluster.round()
        assert queue(stage)["results"] == []
        assert stage.get(f"jobs/{job.uid}").json()["state"] == "running"


class TestJob:
    def test_shows_same_positions_as_queue(self, stage: ApiStage) -> None:
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

    def test_running_job_has_no_position(self, stage: ApiStage) -> None:
        running = Job.objects.filter(state="running").earliest("pk")
        assert stage.get(f"jobs/{running.uid}", as_="bob").json()["queue"] is None


@pytest.fixture
def place() -> Town:
    return queue_town()


class TestJobList:
    def test_queued_jobs_are_in_queue_order_with_positions(self, place: Town) -> None:
        page = place.owner.get("/t/north/jobs/?state=pending")
        rows = [row["listed"] for row in page.context["rows"]]
        assert [row.position.tenant for row in rows] == [1, 2, 3]
        assert [row.position.pool for row in rows] == sorted(row.position.pool for row in rows)
        assert "In queue order" in text(page)
        assert "position" in page.context["columns"]
        mixed = place.owner.get("/t/north/jobs/")
        assert {row["job"].uid: row["listed"].position for row in mixed.context["rows"]} == {
            row.job.uid: row.position for row in rows
        }

    def test_is_by_arrival_if_policy_has_no_order(self, place: Town) -> None:
        Pool.objects.filter(pk=place.cluster.pool.pk).update(policy="max_min")
        place.play()
        page = place.owner.get("/t/north/jobs/?state=pending")
        assert [row["listed"].position for row in page.context["rows"]] == [None] * 3
        assert "In queue order" not in text(page)
        assert "position" not in page.context["columns"]
        assert f"By arrival, without positions. {NO_QUEUE}" in text(page)

    def test_next_page_skips_no_job_while_queue_moves(self, place: Town) -> None:
        for _ in range(PAGE):
            place.submit(1, 9000)
        place.play()
        whole = read_queue_order(place.cluster.pool.pk).jobs
        jobs = Job.objects.filter(state="pending", tenant=place.tenant).in_bulk()
        uids = [jobs[pk].uid for pk in whole if pk in jobs]
        first = place.owner.get("/t/north/jobs/?state=pending")
        (link,) = re.findall(r'rel="next"\s+href="([^"]*)"', first.content.decode())
        # The first three leave the queue, and one arrives. An offset would skip three.
        Job.objects.filter(uid__in=uids[:3]).update(state="cancelled", ended_at=place.cluster.at)
        late = place.submit(1, 9000)
        place.play()
        second = place.owner.get(f"/t/north/jobs/{html.unescape(link)}")
        rows = [*first.context["rows"], *second.context["rows"]]
        assert len(first.context["rows"]) == PAGE
        assert [row["job"].uid for row in rows] == [*uids, late.uid]
        assert "Later in the queue, as of round 3 in pool-1. This page does not" in text(second)
        assert "End of list." in text(second)

    def test_ignores_pool_mark_of_unknown_pool(self, place: Town) -> None:
        page = text(place.owner.get("/t/north/jobs/?state=pending&after=7.0.0.1.nosuch"))
        assert "Later in the queue. This page does not refresh." in page
        assert "nosuch" not in page

    def test_continues_across_pools(self, place: Town) -> None:
        other = cluster({})
        quota = Quota.objects.filter(tenant=place.tenant, pool=place.cluster.pool).get()
        quota.pk, quota.pool = None, other.pool
        quota.save()
        other.tenants["north"] = place.tenant
        for _ in range(3):
            other.submit("north", 1, 9000)
        listed = [row.job.uid for row in jobs_page(place.tenant.pk, JobFilter("pending")).rows]
        assert len(listed) == 6
        for limit in (1, 2, 3, 4, 6):
            seen, after = [], None
            for _ in listed:
                page = jobs_page(place.tenant.pk, JobFilter("pending", after=after), limit=limit)
                seen += [row.job.uid for row in page.rows]
                after = page.next_after
                if after is None:
                    break
            assert seen == listed, limit

    def test_handles_forged_page_marks(self, place: Town) -> None:
        path = "/t/north/jobs/?state=pending&after="
        for made_up in ("x", "9", "1.2.3", "1.3.0.0.pool-1", "1.0.0.0.", f"{10**18}.0.0.0.pool-1"):
            assert len(place.owner.get(f"{path}{made_up}").context["rows"]) == 3, made_up
        for mark in ("2.2.0.999.pool-1", "99.0.0.0.pool-1", "1.0.0.0.zz"):
            assert "No more jobs" in text(place.owner.get(f"{path}{mark}")), mark
        assert len(place.owner.get(f"{path}1.0.0.0.elsewhere").context["rows"]) == 3
