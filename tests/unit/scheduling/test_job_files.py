"""Test which files of a job's folder are listed and read, of honest and of hostile jobs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduling.engine.executors import job_files
from scheduling.engine.executors.job_files import (
    DEPTH_MAX,
    FILES_MAX,
    WINDOW_BYTES,
    list_files,
    read_file,
)

JOB = 7


@pytest.fixture
def folder(tmp_path: Path, settings: Any) -> Path:
    settings.LOCAL_ROOT = str(tmp_path)
    (tmp_path / "secret").write_text("a-strangers-secret")
    (tmp_path / "8").mkdir()
    (tmp_path / "8" / "out.txt").write_text("a-strangers-secret")
    (tmp_path / str(JOB)).mkdir()
    return tmp_path / str(JOB)


def put(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def paths() -> list[str]:
    return [one.path for one in list_files(JOB).files]


def read(path: str, offset: int = 0, limit: int = WINDOW_BYTES) -> bytes | None:
    window = read_file(JOB, path, offset, limit)
    return None if window is None else window.data


class TestList:
    def test_has_upper_folders_first_by_name(self, folder: Path) -> None:
        for path in ("b/deep/z", "b/y", "c.txt", "a.txt", "a/x"):
            put(folder / path, path)
        listed = list_files(JOB)
        assert paths() == ["a.txt", "c.txt", "a/x", "b/y", "b/deep/z"]
        assert [one.size for one in listed.files] == [5, 5, 3, 3, 8]
        assert not listed.is_cut

    def test_leaves_out_hidden_files_and_those_of_portal(self, folder: Path) -> None:
        hidden = (
            ".netrc", ".cache/x", "a/.git/config", "leases/1/spec.json", "ranks/0", "lease", "uid",
            "unix-user", "progress.json", "metrics.json", "iterations.json", "evaluations.json",
        )  # fmt: skip
        for path in hidden:
            put(folder / path)
        put(folder / "a" / "progress.json")
        assert paths() == ["a/progress.json"]
        assert [read(path) for path in hidden] == [None] * len(hidden)
        assert read("a/progress.json") == b"x"

    def test_leaves_out_what_no_page_can_show(self, folder: Path) -> None:
        for name in (b"bad\xff", b"new\nline", "\u202etxt.exe".encode(), b"\x1b[2J"):
            (Path(os.fsdecode(os.fsencode(folder) + b"/" + name))).write_text("x")
        put(folder / "größe <b>.txt")
        assert paths() == ["größe <b>.txt"]

    def test_is_cut_after_a_thousand_files(self, folder: Path) -> None:
        for number in range(FILES_MAX + 5):
            put(folder / f"{number:05}")
        listed = list_files(JOB)
        assert len(listed.files) == FILES_MAX
        assert listed.is_cut

    def test_looks_at_a_bounded_number_of_names(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job_files, "NAMES_MAX", 10)
        for number in range(50):
            put(folder / f"{number}")
        listed = list_files(JOB)
        assert (len(listed.files), listed.is_cut) == (11, True)

    def test_is_cut_below_eight_folders(self, folder: Path) -> None:
        deep = "/".join(["d"] * (DEPTH_MAX - 1))
        put(folder / deep / "last")
        assert (paths(), list_files(JOB).is_cut) == ([f"{deep}/last"], False)
        put(folder / deep / "d" / "below")
        assert (paths(), list_files(JOB).is_cut) == ([f"{deep}/last"], True)
        assert read(f"{deep}/d/below") is None

    def test_is_empty_without_folder(self, folder: Path) -> None:
        folder.rmdir()
        assert list_files(JOB) == ((), False)
        assert read("x") is None


class TestRead:
    def test_returns_windows_of_bytes(self, folder: Path) -> None:
        put(folder / "a", "0123456789")
        window = read_file(JOB, "a", 3, 4)
        assert window is not None
        assert (window.data, window.offset, window.total) == (b"3456", 3, 10)
        assert read("a", -3) == b"789"
        assert read("a", -99) == b"0123456789"
        assert read("a", 10) == read("a", 2**62) == b""

    def test_version_changes_with_file(self, folder: Path) -> None:
        put(folder / "a", "one")
        first = read_file(JOB, "a", 0, 1)
        os.utime(folder / "a", ns=(1, 1))
        assert first is not None
        assert first != read_file(JOB, "a", 0, 1)

    def test_reads_at_most_a_window_of_a_huge_file(self, folder: Path) -> None:
        with (folder / "huge").open("wb") as file:
            file.truncate(2**40)
        data = read("huge", 2**39, 2**39)
        assert data is not None
        assert len(data) == WINDOW_BYTES

    @pytest.mark.parametrize(
        "path",
        [
            "", "/", "..", "../8/out.txt", "a/../../8/out.txt", "/etc/passwd", "a//b", "./a", "a/",
            "leases/../a", "a\0", "x" * 300,
        ],
    )  # fmt: skip
    def test_other_paths_are_no_files(self, folder: Path, path: str) -> None:
        put(folder / "a")
        assert read(path) is None

    @pytest.mark.parametrize("place", ["secret", "8/out.txt", "8"])
    def test_no_link_is_followed(self, folder: Path, place: str) -> None:
        target = folder.parent / place
        (folder / "link").symlink_to(target)
        (folder / "folder").symlink_to(target.parent)
        (folder / "loop").symlink_to("loop")
        assert paths() == []
        for path in ("link", f"folder/{target.name}", "loop", "link/out.txt"):
            assert read(path) is None

    def test_pipes_and_folders_are_no_files(self, folder: Path) -> None:
        os.mkfifo(folder / "pipe")
        (folder / "empty").mkdir()
        assert paths() == []
        assert read("pipe") is read("empty") is None

    def test_hard_links_of_other_users_are_refused(self, folder: Path) -> None:
        """The folder of a job that runs as another user is shared with its group."""
        (folder / "a").mkdir()
        for path in (folder / "link", folder / "a" / "link"):
            os.link(folder.parent / "secret", path)
        assert paths() == ["link", "a/link"]
        folder.chmod(0o3770)
        assert paths() == []
        assert read("link") is read("a/link") is None

    @pytest.mark.parametrize("swapped", ["a", "a/b"])
    def test_folder_swapped_for_a_link_is_not_entered(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
    ) -> None:
        put(folder / "a" / "b" / "out.txt", "own")
        put(folder.parent / "out" / "b" / "out.txt", "a-strangers-secret")
        really: Callable[..., int] = os.open

        def swap(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            if path == "out.txt":
                (folder / swapped).rename(folder / "gone")
                (folder / swapped).symlink_to(folder.parent / "out")
                monkeypatch.setattr(os, "open", really)
            return really(path, flags, *rest, **more)

        monkeypatch.setattr(os, "open", swap)
        assert read("a/b/out.txt") == b"own"
        assert read("a/b/out.txt") is None
