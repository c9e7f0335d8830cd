"""Test that a job's page shows holds, releases and priorities, with the person and the time."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest

from portal.charts.timeline import Segment
from portal.jobs.text.held import HeldSpan, without_holds
from portal.jobs.text.job_timeline import job_timeline
from scheduling.models import Job
from scheduling.selectors.jobs.tenant_jobs import job_story
from tenants.scopes import tenant_scope
from tests.factories import BEGIN
from tests.functional.pool_stage import headline
from tests.functional.visitors import Town, town


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Town:
    request.getfixturevalue("db")
    return town()


def submitted(place: Town) -> Job:
    """Submit a job as ada, who then may hold it."""
    sent = {"side": "form", "pool": place.cluster.pool.name, "gpus": "2", "act": "submit"}
    place.owner.post("/t/north/jobs/new/", sent)
    return Job.objects.get()


def log(place: Town, job: Job) -> list[str]:
    page = place.owner.get(f"/jobs/{job.uid}/").content.decode()
    (listed,) = re.findall(r'(?s)<ul class="log">(.*?)</ul>', page)
    rows = re.findall(r"(?s)<b>(.*?)</b>(.*?)</span>", listed)
    return [" ".join(f"{bold} {text}".split()) for bold, text in rows]


class TestLog:
    def test_names_person_and_keeps_order(self, place: Town) -> None:
        job = submitted(place)
        place.owner.post(f"/jobs/{job.uid}/priority/", {"priority": "-5"})
        place.owner.post(f"/jobs/{job.uid}/hold/")
        place.operator.post(f"/jobs/{job.uid}/hold/")
        place.operator.post(f"/jobs/{job.uid}/release/")
        place.owner.post(f"/jobs/{job.uid}/release/")
        released, again, held_by, held, priority, first = log(place, job)
        assert (released, held) == ("Released by ada.", "Held by ada.")
        assert (again, held_by) == ("Released by an operator.", "Held by an operator.")
        assert priority == "Priority from 0 to -5, by ada."
        assert first.startswith("Submitted")


def at(minute: int) -> datetime:
    return BEGIN + timedelta(minutes=minute)


class TestTimeline:
    def test_shows_when_job_was_held(self, place: Town) -> None:
        job = submitted(place)
        place.owner.post(f"/jobs/{job.uid}/hold/")
        page = place.owner.get(f"/jobs/{job.uid}/").content.decode()
        assert headline(page) == "Held by ada."
        (drawn,) = re.findall(r'(?s)<svg[^>]*aria-label="Timeline of.*?</svg>', page)
        assert "held" in drawn
        place.operator.post(f"/jobs/{job.uid}/hold/")
        page = place.owner.get(f"/jobs/{job.uid}/").content.decode()
        assert headline(page) == "Held by an operator."

    def test_keeps_the_time_in_the_queue_before_a_hold(self, place: Town) -> None:
        job = submitted(place)
        place.owner.post(f"/jobs/{job.uid}/hold/")
        job.refresh_from_db()
        assert job.reason_code == "held_by_tenant"
        held_at, now = (job.submitted_at + timedelta(minutes=minute) for minute in (40, 60))
        helds = [HeldSpan(held_at, now, job.reason_code)]
        with tenant_scope(job.tenant_id):
            drawn = job_timeline(job_story(job), [], now, helds=helds)
        assert [one.label for one in drawn.segments] == ["queued 40 min", "held 20 min"]

    @pytest.mark.parametrize(
        ("spans", "parts"),
        [
            ([], [(0, 60, "queued 1 h")]),
            ([(70, 80)], [(0, 60, "queued 1 h")]),
            (
                [(10, 20), (15, 30)],
                [
                    (0, 10, "queued 10 min"),
                    (10, 20, "held 10 min"),
                    (20, 30, "held 10 min"),
                    (30, 60, "queued 30 min"),
                ],
            ),
            ([(-5, 90)], [(0, 60, "held 1 h")]),
        ],
    )
    def test_splits_waits(
        self, spans: list[tuple[int, int]], parts: list[tuple[int, int, str]]
    ) -> None:
        helds = [HeldSpan(at(start), at(end), "held_by_tenant") for start, end in spans]
        wait = Segment("turn", at(0), at(60), "queued 1 h")
        made = [(one.start, one.end, one.label) for one in without_holds(wait, helds)]
        assert made == [(at(start), at(end), label) for start, end, label in parts]

    def test_leaves_terms_whole(self) -> None:
        run = Segment("run", at(0), at(60), "n1, 2 terms")
        assert list(without_holds(run, [HeldSpan(at(10), at(20), "held_by_tenant")])) == [run]
