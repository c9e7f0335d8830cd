"""Test a local job's limits: time without orders, the portal's life, and the output's size."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.units import SECOND_US
from scheduling.engine.executors.base import ExecutorError, Extension, ReportState
from scheduling.engine.executors.local import SHIM
from scheduling.engine.executors.local_files import WINDOW_BYTES, read_log
from tests.integration.local_world import LocalWorld, local_world
from tests.integration.test_local_executor import CHECKPOINTS, STUBBORN
from tests.tools import PATIENCE_S, eventually

pytestmark = [
    pytest.mark.usefixtures("committed_db"),
    pytest.mark.skipif(sys.platform != "linux", reason="the executor finds processes in /proc"),
]

MIB = 2**20


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    with local_world(tmp_path / "jobs") as made:
        yield made


class TestDeadMansLimit:
    def test_follows_expiry_of_lease_and_outage_grace(self, world: LocalWorld) -> None:
        token = world.shell("sleep 6000")
        first = json.loads((world.folder(token) / "spec.json").read_text())["until"]
        until_us = world.now_us() + 500 * SECOND_US
        world.executor.extend(world.lab.pool.pk, [Extension(token, world.job(token), until_us)])
        moved = float((world.folder(token) / "until").read_text())
        assert moved - first == pytest.approx(500, abs=10)

    def test_lets_program_checkpoint_and_ends_it(self, world: LocalWorld) -> None:
        token = world.python(CHECKPOINTS.format(code=99))
        world.says(token, "ready")
        gone_us = world.now_us() - (world.lab.pool.outage_grace_s + 5) * SECOND_US
        world.executor.extend(world.lab.pool.pk, [Extension(token, world.job(token), gone_us)])
        assert world.ended(token).state is ReportState.STOPPED
        assert (world.job_folder(token) / "saved").exists()
        assert "lease not renewed" in world.log(token)

    def test_unchanged_limit_is_not_rewritten(self, world: LocalWorld) -> None:
        token = world.shell("sleep 6000")
        until_us = to_us(world.lab.pool.leases.get().expires_at)
        world.executor.extend(world.lab.pool.pk, [Extension(token, world.job(token), until_us)])
        assert not (world.folder(token) / "until").exists()

    def test_applies_before_it_was_ever_moved(self, world: LocalWorld) -> None:
        token = world.lease("/bin/sleep", "6000")
        gone = timedelta(seconds=world.lab.pool.outage_grace_s + 5)
        world.lab.pool.leases.update(expires_at=from_us(world.now_us()) - gone)
        world.launch(token)
        assert world.ended(token).state is ReportState.STOPPED
        assert "lease not renewed" in world.log(token)

    def test_ignores_unknown_lease(self, world: LocalWorld) -> None:
        token = world.lease("true")
        world.executor.extend(world.lab.pool.pk, [Extension(token, world.job(token), 1)])
        assert not world.folder(token).exists()


class TestLifeline:
    def test_released_lifeline_ends_job(
        self, world: LocalWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lifeline = tmp_path / "lifeline"
        monkeypatch.setenv("EVENSHARE_LIFELINE", str(lifeline))
        with lifeline.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            token = world.python(CHECKPOINTS.format(code=99))
            world.says(token, "ready")
            assert world.listed()[token].state is ReportState.RUNNING
        eventually(lambda: "portal gone" in world.log(token))
        assert world.ended(token).state is ReportState.STOPPED
        assert (world.job_folder(token) / "saved").exists()
        eventually(lambda: not world.processes())


class TestMachineTrouble:
    def test_does_not_count_as_loss_of_jobs(
        self, world: LocalWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = world.shell("sleep 6000")

        def refuse(*_: object, **__: object) -> int:
            raise OSError(errno.EMFILE, "too many open files")

        with monkeypatch.context() as trouble:
            trouble.setattr(os, "open", refuse)
            with pytest.raises(ExecutorError, match="too many open files"):
                world.listed()
        assert world.listed()[token].state is ReportState.RUNNING

    def test_unwritable_folder_refuses_launches(self, world: LocalWorld, tmp_path: Path) -> None:
        token = world.lease("true")
        world.root.write_text("in the way")
        with pytest.raises(ExecutorError, match="no process can be started"):
            world.launch(token)
        world.root.unlink()
        world.launch(token)
        assert world.ended(token).exit_code == 0


class TestEndOfAllShims:
    """All shims end when the supervisor stops."""

    def test_gives_each_program_its_grace(self, world: LocalWorld) -> None:
        token = world.python(CHECKPOINTS.format(code=99))
        world.says(token, "ready")
        assert ending(world.root).wait(PATIENCE_S) == 0
        assert world.processes() == []
        assert (world.job_folder(token) / "saved").exists()

    def test_now_option_gives_no_grace(self, world: LocalWorld) -> None:
        token = world.python(STUBBORN)
        world.says(token, "ready")
        assert ending(world.root, "--now").wait(PATIENCE_S) == 0
        assert world.processes() == []

    def test_sigterm_cuts_grace_short(self, world: LocalWorld) -> None:
        token = world.python(STUBBORN)
        world.says(token, "ready")
        program = ending(world.root)
        eventually(lambda: "asked to stop" in world.log(token))
        program.terminate()
        assert program.wait(PATIENCE_S) == 0
        assert world.processes() == []
        assert world.ended(token).state is ReportState.STOPPED


def ending(root: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-I", "-S", str(SHIM), "--end", str(root), *words])


class TestHostileOutput:
    def test_line_of_200_mb_is_bounded_on_disk_and_in_memory(self, world: LocalWorld) -> None:
        token = world.python(
            "import sys, time\n"
            "for n in range(200): sys.stdout.buffer.write(bytes([97 + n % 26]) * 2**20)\n"
            "sys.stdout.buffer.write(b'the end')\nsys.stdout.flush()\ntime.sleep(6000)"
        )
        job, total = world.job(token), 200 * MIB + len(b"the end")
        eventually(lambda: read_log(job, 1).total == total)
        status = Path(f"/proc/{world.shim(token)['pid']}/status").read_text()
        peak_kb = int(next(line for line in status.splitlines() if "VmHWM" in line).split()[1])
        assert peak_kb < 40 * 1024
        kept = sum(path.stat().st_size for path in world.folder(token).glob("out*.log"))
        assert kept <= 10 * MIB
        assert read_log(job, 1, 0, 10).data == b"a" * 10
        assert read_log(job, 1, -7).data == b"the end"
        after_the_cut = read_log(job, 1, MIB, 100)
        assert after_the_cut.offset > 190 * MIB
        assert after_the_cut.next_offset == after_the_cut.offset + 100

    def test_nul_escapes_and_invalid_text_are_kept_byte_for_byte(self, world: LocalWorld) -> None:
        hostile = b"\0<script>alert(1)</script>\x1b[2J\xff\xfe\xed\xa0\x80\r\n"
        token = world.python(f"import sys; sys.stdout.buffer.write({hostile!r})")
        world.ended(token)
        assert read_log(world.job(token), 1) == (hostile, len(hostile), len(hostile))


class TestLogWindow:
    def test_pages_through_entire_log(self, world: LocalWorld) -> None:
        token = world.python("print('\\n'.join(f'{n:09d}' for n in range(300_000)))")
        world.ended(token)
        whole, offset, total = b"", 0, 1
        while offset < total:
            data, offset, total = read_log(world.job(token), 1, offset, 10**9)
            assert 0 < len(data) <= WINDOW_BYTES
            whole += data
        assert whole == b"".join(b"%09d\n" % n for n in range(300_000))
        assert read_log(world.job(token), 1, total) == (b"", total, total)

    def test_is_empty_without_log(self, world: LocalWorld) -> None:
        assert read_log(1, 1) == (b"", 0, 0)
        token = world.shell("exit 0")
        world.ended(token)
        assert read_log(world.job(token), 1) == (b"", 0, 0)
        assert read_log(world.job(token), 2) == (b"", 0, 0)

    @pytest.mark.parametrize("name", ["out.log", "leases/1", "leases", "."])
    def test_follows_no_link_of_job(self, world: LocalWorld, tmp_path: Path, name: str) -> None:
        token = world.shell("echo kept")
        world.ended(token)
        secret = tmp_path / "secret" / "leases" / "1"
        secret.mkdir(parents=True)
        (secret / "out.log").write_text("secret")
        place = world.folder(token) / name if name == "out.log" else world.job_folder(token) / name
        place = Path(os.path.normpath(place))
        target = {
            "out.log": secret / "out.log",
            "leases/1": secret,
            "leases": secret.parent,
            ".": tmp_path / "secret",
        }[name]
        place.rename(tmp_path / "moved")
        place.symlink_to(target)
        assert read_log(world.job(token), 1) == (b"", 0, 0)

    def test_does_not_block_on_pipe_of_job(self, world: LocalWorld) -> None:
        token = world.shell("echo kept")
        world.ended(token)
        (world.folder(token) / "out.log").unlink()
        for pipe in (world.folder(token) / "out.log", world.job_folder(token) / "progress.json"):
            os.mkfifo(pipe)
        assert world.listed()[token].progress is None
        assert read_log(world.job(token), 1) == (b"", 0, 0)


class TestProgress:
    def test_is_reported_while_running_and_at_end(self, world: LocalWorld) -> None:
        told = {"step": 3, "of": 10, "loss": 0.5, "note": "é"}
        token = world.shell(
            f"echo '{json.dumps(told)}' > $EVENSHARE_PROGRESS; echo ready; read line; exit 0"
        )
        assert world.ended(token).progress == told

    @pytest.mark.parametrize(
        "text",
        [
            *("", "[1]", "{", '{"a": NaN}', '{"a": 1e999}', '{"a": "\\u0000"}'),
            *('{"a": "\\ud800"}', '{"a": 99999999999999999999}', "{" * 100_000),
            *('{"a": ' * 20 + "1" + "}" * 20, '{"a": "' + "x" * 70_000 + '"}'),
        ],
        ids=range(11),
    )
    def test_ignores_invalid_progress(self, world: LocalWorld, text: str) -> None:
        token = world.shell("exit 0")
        world.ended(token)
        (world.job_folder(token) / "progress.json").write_text(text)
        assert world.listed()[token].progress is None
