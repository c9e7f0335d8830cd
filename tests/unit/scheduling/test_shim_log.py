"""Test that a program's output takes limited space, and how it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from scheduling.engine.executors.local_files import LogWindow, read_log
from scheduling.engine.executors.shim.log import Log


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("out*.log"))


def written(root: Path, pieces: list[bytes], cap: int) -> Path:
    folder = root / "1" / "leases" / "1"
    folder.mkdir(parents=True)
    log = Log(folder, cap)
    for piece in pieces:
        log.write(piece)
    return folder


class TestLog:
    def test_keeps_short_output_complete(self, tmp_path: Path) -> None:
        folder = written(tmp_path, [b"one\n", b"two"], 100)
        assert [path.read_bytes() for path in parts(folder)] == [b"one\ntwo"]

    @given(pieces=st.lists(st.binary(min_size=1, max_size=90), max_size=30))
    def test_stays_below_cap_and_keeps_head_and_tail(
        self, tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
    ) -> None:
        cap, whole = 100, b"".join(pieces)
        root = tmp_path_factory.mktemp("jobs")
        folder = written(root, pieces, cap)
        assert sum(path.stat().st_size for path in parts(folder)) <= cap
        with override_settings(LOCAL_ROOT=str(root)):
            assert read_log(1, 1, 0, 50).data == whole[:50]
            # The tail has three parts of 16 bytes, of which the oldest may just have been dropped.
            assert whole.endswith(read_log(1, 1, -30, 30).data)
            assert read_log(1, 1).total == len(whole)
            for offset in range(0, len(whole), 7):
                window = read_log(1, 1, offset, 20)
                assert window.data == whole[window.offset : window.next_offset]
                assert window.next_offset > offset

    def test_notes_are_separate_lines(self, tmp_path: Path) -> None:
        log = Log(tmp_path, 1000)
        log.note("first")
        log.write(b"no end of line")
        log.note("second")
        (only,) = parts(tmp_path)
        text = only.read_text()
        assert text == "[evenshare] first\nno end of line\n[evenshare] second\n"

    def test_unwritable_log_loses_only_output(self, tmp_path: Path) -> None:
        log = Log(tmp_path / "missing", 1000)
        log.write(b"lost")
        log.note("lost too")
        assert not (tmp_path / "missing").exists()

    def test_does_not_follow_links(self, tmp_path: Path) -> None:
        (tmp_path / "victim").write_text("kept")
        (tmp_path / "out.log").symlink_to(tmp_path / "victim")
        Log(tmp_path, 1000).write(b"overwritten")
        assert (tmp_path / "victim").read_text() == "kept"


class TestLogWindow:
    def test_computes_its_offset(self) -> None:
        assert LogWindow(b"abc", 10, 20).offset == 7

    @pytest.mark.parametrize("limit", [-5, 0])
    def test_is_empty_for_nonpositive_limit(self, tmp_path: Path, limit: int) -> None:
        written(tmp_path, [b"abc"], 100)
        with override_settings(LOCAL_ROOT=str(tmp_path)):
            assert read_log(1, 1, 0, limit) == (b"", 0, 3)
