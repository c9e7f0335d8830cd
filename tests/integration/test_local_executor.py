"""Test real processes: they start once, in a clean environment, and their ends are exact."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections

from scheduling.engine.executors.base import ExecutorError, Launch, Report, ReportState
from scheduling.engine.executors.local import LocalExecutor
from scheduling.engine.executors.shim.processes import is_alive, start_of_process
from tests.integration.local_world import LocalWorld, local_world
from tests.tools import PATIENCE_S, eventually

pytestmark = [
    pytest.mark.usefixtures("committed_db"),
    pytest.mark.skipif(sys.platform != "linux", reason="the executor finds processes in /proc"),
]

FINISHED, STOPPED, RUNNING = ReportState.FINISHED, ReportState.STOPPED, ReportState.RUNNING
CANARIES = {
    "SECRET_KEY": "canary-key-7a1",
    "DATABASE_URL": "postgres://canary-user-7a2@/x",
    "OWNER_DATABASE_URL": "postgres://canary-owner-7a3@/x",
    "REDIS_URL": "unix:///canary-7a4",
    "AWS_SECRET_ACCESS_KEY": "canary-aws-7a5",
}
CHECKPOINTS = """
import os, signal, sys, time
def checkpoint(*_):
    open(os.environ["EVENSHARE_JOB_DIR"] + "/saved", "w").write("yes")
    sys.exit({code})
signal.signal(signal.SIGUSR1, checkpoint)
print("ready")
time.sleep(6000)
"""
# A program that ignores all signals and leaves a child in its own session.
STUBBORN = """
import os, signal, time
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
print("ready", flush=True)
time.sleep(6000)
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    with local_world(tmp_path / "jobs") as made:
        yield made


def outcome(report: Report) -> tuple[ReportState, int | None]:
    return report.state, report.exit_code


def age(entry: Path) -> None:
    """Make a token appear older than the longest wait for a claim."""
    os.utime(entry, (entry.stat().st_mtime - 60,) * 2)


class TestProgramEnd:
    @pytest.mark.parametrize("code", [0, 1, 3, 99, 255])
    def test_has_exit_code_of_program(self, world: LocalWorld, code: int) -> None:
        token = world.shell(f"exit {code}")
        assert outcome(world.ended(token)) == (FINISHED, code)

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR1])
    def test_signal_gives_128_plus_its_number(
        self, world: LocalWorld, number: signal.Signals
    ) -> None:
        token = world.shell(f"kill -{int(number)} $$; sleep 6000")
        assert outcome(world.ended(token)) == (FINISHED, 128 + number)

    @pytest.mark.parametrize(
        ("argv", "code", "words"),
        [
            (["/no/such/program"], 127, "No such file"),
            (["no-such-program"], 127, "No such file"),
            (["/etc/passwd"], 126, "Permission denied"),
            (["/etc"], 126, "Permission denied"),
            ([], 127, "no command was given"),
        ],
    )
    def test_program_that_cannot_start_logs_reason(
        self, world: LocalWorld, argv: list[str], code: int, words: str
    ) -> None:
        token = world.run(*argv)
        assert outcome(world.ended(token)) == (FINISHED, code)
        assert "cannot start" in world.log(token)
        assert words in world.log(token)

    def test_lies_between_start_and_now_in_pool_time(self, world: LocalWorld) -> None:
        before = world.now_us()
        report = world.ended(world.shell("sleep 0.2"))
        assert report.ended_us is not None
        assert before <= report.started_us
        assert report.started_us + 200_000 <= report.ended_us <= world.now_us()

    def test_is_not_reported_before_its_time(self, world: LocalWorld) -> None:
        before_us = world.now_us()
        token = world.shell("exit 0")
        world.ended(token)
        (report,) = world.executor.list(world.lab.pool.pk, before_us)
        assert report.state is RUNNING

    def test_leaves_no_child_processes(self, world: LocalWorld) -> None:
        token = world.shell("setsid sleep 6000 & sleep 6000 & exit 0")
        assert outcome(world.ended(token)) == (FINISHED, 0)
        eventually(lambda: not world.processes())


