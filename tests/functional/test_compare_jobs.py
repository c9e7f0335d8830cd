"""Test the comparison of jobs: curves laid over each other, and parameters against results."""

from __future__ import annotations

import csv
import io
import re
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import LazySettings

from portal.common.compare_links import COMPARED_MAX, compare_url
from scheduling.models import Job, Pool, Sweep
from tests.functional.test_job_curves import curve, drawn, wrote
from tests.functional.visitors import Town, reads, town


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, settings: Any) -> Town:
    request.getfixturevalue("db")
    settings.LOCAL_ROOT = str(tmp_path)
    return town()


def runs(place: Town, root: Path, *rates: str) -> list[Job]:
    """Return jobs that differ in a variable, each with a curve."""
    jobs = []
    for number, rate in enumerate(rates, 1):
        job = place.submit()
        Job.objects.filter(pk=job.pk).update(
            name=f"run-{number}",
            environment={"DATA": "cifar", "LR": rate},
            comment=f"note {number}",
        )
        accuracy = [[1, 0.9], [2, 0.1 * number]]
        loss = [[n, number / n] for n in range(1, 5)]
        wrote(root, job, {"series": {"loss": loss, "val/acc": accuracy}})
        jobs.append(job)
    Pool.objects.filter(pk=place.cluster.pool.pk).update(executor="local")
    return jobs


def uids(jobs: list[Job]) -> list[UUID]:
    return [job.uid for job in jobs]


def page(place: Town, jobs: list[Job], **more: str) -> str:
    answer = place.owner.get(compare_url(uids(jobs), **more))
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def table(place: Town, jobs: list[Job]) -> list[dict[str, str]]:
    answer = place.owner.get(compare_url(uids(jobs), name="compare-file"))
    assert answer.status_code == 200
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


