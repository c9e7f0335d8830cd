"""Test `make run` with a real job, which never outlives the portal, and the portal's next start.

`test_demo_pool.py` kills the portal's first process.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.local_world import processes_below
from tests.integration.tree import RunningTree, migrated
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
        submitted_at=read_clock(pool.pk).pool_at, gpus=2,
        command=["python", "-u", "-c", {program!r}],
    )
print("job", job.pk)
"""
# A program that records a request to stop, and leaves a child in its own session.
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


@dataclass
class Portal:
    """A data folder, and the process tree that runs on it or ran on it last."""

    data: Path
    tree: RunningTree | None = None

    def start(self) -> RunningTree:
        """Return the running tree; start one if there is none."""
        if self.tree is None or self.tree.ended():
            self.tree = RunningTree(self.data, free_port())
            self.tree.wait_until_ready()
            self.tree.pause_all_pools_but("local")
        return self.tree


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    """Yield the portal that all tests share; each test continues after the previous one."""
    made = Portal(migrated(tmp_path_factory.mktemp("tree") / "data"))
    yield made
    if made.tree is not None:
        made.tree.end()


def submit(tree: RunningTree) -> Path:
    """Submit a job and wait until it runs; return its folder."""
    others = set(processes_below(tree.data / "jobs"))
    said = tree.manage("shell", "-v", "0", "-c", SUBMIT.format(program=PROGRAM))
    folder = tree.data / "jobs" / said.split()[-1]
    eventually((folder / "ready").exists)
    # The shim, the program, and the program's child.
    assert len(set(processes_below(tree.data / "jobs")) - others) == 3
    return folder


class TestPortalShutdown:
    def test_ctrl_c_lets_jobs_checkpoint_and_keeps_all_data(self, portal: Portal) -> None:
        tree = portal.start()
        folder = submit(tree)
        tree.query("COMMENT ON DATABASE evenshare IS 'kept'", role="postgres")
        assert tree.interrupt() == 0
        assert processes_below(tree.data / "jobs") == []
        assert tree.processes() == {}
        assert (folder / "saved").exists()
        assert '"asked": "shutdown"' in (folder / "leases/1/exit.json").read_text()
        about = "SELECT shobj_description(oid, 'pg_database') FROM pg_database"
        assert portal.start().query(f"{about} WHERE datname = 'evenshare'") == "kept"

    def test_kill_9_of_all_processes_leaves_no_job(self, portal: Portal) -> None:
        tree = portal.start()
        submit(tree)
        jobs = set(processes_below(tree.data / "jobs"))
        for pid in [tree.process.pid, *(set(tree.processes()) - jobs)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        tree.process.wait(PATIENCE_S)
        eventually(lambda: not processes_below(tree.data / "jobs"))