class TestLaunch:
    def test_twenty_concurrent_launches_start_one_process(self, world: LocalWorld) -> None:
        token = world.lease("/bin/sh", "-c", "echo $$ >> $EVENSHARE_JOB_DIR/starts; sleep 6000")
        launch = Launch(token, world.job(token), world.now_us())

        def attempt() -> None:
            LocalExecutor().launch([launch])
            connections.close_all()

        threads = [threading.Thread(target=attempt) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        record = world.shim(token)
        starts = (world.job_folder(token) / "starts").read_text().split()
        assert starts == [str(record["child"])]

    def test_job_of_killed_worker_is_adopted_by_next(self, world: LocalWorld) -> None:
        token = world.lease("/bin/sh", "-c", "echo x >> $EVENSHARE_JOB_DIR/starts; exec sleep 6000")
        worker = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("local_process.py"), world.root, token],
            stdout=subprocess.PIPE,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "portal.site.settings"},
        )
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"launched\n"
        worker.kill()
        worker.wait()
        before = world.listed()[token]
        assert before.state is RUNNING
        (again,) = world.launch(token)
        assert again.started_us == before.started_us
        assert (world.job_folder(token) / "starts").read_text() == "x\n"

    def test_launch_after_end_starts_nothing_and_reports_end(self, world: LocalWorld) -> None:
        token = world.shell("echo x >> $EVENSHARE_JOB_DIR/starts; exit 4")
        world.ended(token)
        for _ in range(2):
            (report,) = world.launch(token)
            assert outcome(report) == (FINISHED, 4)
            world.executor.forget([token])
        world.lab.pool.leases.update(state="ended")
        assert world.listed() == {}
        assert (world.job_folder(token) / "starts").read_text() == "x\n"

    def test_starts_in_folder_of_pool_or_job(self, world: LocalWorld, tmp_path: Path) -> None:
        own = world.shell("pwd")
        world.ended(own)
        assert world.log(own).strip() == str(world.job_folder(own))
        world.lab.pool.source_dir = str(tmp_path)
        world.lab.pool.save()
        there = world.shell("pwd")
        world.ended(there)
        assert world.log(there).strip() == str(tmp_path)

    def test_keeps_folders_private(self, world: LocalWorld) -> None:
        token = world.shell("mkdir made; exit 0")
        world.ended(token)
        for folder in (world.root, *world.job_folder(token).rglob("*")):
            assert stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0, folder

    def test_same_job_id_of_other_database_gets_own_folder(self, world: LocalWorld) -> None:
        token = world.shell("echo mine > $EVENSHARE_JOB_DIR/kept; exit 7")
        world.ended(token)
        (world.job_folder(token) / "uid").write_text("abcd")
        (report,) = world.launch(token)
        assert outcome(world.ended(token)) == (FINISHED, 7)
        assert report.token == token
        assert (world.root / f"{world.job(token)}.abcd" / "kept").exists()


