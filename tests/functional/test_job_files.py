"""Test the files of a job on its page and in REST: as downloads that no browser shows or runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from scheduling.engine.executors.job_files import WINDOW_BYTES
from scheduling.models import Job, Pool
from tests.functional.visitors import Town, town

WEIRD = "<img src=x onerror=alert(1)>.html"
BODY = b"<script>alert(1)</script>\x00\xff"


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, settings: Any) -> Town:
    request.getfixturevalue("db")
    settings.LOCAL_ROOT = str(tmp_path)
    return town()


@pytest.fixture
def job(place: Town, tmp_path: Path) -> Job:
    job = place.submit()
    Pool.objects.filter(pk=place.cluster.pool.pk).update(executor="local")
    folder = tmp_path / str(job.pk)
    (folder / "models").mkdir(parents=True)
    (folder / "models" / WEIRD).write_bytes(BODY)
    with (folder / "big").open("wb") as file:
        file.write(b"start")
        file.truncate(WINDOW_BYTES + 3)
    return job


class TestList:
    def test_page_and_rest_show_same_files(self, place: Town, job: Job, tmp_path: Path) -> None:
        os.utime(tmp_path / str(job.pk) / "big", (10**15, 10**15))
        body = place.owner.get(f"/api/v1/jobs/{job.uid}/files").json()
        assert (body["kept"], body["cut"]) == (True, False)
        assert [(one["path"], one["bytes"]) for one in body["files"]] == [
            ("big", WINDOW_BYTES + 3), (f"models/{WEIRD}", len(BODY)),
        ]  # fmt: skip
        assert body["files"][0]["modified_at"] is None
        text = place.owner.get(f"/jobs/{job.uid}/files/").content.decode()
        assert WEIRD not in text
        assert "models/&lt;img src=x" in text
        assert "2 files." in text
        assert f"evenshare job fetch {job.uid} PATH" in text
        assert f'href="/jobs/{job.uid}/files/big"' not in text
        page = place.owner.get(f"/jobs/{job.uid}/").content.decode()
        assert f'href="/jobs/{job.uid}/files/"' in page

    def test_says_that_folders_cannot_be_read(self, place: Town, job: Job) -> None:
        Pool.objects.update(executor="virtual")
        body = place.owner.get(f"/api/v1/jobs/{job.uid}/files").json()
        assert body == {"kept": False, "files": [], "cut": False}
        text = place.owner.get(f"/jobs/{job.uid}/files/").content.decode()
        assert "cannot read the folders" in text
        assert place.owner.get(f"/jobs/{job.uid}/files/big").status_code == 404
        assert f'href="/jobs/{job.uid}/files/"' not in place.owner.get(
            f"/jobs/{job.uid}/"
        ).content.decode()  # fmt: skip


@pytest.mark.parametrize("root", ["", "/api/v1"])
class TestDownload:
    def test_is_inert(self, place: Town, job: Job, root: str) -> None:
        answer = place.owner.get(f"{root}/jobs/{job.uid}/files/models/{WEIRD}")
        assert (answer.status_code, answer.content) == (200, BODY)
        assert answer["Content-Type"] == "application/octet-stream"
        assert answer["Content-Disposition"].startswith("attachment; filename=")
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["Content-Security-Policy"] == "sandbox; default-src 'none'"
        assert "no-store" in answer["Cache-Control"]
        assert "Content-Encoding" not in answer

    def test_of_large_file_is_in_parts(self, place: Town, job: Job, root: str) -> None:
        url = f"{root}/jobs/{job.uid}/files/big"
        whole = place.owner.get(url)
        assert whole.status_code == 413
        assert "Range" in whole.content.decode()
        first = place.owner.get(url, headers={"Range": "bytes=0-4"})
        assert (first.status_code, first.content) == (206, b"start")
        assert first["Content-Range"] == f"bytes 0-4/{WINDOW_BYTES + 3}"
        rest = place.owner.get(url, headers={"Range": "bytes=1-"})
        assert len(rest.content) == WINDOW_BYTES
        last = place.owner.get(url, headers={"Range": "bytes=-2"})
        assert (last.content, last["ETag"]) == (b"\0\0", first["ETag"])
        beyond = place.owner.get(url, headers={"Range": f"bytes={WINDOW_BYTES + 3}-"})
        assert (beyond.status_code, beyond["Content-Range"]) == (416, f"bytes */{WINDOW_BYTES + 3}")

    @pytest.mark.parametrize("asked", ["bytes=2-1", "bytes=-0"])
    def test_empty_range_is_refused(self, place: Town, job: Job, root: str, asked: str) -> None:
        answer = place.owner.get(f"{root}/jobs/{job.uid}/files/big", headers={"Range": asked})
        assert (answer.status_code, answer.content) == (416, b"")

    @pytest.mark.parametrize(
        "path", ["models", "none", "../secret", "%2e%2e/secret", "models//x", "models/%2e%2e/big"]
    )
    def test_other_paths_are_missing(self, place: Town, job: Job, root: str, path: str) -> None:
        assert place.owner.get(f"{root}/jobs/{job.uid}/files/{path}").status_code == 404

    def test_is_only_for_those_who_see_the_job(self, place: Town, job: Job, root: str) -> None:
        url = f"{root}/jobs/{job.uid}/files/big"
        headers = {"Range": "bytes=0-4"}
        assert place.outsider.get(url, headers=headers).status_code == 404
        assert place.nobody.get(url, headers=headers).status_code in (302, 401)
