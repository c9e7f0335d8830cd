"""Test that a job that holds GPUs without a running program is shown as starting everywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduling.models import Job, Lease
from tests.functional.api_stage import ApiStage, api_stage
from tests.functional.pool_stage import headline
from tests.functional.visitors import Town, reads, town
from tests.stages import staged

LIST = "/t/north/jobs/"


def played_town() -> Town:
    """Create a town in which north has a starting job, a running one and a queued one."""
    there = town()
    for gpus in (4, 3, 8):
        there.submit(gpus)
    there.play(2)
    _begins_not("north-4")
    return there


place = staged(played_town)


def _begins_not(name: str) -> None:
    """Make a lease look accepted by its engine, without a started program."""
    leases = Lease.objects.filter(job__name=name)
    assert leases.update(state=Lease.State.LAUNCHING, started_at=None) == 1


def _page(place: Town, path: str) -> str:
    answer = place.owner.get(path)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def _row(page: str, job: Job) -> str:
    return page.split(f'id="job-{job.uid}"')[1].split("</tr>", maxsplit=1)[0]


class TestStartingJob:
    def test_list_shows_starting_instead_of_running(self, place: Town) -> None:
        starting, running = (Job.objects.get(name=name) for name in ("north-4", "north-3"))
        page = _page(place, LIST)
        assert "Starting" in _row(page, starting)
        assert "Running" not in _row(page, starting)
        assert "Running" in _row(page, running)
        assert "Starting" not in _row(page, running)

    def test_heading_counts_it_separately(self, place: Town) -> None:
        said = {
            "": "1 job runs, 1 is starting and 1 is queued.",
            "state=starting": "1 job: starting.",
            "state=running": "1 job: running.",
            "state=holding": "2 jobs: running or starting.",
        }
        shown = {
            query: headline(place.owner.get(f"{LIST}?{query}").content.decode()) for query in said
        }
        assert shown == said

    @pytest.mark.parametrize(
        ("state", "names"),
        [
            ("starting", {"north-4"}),
            ("running", {"north-3"}),
            ("holding", {"north-3", "north-4"}),
            ("pending", {"north-8"}),
        ],
    )
    def test_list_filters_by_phase(self, place: Town, state: str, names: set[str]) -> None:
        rows = place.owner.get(f"{LIST}?state={state}").context["rows"]
        assert {row["job"].name for row in rows} == names

    def test_job_page_and_dashboard_show_starting(self, place: Town) -> None:
        job = Job.objects.get(name="north-4")
        page = _page(place, f"/jobs/{job.uid}/")
        deck = page.split('class="deck"')[1].split("</p>")[0]
        assert "Starting." in deck
        assert "Running." not in deck
        board = _page(place, "/t/north/")
        assert "1 job runs and 1 is starting, on 7 GPUs" in board
        assert "starting</span>" in board.split(f'id="run-{job.uid}"')[1].split("</tr>")[0]

    def test_time_after_grant_is_not_shown_as_queued(self, place: Town) -> None:
        job = Job.objects.get(name="north-4")
        page = _page(place, f"/jobs/{job.uid}/")
        assert "Queued 10 s, not run yet" in page
        drawing = page.split('id="tl"')[1].split("</svg>")[0]
        assert drawing.count('class="wait turn"') == drawing.count('class="wait expected"') == 1
        queued = _page(place, f"/jobs/{Job.objects.get(name='north-8').uid}/")
        assert "Not run yet" in queued

    def test_lease_waiting_for_gpus_counts_as_starting(self, place: Town) -> None:
        Lease.objects.filter(job__name="north-4").update(state=Lease.State.WAITING)
        assert "Starting" in _row(_page(place, LIST), Job.objects.get(name="north-4"))

    def test_moving_job_counts_as_running_until_old_lease_stops(self, place: Town) -> None:
        lease = Lease.objects.get(job__name="north-3")
        moved = {"number": 2, "state": Lease.State.WAITING, "started_at": None, "pk": None}
        for name, value in moved.items():
            setattr(lease, name, value)
        lease.save()
        job = Job.objects.get(name="north-3")
        assert "Running" in _row(_page(place, LIST), job)
        rows = place.owner.get(f"{LIST}?state=running").context["rows"]
        assert [row["job"].name for row in rows] == ["north-3"]
        Lease.objects.filter(job=job, number=1).update(state=Lease.State.STOPPING)
        assert "1 job runs and 1 is starting, on " in _page(place, "/t/north/")
        why = place.owner.get(f"/api/v1/jobs/{job.uid}/why").json()
        assert why["phase"] == "running"

    def test_query_count_does_not_grow_with_rows(self, place: Town) -> None:
        few = {path: len(reads(place.owner, path)) for path in (LIST, f"{LIST}?state=starting")}
        lease = Lease.objects.get(job__name="north-4")
        for _ in range(12):
            job = place.submit()
            Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING)
            lease.pk, lease.job = None, job
            lease.save()
        for path, count in few.items():
            assert len(reads(place.owner, path)) == count


def played_stage() -> ApiStage:
    made = api_stage()
    made.job()
    made.cluster.round()
    return made


stage = staged(played_stage)


class TestApi:
    def test_returns_state_running_with_phase_starting(self, stage: ApiStage) -> None:
        assert self._told(stage) == ("running", "running", "It holds its GPUs.")
        Lease.objects.update(state=Lease.State.LAUNCHING, started_at=None)
        said = "It has GPUs, but its program has not started yet."
        assert self._told(stage) == ("running", "starting", said)

    def test_filters_by_phase(self, stage: ApiStage) -> None:
        Lease.objects.update(state=Lease.State.LAUNCHING, started_at=None)
        counts = {
            query: len(self._json(stage.get(f"jobs?{query}"))["results"])
            for query in ("phase=starting", "phase=running", "state=running", "phase=pending")
        }
        assert counts == {
            "phase=starting": 1,
            "phase=running": 0,
            "state=running": 1,
            "phase=pending": 0,
        }
        refused = stage.get("jobs?phase=odd")
        assert refused.status_code == 400
        assert "starting" in refused.json()["errors"][0]["hint"]

    def _told(self, stage: ApiStage) -> tuple[str, str, str]:
        (row,) = self._json(stage.get("jobs"))["results"]
        one = self._json(stage.get(f"jobs/{row['id']}"))
        why = self._json(stage.get(f"jobs/{row['id']}/why"))
        assert {row["state"], one["state"], why["state"]} == {"running"}
        assert row["phase"] == one["phase"] == why["phase"]
        return row["state"], row["phase"], why["words"]

    def _json(self, answer: Any) -> Any:
        assert answer.status_code == 200
        return json.loads(answer.content)
