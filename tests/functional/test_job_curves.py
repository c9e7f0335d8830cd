"""Test a job's metrics as curves on its page, in REST and as CSV, and its links."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduling.models import Job, Pool
from tests.functional.visitors import Town, reads, town

WEIRD = "<script>alert(1)</script>"


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, settings: Any) -> Town:
    request.getfixturevalue("db")
    settings.LOCAL_ROOT = str(tmp_path)
    return town()


def submitted(place: Town) -> Job:
    job = place.submit()
    Pool.objects.filter(pk=place.cluster.pool.pk).update(executor="local")
    return job


def wrote(root: Path, job: Job, what: Any) -> Path:
    folder = root / str(job.pk)
    folder.mkdir(parents=True, exist_ok=True)
    text = what if isinstance(what, bytes) else json.dumps({"version": 1, **what}).encode()
    (folder / "metrics.json").write_bytes(text)
    return folder / "metrics.json"


def curve(count: int) -> list[Any]:
    return [[10 * n, 1 / n, 1_767_225_600_000 + 3_600_000 * n] for n in range(1, count + 1)]


def page(place: Town, job: Job, query: str = "") -> str:
    answer = place.owner.get(f"/jobs/{job.uid}/{query}")
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def rest(place: Town, job: Job, query: str = "") -> dict[str, Any]:
    answer = place.owner.get(f"/api/v1/jobs/{job.uid}/metrics{query}")
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


def drawn(text: str, key: str = "curve-0") -> dict[str, Any]:
    payload = re.search(rf'id="{key}-data" hidden>(.*?)</div>', text)
    assert payload is not None
    chart: dict[str, Any] = json.loads(payload[1])
    return chart


class TestReportedMetrics:
    def test_page_rest_and_file_show_same_points(self, place: Town, tmp_path: Path) -> None:
        job = submitted(place)
        wrote(tmp_path, job, {"series": {"loss": curve(4), "lr": [[1, 3e-7]]}})
        body = rest(place, job)
        assert [one["name"] for one in body["metrics"]] == ["loss", "lr"]
        points = body["metrics"][0]["points"]
        assert [(one["step"], one["value"]) for one in points] == [
            (10 * n, 1 / n) for n in (1, 2, 3, 4)
        ]
        assert [one["elapsed_s"] for one in points] == [0, 3600, 7200, 10800]
        assert (body["thinned"], body["refused"], body["links"]) == (False, "", [])
        text = page(place, job)
        assert "loss 0.25 after step 40" in text
        (trace,) = drawn(text)["figure"]["data"]
        assert trace["y"] == [1, 0.5, 0.333333, 0.25]
        assert drawn(text)["axes"] == [[10, 20, 30, 40]]
        assert drawn(text, "curve-1")["figure"]["data"][0]["y"] == [3e-7]
        file = place.owner.get(f"/jobs/{job.uid}/metrics.csv")
        rows = list(csv.reader(io.StringIO(file.content.decode())))
        assert rows[1] == ["loss", "10", "1.0", "0.0"]
        assert len(rows) == 6

    def test_can_be_drawn_over_time(self, place: Town, tmp_path: Path) -> None:
        job = submitted(place)
        wrote(tmp_path, job, {"series": {"loss": curve(4), "untimed": [[1, 1]]}})
        text = page(place, job, "?x=time")
        chart = drawn(text)
        assert chart["axes"] == [[0, 1, 2, 3]]
        assert chart["column"] == "h since the first point"
        assert "curve-1-data" not in text

    def test_long_curves_are_thinned_and_marked(self, place: Town, tmp_path: Path) -> None:
        job = submitted(place)
        wrote(tmp_path, job, {"series": {"loss": curve(5000)}})
        (one,) = rest(place, job, "?points=7")["metrics"]
        assert len(one["points"]) == 7
        assert (one["points"][0]["step"], one["points"][-1]["step"]) == (10, 50_000)
        assert one["reported"] == 5000
        assert rest(place, job)["thinned"] is True
        text = page(place, job)
        assert "Points are left out" in text
        assert len(drawn(text)["axes"][0]) == 200

    def test_rest_selects_one_metric(self, place: Town, tmp_path: Path) -> None:
        job = submitted(place)
        wrote(tmp_path, job, {"series": {"loss": curve(2), "lr": curve(2)}})
        assert [one["name"] for one in rest(place, job, "?name=lr")["metrics"]] == ["lr"]
        url = f"/api/v1/jobs/{job.uid}/metrics"
        assert place.owner.get(f"{url}?points=1").status_code == 400
        assert place.owner.get(f"{url}?points=1001").status_code == 400

    def test_region_is_sent_only_if_changed(self, place: Town, tmp_path: Path) -> None:
        job = submitted(place)
        wrote(tmp_path, job, {"series": {"loss": curve(2)}})
        asked = re.search(r'hx-get="(/jobs/[^"]*/metrics/[^"]*)"', page(place, job, "?x=time"))
        assert asked is not None
        url = asked[1].replace("&amp;", "&")
        assert place.owner.get(url).status_code == 204
        wrote(tmp_path, job, {"series": {"loss": curve(3)}})
        again = place.owner.get(url)
        assert (again.status_code, again["Cache-Control"]) == (200, "no-store")
        assert "<b>Over time</b>" in " ".join(again.content.decode().split())

    def test_job_without_metrics_has_no_section(self, place: Town) -> None:
        job = submitted(place)
        assert "Over time" not in page(place, job)
        assert rest(place, job)["metrics"] == []
        Pool.objects.update(executor="virtual")
        assert 'id="curves"' not in page(place, job)
        assert place.owner.get(f"/jobs/{job.uid}/metrics/").status_code == 404

    def test_page_query_count_does_not_grow(self, place: Town, tmp_path: Path) -> None:
        job = submitted(place)
        before = len(reads(place.owner, f"/jobs/{job.uid}/"))
        wrote(tmp_path, job, {"series": {"loss": curve(9)}})
        assert len(reads(place.owner, f"/jobs/{job.uid}/")) == before


class TestLinks:
    def test_show_their_host_and_give_nothing_away(self, place: Town, tmp_path: Path) -> None:
        job = submitted(place)
        links = {"W&B": "https://wandb.ai/runs/3?a=1&b=2", "bad": "javascript:alert(1)"}
        wrote(tmp_path, job, {"links": links})
        text = page(place, job)
        shown = 'href="https://wandb.ai/runs/3?a=1&amp;b=2" rel="noopener noreferrer nofollow"'
        assert shown in text
        assert ">W&amp;B</a> (wandb.ai)" in text
        assert "javascript:" not in text
        assert rest(place, job)["links"] == [
            {"name": "W&B", "url": links["W&B"], "host": "wandb.ai"}
        ]


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _gigabyte(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**30)


class TestHostileMetrics:
    def test_names_and_values_are_inert(self, place: Town, tmp_path: Path) -> None:
        job = submitted(place)
        series = {WEIRD: [[1, 1]], "</div>": [[1, 1]], "big": [[1, 1e99], [2**52, -1e99]]}
        wrote(tmp_path, job, {"series": series})
        text = page(place, job)
        assert WEIRD not in text
        assert "2 metrics left out" in text
        assert drawn(text)["figure"]["data"][0]["y"] == [1e99, -1e99]

    def test_file_has_no_formulas(self, place: Town, tmp_path: Path) -> None:
        job = submitted(place)
        wrote(tmp_path, job, {"series": {"@sum": [[1, -1]]}})
        file = place.owner.get(f"/jobs/{job.uid}/metrics.csv").content.decode()
        assert file.splitlines()[1] == "'@sum,1,-1.0,"

    @pytest.mark.parametrize("what", [b"{", b"\xff\x00", b"[" * 50_000, {"series": {"a": "b"}}])
    def test_invalid_file_is_ignored_with_reason(
        self, place: Town, tmp_path: Path, what: Any
    ) -> None:
        job = submitted(place)
        wrote(tmp_path, job, what)
        assert rest(place, job)["refused"] == "metrics.json is not as described in docs/runs.md"
        assert "Not shown: metrics.json is not" in page(place, job)

    @pytest.mark.parametrize("put", [_link, _folder, _pipe, _gigabyte])
    def test_other_files_are_not_read(
        self, place: Town, tmp_path: Path, put: Callable[[Path], None]
    ) -> None:
        job = submitted(place)
        path = wrote(tmp_path, job, {})
        path.unlink()
        put(path)
        assert "root:" not in page(place, job)
        assert rest(place, job)["metrics"] == []
