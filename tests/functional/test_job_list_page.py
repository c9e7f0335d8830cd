"""Test the list of jobs as people use it: whose jobs, filters, columns, and acting on many."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from django.db.models import F

from scheduling.models import Job
from tenants.models import SavedFilter, User
from tenants.services.job_lists import FILTERS_MAX
from tests.functional.pool_stage import headline
from tests.functional.visitors import Town, town

LIST = "/t/north/jobs/"
HEAD = re.compile(r"<th\b.*?</th>", re.DOTALL)
pytestmark = pytest.mark.django_db


@pytest.fixture
def place() -> Town:
    """Create a town in which ada has two jobs and another person has one."""
    there = town()
    ada = User.objects.get(username="ada")
    jobs: dict[str, dict[str, Any]] = {
        "mine": {"submitted_by": ada, "tags": ["a", "b"]},
        "odd": {"submitted_by": ada, "state": "failed", "exit_code": 137},
        "theirs": {"submitted_by": User.objects.get(username="bea")},
    }
    for name, more in jobs.items():
        Job.objects.filter(pk=there.submit().pk).update(name=name, **more)
    return there


def names(place: Town, query: str, client: Any = None) -> list[str]:
    answer = (client or place.owner).get(f"{LIST}?{query}")
    assert answer.status_code == 200
    return [row["job"].name for row in answer.context["rows"]]


class TestFilters:
    def test_find_own_jobs_first(self, place: Town) -> None:
        page = place.owner.get("/t/north/").content.decode()
        assert f'href="{LIST}?submitter=me"' in page
        assert names(place, "submitter=me") == ["odd", "mine"]
        assert names(place, "submitter=me", place.mate) == ["theirs"]
        page = place.operator.get(f"{LIST}?submitter=me").content.decode()
        assert headline(page) == "No match: submitted by you."
        asked = "state=failed&submitter=me&exit_code=0"
        page = place.operator.get(f"{LIST}?{asked}").content.decode()
        assert f'href="{LIST}?state=failed&amp;exit_code=0"' in page

    def test_combine_in_the_url(self, place: Town) -> None:
        day = Job.objects.earliest("pk").submitted_at.date().isoformat()
        asked = {
            "tag=b,a": ["mine"],
            "tag=a&tag=b": ["mine"],
            "submitter=bea": ["theirs"],
            "submitter=nobody": [],
            "exit_code=137": ["odd"],
            "exit_code=137&submitter=bea": [],
            f"since={day}&until={day}&q=O": ["odd"],
            "sort=oldest": ["mine", "odd", "theirs"],
            "submitter=me&state=failed": ["odd"],
        }
        for query, expected in asked.items():
            assert names(place, query) == expected, query

    def test_keep_the_order_of_the_times_shown(self, place: Town) -> None:
        a_minute_later = F("submitted_at") + timedelta(minutes=1)
        Job.objects.filter(name="mine").update(submitted_at=a_minute_later)
        assert names(place, "") == ["mine", "theirs", "odd"]
        assert names(place, "sort=oldest") == ["odd", "theirs", "mine"]

    def test_are_described_in_the_heading(self, place: Town) -> None:
        said = headline(
            place.owner.get(f"{LIST}?tag=a&submitter=me&since=2001-01-01").content.decode()
        )
        assert said == "1 job: tagged a, submitted by you, since 2001-01-01."
        assert headline(place.owner.get(f"{LIST}?sort=oldest").content.decode()) == "3 jobs."

    def test_that_are_invalid_are_named(self, place: Town) -> None:
        page = place.owner.get(f"{LIST}?exit_code=x&since=soon&sort=name&tag=A!").content.decode()
        said = page.partition("Some filters do not apply")[2][:900]
        for label in ("Exit code", "Submitted from", "Order", "Tags"):
            assert f"“{label}”" in said
        assert "exit_code" not in said
        assert "1 active" in place.owner.get(f"{LIST}?exit_code=x&tag=a").content.decode()
        assert names(place, "exit_code=x") == ["theirs", "odd", "mine"]


class TestKept:
    def test_filters_are_kept_per_person(self, place: Town) -> None:
        sent = {"query": "state=failed&submitter=me", "name": " Failed of mine "}
        answer = place.owner.post(f"{LIST}filters/", sent, follow=True)
        assert answer.redirect_chain == [(f"{LIST}?state=failed&submitter=me", 302)]
        assert answer.context["saved"] == [("Failed of mine", "state=failed&submitter=me")]
        assert place.mate.get(LIST).context["saved"] == []
        place.owner.post(f"{LIST}filters/", {**sent, "query": "state=failed"})
        assert SavedFilter.objects.get().query == "state=failed"
        place.owner.post(f"{LIST}filters/", {"name": "Failed of mine", "act": "delete"})
        assert not SavedFilter.objects.exists()

    def test_filters_are_few_and_named(self, place: Town) -> None:
        for number in range(FILTERS_MAX + 2):
            place.owner.post(f"{LIST}filters/", {"query": "q=a", "name": f"f{number}"})
        for name in ("", "x" * 41, "two\nlines"):
            place.owner.post(f"{LIST}filters/", {"query": "q=a", "name": name})
        assert SavedFilter.objects.count() == FILTERS_MAX

    def test_forms_return_to_the_list_only(self, place: Town) -> None:
        sent = {"query": "//evil.example/?q=a&x=%0d%0a", "name": "a"}
        answer = place.owner.post(f"{LIST}filters/", sent)
        assert answer["Location"].startswith(f"{LIST}?")
        assert "\n" not in answer["Location"]

    def test_columns_are_kept_per_person(self, place: Town) -> None:
        usual = heads(place.owner.get(LIST).content.decode())
        place.owner.post(f"{LIST}columns/", {"column": ["tags", "exit_code", "none"]})
        assert heads(place.owner.get(LIST).content.decode()) == [
            "Job",
            "State",
            "Reason",
            "Tags",
            "Exit code",
        ]
        assert heads(place.mate.get(LIST).content.decode()) == usual
        place.owner.post(f"{LIST}columns/", {"column": []})
        assert heads(place.owner.get(LIST).content.decode()) == usual


def heads(page: str) -> list[str]:
    table = re.search(r'id="t-jobs".*?</thead>', page, re.DOTALL)
    assert table is not None
    return [" ".join(re.sub(r"<[^>]+>", "", one).split()) for one in HEAD.findall(table[0])]


class TestActions:
    def test_show_a_result_for_each_job(self, place: Town) -> None:
        jobs = {job.name: str(job.uid) for job in Job.objects.all()}
        sent = {"action": "cancel", "job": [jobs["mine"], jobs["odd"]], "query": "submitter=me"}
        answer = place.owner.post(f"{LIST}act/", {**sent, "asked": "1"})
        assert headline(answer.content.decode()) == "1 job cancelled. 1 job unchanged."
        assert [(row.name, row.outcome) for row in answer.context["rows"]] == [
            ("mine", "done"),
            ("odd", "unchanged"),
        ]
        assert f'href="{LIST}?submitter=me"' in answer.content.decode()
        assert Job.objects.get(name="mine").state == "cancelled"

    def test_ask_once_before_they_cancel_unless_a_job_starts(self, place: Town) -> None:
        jobs = [str(uid) for uid in Job.objects.values_list("uid", flat=True)]
        sent = {"action": "cancel", "job": jobs, "query": "submitter=me"}
        asked = place.owner.post(f"{LIST}act/", sent).content.decode()
        assert headline(asked) == "Cancel 2 jobs?"
        assert "2 queued jobs leave the queue at once." in asked
        assert asked.count('name="job"') == 3
        assert f'href="{LIST}?submitter=me"' in asked
        Job.objects.filter(name="mine").update(state="running")
        again = place.owner.post(f"{LIST}act/", {**sent, "asked": "1"}).content.decode()
        assert headline(again) == "Cancel 2 jobs?"
        assert "1 job has left the queue since you were asked." in again
        assert not Job.objects.filter(state="cancelled").exists()
        started = str(Job.objects.get(name="mine").uid)
        assert f'name="running" value="{started}"' in again
        sent = {**sent, "asked": "1", "running": started}
        done = place.owner.post(f"{LIST}act/", sent).content.decode()
        assert headline(done) == "2 jobs cancelled. 1 job unchanged."
        assert Job.objects.get(name="theirs").state == "cancelled"
        assert Job.objects.get(name="mine").cancel_asked_at is not None
        # Nothing is left to cancel, so nothing is asked.
        rest = place.owner.post(f"{LIST}act/", {"action": "cancel", "job": jobs})
        assert headline(rest.content.decode()) == "3 jobs unchanged."

    def test_reach_no_job_of_another_tenant(self, place: Town) -> None:
        foreign = place.submit(tenant="south")
        sent = {"action": "tag", "job": [str(foreign.uid)], "tags": "a"}
        answer = place.owner.post(f"{LIST}act/", sent)
        assert [row.outcome for row in answer.context["rows"]] == ["refused"]
        assert foreign.name not in answer.content.decode()
        foreign.refresh_from_db()
        assert foreign.tags == []

    def test_are_offered_to_those_who_may(self, place: Town) -> None:
        assert 'value="cancel"' in place.owner.get(LIST).content.decode()
        page = place.mate.get(LIST).content.decode()
        assert 'value="cancel"' not in page
        assert 'value="compare"' in page
        job = str(Job.objects.get(name="mine").uid)
        refused = place.mate.post(f"{LIST}act/", {"action": "cancel", "job": [job]})
        assert refused.status_code == 403

    def test_compare_two_to_twenty_jobs(self, place: Town) -> None:
        uids = [str(uid) for uid in Job.objects.order_by("pk").values_list("uid", flat=True)]
        for client in (place.owner, place.mate):
            answer = client.post(f"{LIST}act/", {"action": "compare", "job": uids})
            assert answer.status_code == 302
            asked = parse_qsl(urlsplit(answer["Location"]).query)
            assert asked == [("job", uid) for uid in uids]
        for few in ([], uids[:1], uids[:1] * 21, ["x", *uids[:1]]):
            answer = place.owner.post(f"{LIST}act/", {"action": "compare", "job": few}, follow=True)
            assert "Select 2 to 20 jobs to compare." in answer.content.decode()

    def test_ask_for_jobs_and_tags(self, place: Town) -> None:
        job = str(Job.objects.get(name="mine").uid)
        for sent in ({"action": "cancel"}, {"action": "tag", "job": [job]}, {"job": [job]}):
            answer = place.owner.post(f"{LIST}act/", sent)
            assert answer.status_code == 302
        assert Job.objects.get(name="mine").state == "pending"
