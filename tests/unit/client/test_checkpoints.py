"""Test that checkpoints are whole or absent, the newest is read, and ended leases write none."""

import os
from pathlib import Path

import pytest

from evenshare.runtime import checkpoints
from evenshare.runtime.checkpoints import Fence, Folder, StaleLeaseError, read_file
from evenshare.runtime.sets import name_of


def folder(path: Path, lease: int = 1) -> Folder:
    made = Folder(path / "checkpoints", lease, Fence(path, lease))
    made.newest()
    return made


class TestResume:
    def test_returns_none_in_new_folder(self, tmp_path: Path) -> None:
        assert folder(tmp_path).newest() is None

    def test_prefers_later_lease_over_higher_sequence(self, tmp_path: Path) -> None:
        for body in (b"a", b"b", b"c"):
            folder(tmp_path, 1).write(body)
        folder(tmp_path, 2).write(b"later")
        newest = folder(tmp_path, 3).newest()
        assert newest == (2, 1, b"later")

    @pytest.mark.parametrize("keep", [0, 1, 40, 100, -1])
    def test_skips_truncated_file(self, keep: int, tmp_path: Path) -> None:
        """The file is cut off at any byte of its header or body."""
        here = folder(tmp_path)
        here.write(b"whole" * 100)
        torn = here.write(b"torn!" * 100)
        torn.write_bytes(torn.read_bytes()[:keep])
        assert folder(tmp_path, 2).newest() == (1, 1, b"whole" * 100)

    @pytest.mark.parametrize("where", [25, 50, -1])
    def test_skips_corrupted_file(self, where: int, tmp_path: Path) -> None:
        here = folder(tmp_path)
        here.write(b"good")
        bad = here.write(b"bad" * 100)
        data = bytearray(bad.read_bytes())
        data[where] ^= 1
        bad.write_bytes(data)
        assert folder(tmp_path, 2).newest() == (1, 1, b"good")

    def test_skips_file_with_wrong_name(self, tmp_path: Path) -> None:
        here = folder(tmp_path)
        first = here.write(b"first")
        (here.path / name_of(9, 9)).write_bytes(first.read_bytes())
        assert folder(tmp_path, 10).newest() == (1, 1, b"first")

    def test_removes_leftover_of_killed_writer(self, tmp_path: Path) -> None:
        here = folder(tmp_path)
        left = here.path / f".{name_of(1, 1)}.4242"
        left.write_bytes(b"half")
        here.newest()
        assert not left.exists()


class TestWrite:
    def test_keeps_last_two_files(self, tmp_path: Path) -> None:
        here = folder(tmp_path)
        for body in (b"a", b"b", b"c", b"d"):
            here.write(body)
        assert sorted(p.name for p in here.path.iterdir()) == [name_of(1, 3), name_of(1, 4)]

    def test_continues_numbering_after_restart_within_lease(self, tmp_path: Path) -> None:
        folder(tmp_path).write(b"a")
        assert folder(tmp_path).write(b"b").name == name_of(1, 2)

    def test_file_starts_with_readable_header(self, tmp_path: Path) -> None:
        line = folder(tmp_path, 3).write(b"body").read_bytes().split(b"\n")[0]
        assert line.startswith(b"evenshare-checkpoint 1 lease=3 sequence=1 bytes=4 sha256=")

    def test_flushes_file_then_renames_then_flushes_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here = folder(tmp_path)
        order: list[str] = []
        fsync, replace = os.fsync, Path.replace

        def seen_fsync(descriptor: int) -> None:
            name = Path(f"/proc/self/fd/{descriptor}").readlink().name
            order.append(f"fsync {name.removesuffix(f'.{os.getpid()}')}")
            fsync(descriptor)

        def seen_replace(path: Path, target: Path) -> Path:
            order.append("rename")
            return replace(path, target)

        monkeypatch.setattr(os, "fsync", seen_fsync)
        monkeypatch.setattr(Path, "replace", seen_replace)
        here.write(b"body")
        assert order == [f"fsync .{name_of(1, 1)}", "rename", "fsync checkpoints"]

    def test_leaves_no_file_if_disk_is_full(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here = folder(tmp_path)
        here.write(b"before")

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "write_file", full)
            with pytest.raises(OSError, match="No space"):
                here.write(b"after")
        assert [p.name for p in here.path.iterdir()] == [name_of(1, 1)]


class TestLeaseFence:
    def test_allows_current_lease_to_write(self, tmp_path: Path) -> None:
        (tmp_path / "lease").write_text("3\n")
        assert read_file(folder(tmp_path, 3).write(b"x")) == (3, 1, b"x")

    def test_rejects_older_lease(self, tmp_path: Path) -> None:
        here = folder(tmp_path, 3)
        (tmp_path / "lease").write_text("4")
        with pytest.raises(StaleLeaseError, match="lease 4 runs this job now"):
            here.write(b"x")
        assert list(here.path.iterdir()) == []

    def test_is_checked_again_before_rename(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The lease is lost while the checkpoint is being written."""
        here = folder(tmp_path, 3)
        write = checkpoints.write_file

        def slow(*arguments: object) -> None:
            write(*arguments)  # type: ignore[arg-type]  # passed on as they came
            (tmp_path / "lease").write_text("4")

        monkeypatch.setattr(checkpoints, "write_file", slow)
        with pytest.raises(StaleLeaseError):
            here.write(b"x")
        assert list(here.path.iterdir()) == []

    def test_rejects_write_if_lease_file_is_unreadable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here = folder(tmp_path, 3)
        (tmp_path / "lease").write_text("three")
        monkeypatch.setattr(checkpoints, "LEASE_FILE_PATIENCE_S", 0.0)
        with pytest.raises(StaleLeaseError, match="holds no lease number"):
            here.write(b"x")
