"""Test folders of jobs that the portal shares with a tenant's Unix user.

Root has all permissions, so the tests run the portal as another user.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scheduling.engine.executors.local_files import _piece, opened
from scheduling.engine.executors.shim.files import (
    claim,
    fence,
    file_mask,
    is_ours,
    lease_folder,
    make_private,
    move_away,
    read_json,
    read_text,
    reopen,
    write_json,
    write_text,
)
from scheduling.engine.executors.shim.log import Log
from scheduling.engine.executors.slurm.executor import SlurmExecutor
from scheduling.engine.executors.slurm.users import (
    LEASES_MODE,
    RECORD,
    UserRefusedError,
    close_folders,
    find_user,
    recorded_uid,
    share_folders,
)
from tests.unix_users import NAMES, PORTAL, as_user, open_folder, require_users

ANN, BEN, _ = NAMES
TOKEN = "es-7-1"


@pytest.fixture
def root() -> Iterator[Path]:
    """Return the folder of jobs of a portal that does not run as root."""
    require_users()
    with open_folder() as folder:
        root = folder / "jobs"
        root.mkdir(mode=0o700)
        entry = pwd.getpwnam(PORTAL)
        os.chown(root, entry.pw_uid, entry.pw_gid)
        yield root


def prepare(root: Path, token: str = TOKEN, name: str = ANN) -> None:
    """Do what the portal does before a lease is submitted."""
    folder = lease_folder(root, token)
    make_private(root, root / "active")
    make_private(root, folder.parents[1], folder.parent, folder)
    share_folders(root, token, find_user(name))
    write_json(folder / "spec.json", {"secret": name})


def portal(act: Any, *arguments: Any) -> None:
    as_user(PORTAL, lambda: act(*arguments), groups=(ANN, BEN))


class TestSharedFolder:
    def test_is_usable_by_portal_and_job_user(self, root: Path) -> None:
        folder = lease_folder(root, TOKEN)
        job = folder.parents[1]
        portal(prepare, root)

        def shim() -> None:
            os.umask(file_mask(folder))
            assert read_json(folder / "spec.json") == {"secret": ANN}
            record = claim(folder)
            assert record is not None
            assert fence(job, 1)
            write_json(folder / "shim.json", {**record, "started_us": 1})
            log = Log(folder, 2**20)
            log.write(b"hello")
            (job / "progress.json").write_text("{}")
            (job / "model").mkdir()
            write_json(folder / "exit.json", {"code": 0}, durably=True)

        def look() -> None:
            assert (read_json(folder / "shim.json") or {})["started_us"] == 1
            assert read_json(folder / "exit.json") == {"code": 0}
            assert read_text(folder / "out.log") == "hello"
            assert read_text(job / "progress.json") == "{}"
            assert claim(folder, never=True) is None
            # The portal can overwrite the file, as it does when it records the end of a lost lease.
            write_json(folder / "exit.json", {"lost": True})
            write_text(folder / "until", "5")
            (folder / "until").unlink()
            (job / "model" / "new").write_text("")

        as_user(ANN, shim)
        portal(look)

    def test_is_closed_to_other_users(self, root: Path) -> None:
        folder = lease_folder(root, TOKEN)
        portal(prepare, root)

        def pry() -> None:
            for path in (root, root / "active", folder.parents[1], folder.parent, folder):
                with pytest.raises(PermissionError):
                    os.listdir(path)  # noqa: PTH208 - as any program does it
            with pytest.raises(PermissionError):
                (folder / "spec.json").read_text()
            with pytest.raises(PermissionError):
                os.link(folder / "spec.json", "/tmp/evenshare-never")  # noqa: S108 - is refused

        as_user(BEN, pry)

    def test_protects_files_of_portal_from_job_user(self, root: Path) -> None:
        """Otherwise the user could replace them by links, and redirect the portal's writes."""
        folder = lease_folder(root, TOKEN)
        job = folder.parents[1]

        def write() -> None:
            prepare(root)
            write_json(folder / "stop", {"grace_s": 1})

        portal(write)

        def attack() -> None:
            for path in (
                folder,
                folder.parent,
                folder / "spec.json",
                folder / "stop",
                job / RECORD,
            ):
                with pytest.raises(PermissionError):
                    path.rename(path.with_name("mine"))
            for path in (folder / "spec.json", folder / "stop", job / RECORD):
                with pytest.raises(PermissionError):
                    path.write_text("{}")
                with pytest.raises(PermissionError):
                    path.unlink()
            with pytest.raises(PermissionError):
                (folder.parent / "2").symlink_to(root)

        as_user(ANN, attack)

    def test_replaces_order_forged_by_job_user(self, root: Path) -> None:
        folder = lease_folder(root, TOKEN)
        portal(prepare, root)

        def forge() -> None:
            (folder / "stop").write_text('{"grace_s": 1e9}')

        def look() -> None:
            assert not is_ours(folder / "stop")
            write_json(folder / "stop", {"grace_s": 2})
            assert is_ours(folder / "stop")
            assert read_json(folder / "stop") == {"grace_s": 2}

        as_user(ANN, forge)
        portal(look)

    def test_log_reader_ignores_hard_links(self, root: Path) -> None:
        folder = lease_folder(root, TOKEN)
        portal(prepare, root)

        def link() -> None:
            (folder / "mine").write_text("a secret of somebody's")
            os.link(folder / "mine", folder / "out.log")

        def look() -> None:
            descriptor = os.open(folder, os.O_RDONLY)
            assert _piece(descriptor, "out.log", 0, 100) == b""
            (folder / "mine").unlink()
            assert _piece(descriptor, "out.log", 0, 100) == b"a secret of somebody's"

        as_user(ANN, link)
        portal(look)

    def test_is_cleared_if_user_replaces_file_by_folder(self, root: Path) -> None:
        folder = lease_folder(root, TOKEN)
        portal(prepare, root)

        def obstruct() -> None:
            (folder / "exit.json").mkdir()
            (folder / "exit.json" / "x").touch()

        def look() -> None:
            with pytest.raises(IsADirectoryError):
                write_json(folder / "exit.json", {"lost": True})
            move_away(folder.parents[1], folder.parent, folder)
            prepare(root)
            write_json(folder / "exit.json", {"lost": True})
            job = folder.parents[1]
            job.rename(job.with_name("7.former"))

        as_user(ANN, obstruct)
        portal(look)

    @pytest.mark.parametrize("closed", ["exit.json", "shim.json"])
    def test_reopens_after_user_removes_permissions(self, root: Path, closed: str) -> None:
        """The portal is neither root nor the owner, so it cannot reopen the file."""
        folder = lease_folder(root, TOKEN)
        portal(prepare, root)

        def close() -> None:
            assert claim(folder)
            (folder / closed).write_text("{}")
            (folder / closed).chmod(0)
            (folder / f".{closed}.closed").mkdir()

        def look() -> None:
            with pytest.raises(PermissionError):
                read_json(folder / closed)
            reopen(folder)
            never = (read_json(folder / "shim.json") or {}).get("never", False)
            assert never is (closed == "shim.json")
            assert read_json(folder / "exit.json") is None
            # The job can still write to its folder and read the orders there.
            assert folder.stat().st_mode & 0o3770 == 0o3770
            assert folder.parent.stat().st_mode & 0o7777 == LEASES_MODE

        as_user(ANN, close)
        portal(look)

    @pytest.mark.parametrize("how", ["mode", "lease"])
    def test_lease_ends_if_user_keeps_closing_its_files(
        self, root: Path, settings: Any, how: str
    ) -> None:
        """The portal still checks other jobs, however often the user closes its files."""
        settings.LOCAL_ROOT = str(root)
        folder = lease_folder(root, TOKEN)
        portal(prepare, root)
        ready, done = os.pipe(), os.pipe()

        def close() -> None:
            # another process holds a file of the lease open
            signal.signal(signal.SIGIO, signal.SIG_IGN)
            for path in (folder / "shim.json", folder / "exit.json"):
                path.write_text('{"code": 0}')
                if how == "mode":
                    path.chmod(0)
                else:
                    fcntl.fcntl(os.open(path, os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)
            os.write(ready[1], b".")
            os.read(done[0], 1)

        def look() -> None:
            os.read(ready[0], 1)
            try:
                executor = SlurmExecutor()
                assert executor._claim(TOKEN) == {"never": True}
                assert executor._exit(TOKEN) is None
            finally:
                os.write(done[1], b".")

        with ThreadPoolExecutor() as pool:
            job = pool.submit(as_user, ANN, close)
            portal(look)
            job.result()

    def test_is_accessible_to_log_reader(self, root: Path, settings: Any) -> None:
        settings.LOCAL_ROOT = str(root)
        portal(prepare, root)

        def look() -> None:
            with opened("7", "leases", "1") as folder:
                assert json.loads(_piece(folder, "spec.json", 0, 100)) == {"secret": ANN}

        portal(look)


class TestChangedJobUser:
    def former(self, root: Path, *names: str) -> Path:
        """Return a job whose lease ran as the former user and left files with these names."""
        job = lease_folder(root, TOKEN).parents[1]
        portal(prepare, root)

        def run() -> None:
            os.umask(0o007)
            fence(job, 1)
            for name in names:
                (job / name).write_text("{}")

        as_user(ANN, run)
        return job

    def test_is_accepted_if_no_user_files_remain(self, root: Path) -> None:
        job = self.former(root, "progress.json", "iterations.json")
        portal(prepare, root, "es-7-2", BEN)
        assert recorded_uid_as_portal(job) == pwd.getpwnam(BEN).pw_uid

        def run() -> None:
            assert fence(job, 2)
            (job / "progress.json").write_text("{}")
            assert read_json(job / "leases" / "2" / "spec.json") == {"secret": BEN}

        as_user(BEN, run)

    def test_is_refused_until_files_change_owner(self, root: Path) -> None:
        job = self.former(root, "model.pt")

        def change() -> None:
            with pytest.raises(UserRefusedError, match=r"model\.pt.*change their owner"):
                prepare(root, "es-7-2", BEN)

        portal(change)
        # The engine's rows about the former user's jobs are still accepted.
        assert recorded_uid_as_portal(job) == pwd.getpwnam(ANN).pw_uid
        ben = pwd.getpwnam(BEN)
        for path in (job / "model.pt", job / "lease"):
            os.chown(path, ben.pw_uid, ben.pw_gid)
        portal(prepare, root, "es-7-2", BEN)
        assert recorded_uid_as_portal(job) == ben.pw_uid

    def test_is_refused_if_portal_ran_job_in_between(self, root: Path) -> None:
        """The portal then owns the job's files, and the user could not write them."""
        job = self.former(root)

        def without() -> None:
            make_private(job / "leases" / "2")
            close_folders(root, "es-7-2")
            (job / "model.pt").write_text("")

        def again() -> None:
            with pytest.raises(UserRefusedError, match=r"model\.pt.*change their owner"):
                prepare(root, "es-7-3", ANN)

        portal(without)
        portal(again)

    def test_folder_is_private_again_without_user(self, root: Path) -> None:
        job = self.former(root)

        def without() -> None:
            make_private(job / "leases" / "2")
            close_folders(root, "es-7-2")

        portal(without)
        assert job.stat().st_mode & 0o777 == 0o700

        def pry() -> None:
            with pytest.raises(PermissionError):
                os.listdir(job)  # noqa: PTH208 - as any program does it

        as_user(ANN, pry)


def recorded_uid_as_portal(job: Path) -> int | None:
    """Return the recorded user id as the portal's user reads it. Only that user trusts the file."""
    read, write = os.pipe()
    portal(lambda: os.write(write, str(recorded_uid(job)).encode()))
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    return int(said) if said.isdecimal() else None


class TestUserRecord:
    def test_written_by_job_is_ignored(self, root: Path) -> None:
        job = lease_folder(root, TOKEN).parents[1]

        def private() -> None:
            make_private(job)
            job.chmod(0o777)
            root.chmod(0o711)

        portal(private)
        ben = pwd.getpwnam(BEN).pw_uid

        def forge() -> None:
            (job / RECORD).write_text(f"{ben} {BEN}\n")

        as_user(ANN, forge)
        assert recorded_uid_as_portal(job) is None