class TestEnvironment:
    def test_has_job_variables_and_nothing_of_portal(
        self, world: LocalWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in CANARIES.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
        token = world.run(
            "python", "-c", "import os, time\nfor pair in os.environ.items():"
            " print('='.join(pair))\nprint('ready')\ntime.sleep(6000)",
            environment={"MINE": "a b", "EVENSHARE_LEASE": "77"},
        )  # fmt: skip
        world.says(token, "ready")
        lines = world.log(token).splitlines()
        told = dict(line.split("=", 1) for line in lines if "=" in line)
        job = world.job_folder(token)
        assert told["PATH"].split(":")[0] == str(Path(sys.executable).parent)
        expected = {
            "HOME": str(job),
            "MINE": "a b",
            "EVENSHARE_LEASE": "1",
            "EVENSHARE_JOB_DIR": str(job),
            "EVENSHARE_SLOTS": "0",
            "EVENSHARE_CHECKPOINT_SIGNAL": "SIGUSR1",
            "EVENSHARE_GRACE_S": "600",
            "EVENSHARE_PROGRESS": str(job / "progress.json"),
        }
        assert {key: told.get(key) for key in expected} == expected
        assert "CUDA_VISIBLE_DEVICES" not in told
        seen = world.log(token) + "".join(
            path.read_text() for path in world.folder(token).glob("*.json")
        )
        for pid in world.processes():
            for name in ("environ", "cmdline"):
                seen += Path(f"/proc/{pid}/{name}").read_bytes().decode()
        assert [word for word in CANARIES.values() if word in seen] == []

    def test_names_gpus_of_lease_by_index(self, world: LocalWorld) -> None:
        world.lab.gpu_type.name = "h200"
        world.lab.gpu_type.save()
        world.lease("true")
        token = world.shell('echo "$CUDA_DEVICE_ORDER:$CUDA_VISIBLE_DEVICES:$EVENSHARE_SLOTS"')
        world.ended(token)
        assert world.log(token) == "PCI_BUS_ID:1:1\n"


class TestStop:
    @pytest.mark.parametrize(("code", "state"), [(99, STOPPED), (1, STOPPED), (0, FINISHED)])
    def test_allows_checkpoint_within_grace(
        self, world: LocalWorld, code: int, state: ReportState
    ) -> None:
        token = world.python(CHECKPOINTS.format(code=code))
        world.says(token, "ready")
        world.stop(token, grace_s=6000)
        report = world.ended(token)
        assert outcome(report) == (state, 0 if state is FINISHED else None)
        assert (world.job_folder(token) / "saved").read_text() == "yes"

    def test_kills_stubborn_process_tree_after_grace(self, world: LocalWorld) -> None:
        token = world.python(STUBBORN)
        eventually(lambda: world.log(token).count("ready") == 2)
        assert len(world.processes()) == 3
        asked_us = world.now_us()
        world.stop(token, grace_s=1)
        report = world.ended(token)
        assert report.state is STOPPED
        assert report.ended_us is not None
        assert report.ended_us - asked_us >= 1_000_000
        eventually(lambda: not world.processes())
        assert "killed" in world.log(token)

    def test_repeated_stop_keeps_first_grace(self, world: LocalWorld) -> None:
        token = world.python(STUBBORN)
        world.says(token, "ready")
        world.stop(token, grace_s=1)
        world.stop(token, grace_s=6000)
        assert world.ended(token).state is STOPPED

    def test_wakes_suspended_program(self, world: LocalWorld) -> None:
        token = world.python(CHECKPOINTS.format(code=99))
        world.says(token, "ready")
        os.kill(world.shim(token)["child"], signal.SIGSTOP)
        world.stop(token)
        world.ended(token)
        assert (world.job_folder(token) / "saved").exists()

    def test_stop_before_launch_prevents_it_permanently(self, world: LocalWorld) -> None:
        token = world.lease("/bin/sh", "-c", "echo x >> $EVENSHARE_JOB_DIR/starts")
        (report,) = world.stop(token)
        assert report.state is STOPPED
        (late,) = world.launch(token)
        assert late.state is STOPPED
        assert not (world.job_folder(token) / "starts").exists()

    def test_reaches_program_of_lease_ended_in_database(self, world: LocalWorld) -> None:
        token = world.python(CHECKPOINTS.format(code=99))
        world.says(token, "ready")
        world.lab.pool.leases.update(state="ended")
        world.listed()
        assert world.ended(token).state is STOPPED


class TestKilledShim:
    def test_ends_its_program_and_is_reported_as_lost(self, world: LocalWorld) -> None:
        token = world.python(STUBBORN)
        eventually(lambda: world.log(token).count("ready") == 2)
        os.kill(world.shim(token)["pid"], signal.SIGKILL)
        report = world.ended(token)
        assert outcome(report) == (STOPPED, None)
        eventually(lambda: not world.processes())
        assert world.listed()[token].ended_us == report.ended_us

    def test_is_not_confused_with_process_of_same_pid(self, world: LocalWorld) -> None:
        token = world.shell("sleep 6000")
        record = world.shim(token)
        assert is_alive(record)
        assert start_of_process(record["pid"]) == record["start"]
        assert not is_alive({**record, "start": record["start"] + 1})
        assert not is_alive({**record, "boot": "another"})
        assert not is_alive({**record, "pid": 2**22 - 1})
        assert not is_alive({})

    def test_shim_without_claim_is_lost_after_timeout(self, world: LocalWorld) -> None:
        token = world.lease("true")
        lease = world.lab.pool.leases.get()
        world.executor._make(token, lease)
        assert world.listed()[token].state is ReportState.ACCEPTED
        age(world.root / "active" / token)
        assert world.listed()[token].state is STOPPED
        (late,) = world.launch(token)
        assert late.state is STOPPED

    def test_shim_with_claim_but_no_program_is_accepted(self, world: LocalWorld) -> None:
        token = world.lease("true")
        world.executor._make(token, world.lab.pool.leases.get())
        (world.folder(token) / "shim.json").write_text('{"pid": 1}')
        (report,) = world.launch(token)
        assert (report.token, report.state) == (token, ReportState.ACCEPTED)

    def test_shim_with_removed_folder_is_lost(self, world: LocalWorld) -> None:
        token = world.shell("sleep 6000")
        world.lab.pool.leases.update(state="running")
        world.job_folder(token).rename(world.root.with_name("gone"))
        age(world.root / "active" / token)
        assert world.ended(token).state is STOPPED
        assert not world.processes()


class TestJobsFolder:
    def test_missing_folder_raises_error_while_jobs_run(self, world: LocalWorld) -> None:
        token = world.shell("sleep 6000")
        world.lab.pool.leases.update(state="running")
        world.root.rename(world.root.with_name("gone"))
        for ask in (world.listed, lambda: world.launch(world.lease("true"))):
            with pytest.raises(ExecutorError, match="is gone, although jobs run: mount it again"):
                ask()
        assert not world.root.exists(), "asking makes none"
        (world.root / "active").mkdir(parents=True)
        assert token not in world.listed(), "given up: the reconciler takes it for lost"
        eventually(lambda: not world.processes())


class TestCurrentLease:
    def test_is_named_in_folder_of_job(self, world: LocalWorld) -> None:
        first = world.shell("exit 99")
        world.ended(first)
        job = world.lab.pool.jobs.get()
        world.lab.pool.leases.update(state="ended")
        second = world.run(job=job)
        assert second.endswith("-2")
        world.ended(second)
        assert (world.job_folder(first) / "lease").read_text().strip() == "2"

    def test_blocks_late_shim_of_earlier_lease(self, world: LocalWorld) -> None:
        token = world.lease("/bin/sh", "-c", "echo x >> $EVENSHARE_JOB_DIR/starts")
        job = world.job_folder(token)
        job.mkdir(parents=True)
        (job / "lease").write_text("2\n")
        world.launch(token)
        assert world.ended(token).state is STOPPED
        assert not (job / "starts").exists()