class TestComparedJobs:
    def test_lie_over_each_other_per_metric(self, place: Town, tmp_path: Path) -> None:
        jobs = runs(place, tmp_path, "0.1", "0.01")
        text = page(place, jobs)
        first, second = drawn(text)["figure"]["data"]
        assert (first["name"], first["y"]) == ("run-1, LR=0.1", [1, 0.5, 0.333333, 0.25])
        assert (second["name"], second["y"]) == ("run-2, LR=0.01", [2, 1, 0.666667, 0.5])
        assert drawn(text)["title"] == "loss"
        assert drawn(text, "curve-1")["title"] == "val/acc"
        looks = [one["line"]["color"] for one in (first, second)]
        again = drawn(text, "curve-1")["figure"]["data"]
        assert [one["line"]["color"] for one in again] == looks
        assert len(set(looks)) == 2
        shown = [one["text"] for one in drawn(text)["figure"]["layout"]["annotations"]]
        assert shown == ["LR=0.1 0.25", "LR=0.01 0.5"]
        assert '<a href="/t/north/jobs/">Jobs</a>' in text

    def test_table_has_only_parameters_that_differ(self, place: Town, tmp_path: Path) -> None:
        jobs = runs(place, tmp_path, "0.1", "0.01", "0.1")
        rows = table(place, jobs)
        assert list(rows[0]) == [
            "job", "name", "state", "LR", "loss, last", "loss, lowest", "val/acc, last",
            "val/acc, highest", "GPU-hours", "charge, credits",
        ]  # fmt: skip
        assert [row["LR"] for row in rows] == ["0.1", "0.01", "0.1"]
        assert [row["loss, lowest"] for row in rows] == ["0.25", "0.5", "0.75"]
        assert [row["val/acc, highest"] for row in rows] == ["0.9"] * 3
        assert [row["job"] for row in rows] == [str(job.uid) for job in jobs]
        text = page(place, jobs)
        assert "1 parameter with different values" in text
        assert "cifar" not in text
        assert "note 1" not in text

    def test_table_has_parameters_of_sweep_first(self, place: Town, tmp_path: Path) -> None:
        jobs = runs(place, tmp_path, "0.1", "0.01", "0.1")
        for job, index in zip(jobs[:2], ("3", "7"), strict=True):
            Job.objects.filter(pk=job.pk).update(parameters={"index": index, "depth": "18"})
        rows = table(place, jobs)
        assert list(rows[0])[3:6] == ["depth", "index", "LR"]  # jsonb sorts its keys
        assert [row["index"] for row in rows] == ["3", "7", ""]
        assert [row["depth"] for row in rows] == ["18", "18", ""]

    def test_commands_of_a_sweep_are_no_parameter(self, place: Town, tmp_path: Path) -> None:
        jobs = runs(place, tmp_path, "0.1", "0.1")
        for place_in, job in enumerate(jobs):
            command = ["train", f"--depth={place_in}"]
            Job.objects.filter(pk=job.pk).update(
                command=command, parameters={"depth": str(place_in)}
            )
        assert list(table(place, jobs)[0])[3:5] == ["depth", "command"]
        tenant, pool = place.tenant, place.cluster.pool
        now = jobs[0].submitted_at
        sweep = Sweep.objects.create(
            tenant=tenant, pool=pool, name="s", spec={}, submitted_at=now, created_at=now
        )
        for place_in, job in enumerate(jobs):
            Job.objects.filter(pk=job.pk).update(sweep=sweep, sweep_index=place_in)
        assert list(table(place, jobs)[0])[3:5] == ["depth", "loss, last"]

    def test_criterion_decides_which_value_is_best(self, place: Town, tmp_path: Path) -> None:
        jobs = runs(place, tmp_path, "0.1")
        Job.objects.filter(pk=jobs[0].pk).update(
            stop_metric="loss", stop_rule="at_least", stop_value=Decimal(1), iterations=9
        )
        (row,) = table(place, jobs)
        assert row["loss, highest"] == "1.0"

    def test_file_is_english_in_each_language(
        self, place: Town, tmp_path: Path, settings: LazySettings
    ) -> None:
        settings.LANGUAGES = [("en", "English"), ("de", "Deutsch")]
        asked = {"job": [str(uid) for uid in uids(runs(place, tmp_path, "0.1"))]}
        german = {"Accept-Language": "de"}
        assert "loss, Minimum" in place.owner.get("/compare/", asked, headers=german).text
        assert "loss, lowest" in place.owner.get("/compare.csv", asked, headers=german).text

    def test_table_has_no_formulas(self, place: Town, tmp_path: Path) -> None:
        jobs = runs(place, tmp_path, "=1+1", "@2")
        Job.objects.update(name="=2")
        wrote(tmp_path, jobs[0], {"series": {"@loss": [[1, -1]]}})
        first, second = table(place, jobs)
        assert (first["LR"], second["LR"]) == ("'=1+1", "'@2")
        assert first["name"].startswith("'=2 (")
        assert first["'@loss, last"] == "-1.0"

    def test_with_same_name_are_told_apart(self, place: Town, tmp_path: Path) -> None:
        jobs = runs(place, tmp_path, "1", "2")
        Job.objects.update(name="same")
        names = [f"same ({str(job.uid)[:8]})" for job in jobs]
        assert [row["name"] for row in table(place, jobs)] == names
        assert [one["name"] for one in drawn(page(place, jobs))["figure"]["data"]] == [
            f"{names[0]}, LR=1",
            f"{names[1]}, LR=2",
        ]

    def test_can_be_drawn_over_time(self, place: Town, tmp_path: Path) -> None:
        jobs = runs(place, tmp_path, "0.1", "0.01")
        wrote(tmp_path, jobs[1], {"series": {"loss": curve(3)}})
        text = page(place, jobs, x="time")
        (trace,) = drawn(text)["figure"]["data"]
        assert trace["name"] == "run-2, LR=0.01"
        assert "<b>Over time</b>" in text

    def test_page_query_count_does_not_grow(self, place: Town, tmp_path: Path) -> None:
        jobs = runs(place, tmp_path, "1", "2", "3", "4", "5")
        few = len(reads(place.owner, compare_url(uids(jobs[:1]))))
        assert len(reads(place.owner, compare_url(uids(jobs)))) == few

    def test_is_linked_from_job(self, place: Town, tmp_path: Path) -> None:
        (job,) = runs(place, tmp_path, "1")
        text = place.owner.get(f"/jobs/{job.uid}/").content.decode()
        assert f'href="{compare_url([job.uid])}"' in text

    def test_result_of_hostile_job_is_inert(self, place: Town, tmp_path: Path) -> None:
        good, bad = runs(place, tmp_path, "1", "<b>2</b>")
        wrote(tmp_path, bad, b"{")
        text = page(place, [good, bad])
        assert "Metrics of run-2 are not shown: metrics.json is not" in text
        assert "<td><b>2" not in text
        assert len(drawn(text)["figure"]["data"]) == 1


class TestQuery:
    def test_leaves_out_other_tenants_jobs(self, place: Town, tmp_path: Path) -> None:
        jobs = runs(place, tmp_path, "1", "2")
        url = compare_url([*uids(jobs), uuid4()])
        assert "1 job not found." in place.owner.get(url).content.decode()
        assert place.outsider.get(url).status_code == 404
        assert place.outsider.get(compare_url(uids(jobs), name="compare-file")).status_code == 404

    def test_takes_at_most_twenty_jobs_once_each(self, place: Town, tmp_path: Path) -> None:
        jobs = runs(place, tmp_path, *map(str, range(COMPARED_MAX + 2)))
        text = page(place, [jobs[0], *jobs])
        assert f"{COMPARED_MAX} jobs compared." in text
        lines = [one["line"] for one in drawn(text)["figure"]["data"]]
        assert len({(line["color"], line["dash"]) for line in lines}) == COMPARED_MAX

    def test_ignores_text_that_is_no_id(self, place: Town, tmp_path: Path) -> None:
        (job,) = runs(place, tmp_path, "1")
        answer = place.owner.get("/compare/", {"job": [f"{job.uid} x", "\u202e", ""]})
        assert "1 job compared." in answer.content.decode()

    def test_without_jobs_shows_form(self, place: Town) -> None:
        text = place.owner.get("/compare/").content.decode()
        assert re.search(r'<input[^>]*name="job"', text)
