"""Test `evenshare job metrics`, `job files` and `job fetch` against the REST contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import Run
from .portal import Portal

CURVE: dict[str, Any] = {
    "name": "loss", "reported": 2, "lowest": 0.25, "highest": 1.0,
    "points": [
        {"step": 1, "value": 1.0, "elapsed_s": 0.0}, {"step": 9, "value": 0.25, "elapsed_s": None},
    ],
}  # fmt: skip
ANSWER: dict[str, Any] = {
    "metrics": [CURVE], "links": [], "thinned": False, "left_out": 0, "refused": "",
}  # fmt: skip


@pytest.fixture
def job(portal: Portal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    portal.metrics = ANSWER
    return str(portal.job("running")["id"])


class TestMetrics:
    def test_are_one_line_each(self, run: Run, job: str) -> None:
        heads, row = run("job", "metrics", job).out.splitlines()
        assert heads.split() == ["METRIC", "STEP", "LAST", "LOWEST", "HIGHEST", "POINTS"]
        assert row.split() == ["loss", "9", "0.25", "0.25", "1", "2"]

    def test_show_points_on_demand(self, run: Run, job: str) -> None:
        rows = run("job", "metrics", job, "--points").out.splitlines()[1:]
        assert [row.split() for row in rows] == [
            ["loss", "1", "1", "0"],
            ["loss", "9", "0.25", "-"],
        ]
        assert run("job", "metrics", job, "--output", "json").json == ANSWER

    def test_select_one_by_name(self, run: Run, job: str, portal: Portal) -> None:
        run("job", "metrics", job, "--name", "val/loss")
        assert portal.seen[-1][1].endswith("/metrics?name=val%2Floss")

    def test_notes_are_inert(self, run: Run, job: str, portal: Portal) -> None:
        link = {"name": "W&B\x1b[31m", "url": "https://wandb.ai", "host": "wandb.ai"}
        portal.metrics = {**ANSWER, "metrics": [], "links": [link], "refused": "metrics.json \x07"}
        assert run("job", "metrics", job).err.splitlines() == [
            "no metrics", "not used: metrics.json \\x07", "W&B\\x1b[31m: https://wandb.ai",
        ]  # fmt: skip


class TestFiles:
    def test_are_listed(self, run: Run, job: str, portal: Portal) -> None:
        assert run("job", "files", job).err == "no files\n"
        portal.files = {"a/b \x1b.pt": b"123"}
        _, row = run("job", "files", job).out.splitlines()
        assert row.split()[0] == "3"
        assert row.endswith("a/b \\x1b.pt")


class TestFetch:
    @pytest.mark.parametrize("data", [b"", b"12345", b"\x00\xff" * 13])
    def test_stores_equal_bytes(self, run: Run, job: str, portal: Portal, data: bytes) -> None:
        portal.files = {"models/best 1.pt": data}
        done = run("job", "fetch", job, "models/best 1.pt")
        assert (done.code, done.err) == (0, f"best 1.pt: {len(data)} bytes\n")
        assert Path("best 1.pt").read_bytes() == data
        assert [path.name for path in Path().iterdir()] == ["best 1.pt"]

    def test_replaces_only_a_named_file(self, run: Run, job: str, portal: Portal) -> None:
        portal.files = {"a": b"new"}
        Path("a").write_text("old")
        refused = run("job", "fetch", job, "a")
        assert (refused.code, Path("a").read_text()) == (2, "old")
        assert run("job", "fetch", job, "a", "--to", "a").code == 0
        assert Path("a").read_text() == "new"

    def test_changed_file_is_a_conflict(self, run: Run, job: str, portal: Portal) -> None:
        portal.files, portal.versions = {"a": b"0123456789"}, ['"1"', '"2"']
        done = run("job", "fetch", job, "a")
        assert done.code == 4
        assert "changed while it was read" in done.err
        assert list(Path().iterdir()) == []

    def test_missing_file_leaves_nothing(self, run: Run, job: str) -> None:
        assert run("job", "fetch", job, "none").code == 3
        assert run("job", "fetch", job, "..").code == 2
        assert run("job", "fetch", job, "a", "--to", "no/such/folder").code == 2
        assert list(Path().iterdir()) == []

    def test_explains_its_call(self, run: Run, job: str) -> None:
        done = run("job", "fetch", job, "a", "--explain")
        assert done.code == 0
        assert "Range: bytes=0-" in done.out
        assert list(Path().iterdir()) == []
