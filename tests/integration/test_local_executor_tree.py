"""`make run` with a real job: it starts within a second or so, and never outlives the portal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.local_world import processes_below
from tests.integration.tree import ROOT, RunningTree
from tests.ports import free_port
from tests.tools import PATIENCE_S, eventually

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the executor finds processes in /proc"
)

SUBMIT = """
from scheduling.engine.clock import read_clock
from scheduling.models import Job, Pool
from tenants.models import Tenant
from tenants.scopes import site_scope
pool = Pool.objects.get(name="local")
with site_scope():
    job = Job.objects.create(
        pool=pool, tenant=Tenant.objects.get(slug="vc-7f04ca"), name="sleeper",
        submitted_at=read_clock(pool.pk).pool_at, gpus=2, gpus_min=2, gpus_max=2,
        command=["python", "-u", "-c", {program!r}],
    )
print("job", job.pk)
"""
# Writes down that it was asked to stop; leaves a child in a session of its own.
PROGRAM = """
import os, signal, sys, time
def checkpoint(*_):
    open(os.environ["EVENSHARE_JOB_DIR"] + "/saved", "w").write("yes")
    sys.exit(99)
signal.signal(signal.SIGUSR1, checkpoint)
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    time.sleep(6000)
open(os.environ["EVENSHARE_JOB_DIR"] + "/ready", "w").write("yes")
time.sleep(6000)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[RunningTree]:
    made = RunningTree(tmp_path / "data", free_port())
    try:
        made.wait_until_ready()
        yield made
    finally:
        made.end()


def submit(tree: RunningTree) -> Path:
    """Submit a job and wait until it runs; return its folder."""
    away = ("DATABASE_URL", "OWNER_DATABASE_URL", "REDIS_URL")
    inherited = {key: value for key, value in os.environ.items() if key not in away}
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "-v", "0", "-c", SUBMIT.format(program=PROGRAM)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**inherited, "EVENSHARE_DATA_DIR": str(tree.data)},
    )
    folder = tree.data / "jobs" / done.stdout.split()[-1]
    eventually((folder / "ready").exists)
    # Shim, program, and its child.
    assert len(processes_below(tree.data / "jobs")) == 3
    return folder


class TestTheEndOfThePortal:
    def test_by_ctrl_c_lets_jobs_checkpoint_and_leaves_none(self, tree: RunningTree) -> None:
        folder = submit(tree)
        assert tree.interrupt() == 0
        assert processes_below(tree.data / "jobs") == []
        assert (folder / "saved").exists()
        assert '"asked": "shutdown"' in (folder / "leases/1/exit.json").read_text()

    def test_by_kill_9_lets_jobs_checkpoint_and_leaves_none(self, tree: RunningTree) -> None:
        folder = submit(tree)
        tree.process.kill()
        tree.process.wait(PATIENCE_S)
        eventually(lambda: not processes_below(tree.data / "jobs"))
        assert (folder / "saved").exists()

    def test_by_kill_9_of_everything_leaves_none(self, tree: RunningTree) -> None:
        submit(tree)
        jobs = set(processes_below(tree.data / "jobs"))
        for pid in [tree.process.pid, *(set(tree.processes()) - jobs)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        tree.process.wait(PATIENCE_S)
        eventually(lambda: not processes_below(tree.data / "jobs"))
