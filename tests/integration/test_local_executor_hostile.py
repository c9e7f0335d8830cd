"""Test that a local job that manipulates the files within its reach harms only itself."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scheduling.engine.executors import local_files, shim_executor
from scheduling.engine.executors.base import ReportState
from scheduling.engine.executors.local_files import read_log, read_progress
from scheduling.engine.executors.shim.files import write_json, write_text
from scheduling.models import Job, Lease, PoolClock
from scheduling.requests.pools import SCALE_MAX
from tests.integration.local_world import LocalWorld, local_world

pytestmark = [
    pytest.mark.usefixtures("committed_db"),
    pytest.mark.skipif(sys.platform != "linux", reason="the executor finds processes in /proc"),
]

CANARY = "a-strangers-secret"
# Paths below the job's folder; {n} is the number of its current lease, {m} that of the next one.
PLACES = (
    ".",
    "leases",
    "leases/{n}",
    "leases/{m}",
    "leases/{n}/out.log",
    "leases/{n}/exit.json",
    "leases/{n}/shim.json",
    "leases/{n}/spec.json",
    "leases/{n}/stop",
    "leases/{n}/until",
    "leases/{m}/shim.log",
    "leases/{m}/spec.json",
    "progress.json",
    "iterations.json",
    "uid",
    "lease",
    "../active/{token}",
)


def _link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def _folder_link(path: Path, secret: Path) -> None:
    path.symlink_to(secret.parent)


def _loop(path: Path, _: Path) -> None:
    path.symlink_to(path.name)


def _folder(path: Path, _: Path) -> None:
    (path / "with" / "something").mkdir(parents=True)


def _file(path: Path, _: Path) -> None:
    path.write_bytes(b"\xff\x00{[")


def _pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def _device(path: Path, _: Path) -> None:
    """Create an endless device if permitted, or a link to one."""
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise
        path.symlink_to("/dev/zero")


def _huge(path: Path, _: Path) -> None:
    """Create a sparse file of one tebibyte, which does not fit into memory."""
    with path.open("wb") as file:
        file.truncate(2**40)


def _nothing(_: Path, __: Path) -> None: ...


KINDS: tuple[Callable[[Path, Path], None], ...] = (
    *(_link, _folder_link, _loop, _folder, _file, _pipe, _device, _huge, _nothing),
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    (tmp_path / "strangers").mkdir()
    for name in ("out.log", "progress.json", "exit.json", "shim.json", "secret"):
        (tmp_path / "strangers" / name).write_text(f'{{"{CANARY}": 1}}')
    with local_world(tmp_path / "jobs") as there:
        yield there


def _ran(world: LocalWorld) -> str:
    """Return a lease whose shim died without a record and left files."""
    token = world.lease("true")
    folder = world.folder(token)
    folder.mkdir(parents=True)
    (world.root / "active").mkdir(exist_ok=True)
    write_text(world.root / "active" / token, str(world.lab.pool.pk))
    write_json(folder / "shim.json", {"pid": 2**22 + 1, "start": 1, "boot": "", "started_us": 1})
    write_text(folder / "out.log", "said\n")
    write_text(world.job_folder(token) / "uid", str(Job.objects.get(pk=world.job(token)).uid))
    return token


def _becomes(path: Path, kind: Callable[[Path, Path], None], secret: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() or path.is_symlink():
        path.rename(secret.parent / f"was-{path.name}")
    kind(path, secret)


def _read(world: LocalWorld, token: str) -> str:
    """Return everything that a page would show about the job."""
    window = read_log(world.job(token), int(token.rsplit("-", 1)[1]), limit=2**20)
    assert len(window.data) <= local_files.WINDOW_BYTES
    return f"{window.data!r} {read_progress(world.job(token))!r}"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.strip("_"))
def test_manipulated_files_leak_nothing_and_harm_no_other_job(
    world: LocalWorld, tmp_path: Path, kind: Callable[[Path, Path], None]
) -> None:
    neighbour = world.shell("sleep 6000")
    secret = tmp_path / "strangers" / "secret"
    leases = {}
    for place in PLACES:
        token = _ran(world)
        names = {"n": 1, "m": 2, "token": token}
        _becomes(world.job_folder(token) / place.format(**names), kind, secret)
        leases[place] = token
    Lease.objects.filter(job_id__in=map(world.job, leases.values())).update(state="running")
    secrets = {one: one.read_bytes() for one in secret.parent.glob("*") if one.is_file()}

    for place, token in leases.items():
        assert CANARY not in _read(world, token), place
    world.now_us()
    listed = world.listed()
    assert listed[neighbour].state is ReportState.RUNNING
    assert CANARY not in str(listed)
    for place, token in leases.items():
        assert ReportState.RUNNING not in {one.state for one in world.stop(token)}, place
    world.listed()
    Lease.objects.filter(job_id__in=map(world.job, leases.values())).update(state="ended")
    world.executor.forget(list(leases.values()))
    again = {
        place: world.lease(job=Job.objects.get(pk=world.job(token)))
        for place, token in leases.items()
    }
    reports = {report.token: report for report in world.launch(*again.values())}
    for place, token in again.items():
        assert token in reports, f"{place}: its next lease starts"
        assert CANARY not in _read(world, token), place
    assert world.listed()[neighbour].state is ReportState.RUNNING
    changed = [one.name for one, was in secrets.items() if one.read_bytes() != was]
    assert changed == [], "nothing is written through a link"


class TestSwappedFile:
    """The file is replaced between the check and the read."""

    @pytest.mark.parametrize("name", ["out.log", "progress.json"])
    def test_link_leaks_nothing_of_its_target(
        self, world: LocalWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        token = _ran(world)
        folder = world.job_folder(token) if name == "progress.json" else world.folder(token)
        secret = tmp_path / "strangers" / "secret"
        path = folder / name
        # Longer than the secret, because a log must not be read beyond its size at the check.
        path.write_text("{}".ljust(4096))
        look, opened = os.stat, os.open

        def swap() -> None:
            if not path.is_symlink():
                path.unlink()
                path.symlink_to(secret)

        def stat_then_swap(*args: object, **options: object) -> os.stat_result:
            seen = look(*args, **options)  # type: ignore[arg-type]  # as it was called
            if args[0] == name:
                swap()
            return seen

        def swap_then_open(*args: object, **options: object) -> int:
            if args[0] == name:
                swap()
            return opened(*args, **options)  # type: ignore[arg-type]  # as it was called

        monkeypatch.setattr(os, "stat", stat_then_swap)
        monkeypatch.setattr(os, "open", swap_then_open)
        assert CANARY not in _read(world, token)
        assert path.is_symlink(), "it was swapped while it was read"

    def test_folder_of_other_job_leaks_nothing(self, world: LocalWorld) -> None:
        token, other = _ran(world), _ran(world)
        (world.job_folder(other) / "progress.json").write_text(f'{{"{CANARY}": 1}}')
        (world.folder(other) / "out.log").write_text(CANARY)
        assert CANARY in _read(world, other)
        mine = world.job_folder(token)
        mine.rename(mine.with_name("aside"))
        mine.symlink_to(world.job_folder(other))
        assert CANARY not in _read(world, token)


class TestImpossibleTime:
    @pytest.mark.parametrize("instant_us", [1, 2**53 - 1])
    def test_forged_times_affect_no_other_job_on_fast_clock(
        self, world: LocalWorld, instant_us: int
    ) -> None:
        PoolClock.objects.update(scale=SCALE_MAX)
        neighbour, token = world.shell("sleep 6000"), _ran(world)
        says = {"started_us": instant_us, "ended_us": instant_us, "lost": True}
        write_json(world.folder(token) / "shim.json", {**world.shim(token), **says})
        write_json(world.folder(token) / "exit.json", says)
        now_us = world.now_us()
        listed = world.executor.list(world.lab.pool.pk, now_us)
        reports = {report.token: report for report in listed}
        assert reports[neighbour].state is ReportState.RUNNING
        assert reports[token].ended_us == now_us


class TestGrowingLog:
    def test_is_read_in_bounded_windows(self, world: LocalWorld) -> None:
        token = _ran(world)
        log = world.folder(token) / "out.log"
        done = threading.Event()

        def grow() -> None:
            with log.open("ab", buffering=0) as file:
                while not done.is_set() and file.tell() < 2**26:
                    file.write(b"x" * 2**20)

        writer = threading.Thread(target=grow)
        writer.start()
        try:
            for _ in range(50):
                window = read_log(world.job(token), 1, 0, 2**30)
                assert len(window.data) <= local_files.WINDOW_BYTES
                assert window.next_offset == len(window.data)
        finally:
            done.set()
            writer.join()

    def test_ends_where_its_size_was_read(
        self, world: LocalWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = _ran(world)
        log = world.folder(token) / "out.log"
        seen = log.stat().st_size
        look = local_files._size

        def grow_after(folder: int, name: str) -> int:
            size = look(folder, name)
            with log.open("ab") as file:
                file.write(b"x" * 4096)
            return size

        monkeypatch.setattr(local_files, "_size", grow_after)
        window = read_log(world.job(token), 1, 0)
        assert (len(window.data), window.next_offset, window.total) == (seen, seen, seen)
        rest = read_log(world.job(token), 1, window.next_offset)
        assert (rest.offset, rest.data) == (seen, b"x" * 4096)


def test_machine_errors_do_not_count_as_blocked_files() -> None:
    trouble = {errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS}
    assert trouble.isdisjoint(shim_executor.IN_THE_WAY)
