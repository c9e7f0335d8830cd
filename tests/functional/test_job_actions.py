"""Test actions on many jobs: a result for each, access, and repetition."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scheduling.models import Job
from scheduling.services.job_actions import ACTIONS, NOT_FOUND
from tenants.models import Membership
from tests.functional.api_stage import ROLES, ApiStage, api_stage


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> ApiStage:
    request.getfixturevalue("db")
    return api_stage()


def act(stage: ApiStage, action: str, *jobs: Job | str, **more: Any) -> list[tuple[str, str]]:
    ids = [job if isinstance(job, str) else str(job.uid) for job in jobs]
    values = {name: more.pop(name) for name in ("tags", "priority") if name in more}
    answer = stage.post("jobs/actions", {"action": action, "jobs": ids, **values}, **more)
    assert answer.status_code == 200, answer.content
    rows = answer.json()["results"]
    assert [row["id"] for row in rows] == list(dict.fromkeys(ids))
    return [(row["outcome"], row["detail"]) for row in rows]


class TestActions:
    def test_cancel_each_job_by_itself(self, stage: ApiStage) -> None:
        waits, ended, foreign = stage.job(), stage.job(), stage.job("bb")
        Job.objects.filter(pk=ended.pk).update(state="failed", ended_at=ended.submitted_at)
        unknown = str(uuid.uuid4())
        done = act(stage, "cancel", foreign, waits, ended, unknown, "none", waits)
        assert done == [
            ("refused", NOT_FOUND),
            ("done", "Cancelled."),
            ("unchanged", "It had already ended."),
            ("refused", NOT_FOUND),
            ("refused", NOT_FOUND),
        ]
        states = dict(Job.objects.values_list("pk", "state"))
        expected = {waits.pk: "cancelled", ended.pk: "failed", foreign.pk: "pending"}
        assert states == expected
        assert act(stage, "cancel", waits) == [("unchanged", "It had already ended.")]

    def test_cancel_many_and_release_the_next_once(self, stage: ApiStage) -> None:
        sweep = stage.post("sweeps", stage.spec(gpus=1, array="0-5%2")).json()["id"]
        jobs = list(Job.objects.filter(sweep__uid=sweep).order_by("sweep_index"))
        with CaptureQueriesContext(connection) as queries:
            done = act(stage, "cancel", *jobs[:3])
        assert done == [("done", "Cancelled.")] * 3
        looks = [row["sql"] for row in queries if row["sql"].startswith("SELECT EXISTS")]
        assert len(looks) == 1
        rows = Job.objects.filter(sweep__uid=sweep).order_by("sweep_index")
        assert [job.holds for job in rows[3:]] == [[], [], ["sweep"]]

    def test_are_limited_in_their_rate(self, stage: ApiStage, settings: Any) -> None:
        settings.SUBMISSIONS_PER_S = 0.001
        job = stage.job()
        act(stage, "hold", job)
        body = {"action": "release", "jobs": [str(job.uid)]}
        assert stage.post("jobs/actions", body).status_code == 429

    def test_change_tags_and_keep_others(self, stage: ApiStage) -> None:
        job = stage.job(tags=["kept"])
        other = stage.job(tags=[f"t{i}" for i in range(10)])
        added = act(stage, "tag", job, other, tags=["b", "a"])
        assert added == [
            ("done", "Tags: a, b, kept."),
            ("refused", "It would have more than 10 tags."),
        ]
        assert act(stage, "tag", job, tags=["a"]) == [("unchanged", "Tags: a, b, kept.")]
        assert act(stage, "untag", job, tags=["a", "none"]) == [("done", "Tags: b, kept.")]
        job.refresh_from_db()
        assert (job.tags, job.version) == (["b", "kept"], 1)

    def test_order_jobs_by_the_rules_of_each(self, stage: ApiStage) -> None:
        mine, other = stage.job(submitted_by=stage.people["ada"]), stage.job()
        ended = stage.job(submitted_by=stage.people["ada"])
        Job.objects.filter(pk=ended.pk).update(state="failed", ended_at=ended.submitted_at)
        person = Membership.objects.filter(user=stage.people["ada"])
        person.update(role=ROLES.MEMBER)
        not_own = ("refused", "Only its submitter and managers may do this.")
        held = act(stage, "hold", mine, other, ended)
        assert held[:2] == [("done", "Held."), not_own]
        assert held[2] == ("refused", "It has ended or is being cancelled.")
        assert act(stage, "hold", mine) == [("unchanged", "It is already held.")]
        assert act(stage, "release", mine, other) == [("done", "Released."), not_own]
        assert act(stage, "release", mine) == [("unchanged", "It is not held.")]
        ranked = act(stage, "priority", mine, other, priority=-5)
        assert ranked == [("done", "Priority -5."), not_own]
        (refused,) = act(stage, "priority", mine, priority=5)
        assert refused[0] == "refused"
        assert "managers" in refused[1]
        mine.refresh_from_db()
        assert (mine.priority, mine.holds) == (-5, [])

    def test_are_refused_to_viewers_and_allowed_to_operators(self, stage: ApiStage) -> None:
        job = stage.job()
        vic = stage.person("vic", "aa", ROLES.VIEWER)
        body = {"action": "cancel", "jobs": [str(job.uid)]}
        assert stage.post("jobs/actions", body, as_="vic").status_code == 403
        Membership.objects.create(user=vic, tenant=stage.cluster.tenants["bb"])
        stage.person("opal", site_role="operator")
        for action in ACTIONS:
            (row,) = act(stage, action, job, tags=["a"], priority=0, as_="vic")
            assert row == ("refused", "Your role in its tenant does not allow this.")
        assert act(stage, "tag", job, tags=["a"], as_="opal") == [("done", "Tags: a.")]

    def test_are_refused_with_a_bad_request(self, stage: ApiStage) -> None:
        job = stage.job()
        one = [str(job.uid)]
        bad: list[tuple[dict[str, Any], str]] = [
            ({"action": "delete", "jobs": one}, "action"),
            ({"action": "cancel", "jobs": []}, "jobs"),
            ({"action": "cancel", "jobs": [one[0]] * 1001}, "jobs"),
            ({"action": "cancel", "jobs": one, "force": True}, "force"),
            ({"action": "tag", "jobs": one}, "tags"),
            ({"action": "priority", "jobs": one}, "priority"),
            ({"action": "priority", "jobs": one, "priority": 101}, "priority"),
            ({"action": "tag", "jobs": one, "tags": ["Not A Tag"]}, "tags[0]"),
        ]
        for body, field in bad:
            refused = stage.post("jobs/actions", body)
            assert refused.status_code == 400
            assert [error["field"] for error in refused.json()["errors"]] == [field]
        assert Job.objects.get().state == "pending"


class TestFilters:
    def test_have_the_same_names_in_rest(self, stage: ApiStage) -> None:
        mine = stage.job(submitted_by=stage.people["ada"], tags=["a", "b"])
        other = stage.job()
        Job.objects.filter(pk=other.pk).update(name="odd_1", state="failed", exit_code=137)
        stage.job("bb", tags=["a"])
        day = mine.submitted_at.date().isoformat()
        asked = {
            "submitter=me": [mine],
            "submitter=ada": [mine],
            "submitter=nobody": [],
            "tag=b,a": [mine],
            "tag=a&tenant=aa": [mine],
            "exit_code=137": [other],
            "q=ODD_": [other],
            "q=o%25": [],
            f"since={day}&until={day}": [other, mine],
            f"until={day}T00:00:00Z": [],
            "sort=oldest": [mine, other],
        }
        for query, jobs in asked.items():
            rows = stage.get(f"jobs?{query}").json()["results"]
            assert [row["id"] for row in rows] == [str(job.uid) for job in jobs], query

    def test_page_through_the_oldest_first(self, stage: ApiStage) -> None:
        jobs = [str(stage.job().uid) for _ in range(5)]
        seen, cursor = [], ""
        while True:
            page = stage.get(f"jobs?sort=oldest&limit=2{cursor}").json()
            seen += [row["id"] for row in page["results"]]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        assert seen == jobs
        newest = stage.get(f"jobs?limit=2{cursor}")
        assert newest.status_code == 400

    def test_are_refused_if_invalid(self, stage: ApiStage) -> None:
        for query in ("exit_code=x", "since=soon", "sort=name", "tag=A!", "until=0000-00-00"):
            refused = stage.get(f"jobs?{query}")
            assert refused.status_code == 400
            field = query.partition("=")[0]
            assert refused.json()["errors"][0]["field"].startswith(field)
