"""A real Slurm cluster for tests, if Debian's packages are installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

import pytest
from django.db import connection

from portal.demo.slurm.cluster import SlurmCluster
from portal.demo.slurm.packages import how_to_install, missing_packages
from portal.demo.slurm.processes import kill_processes, processes
from scheduling.engine.executors.slurm.commands import Submission
from tests.tools import PATIENCE_S, eventually

T = TypeVar("T")

# Job numbers for each test, more than any test uses.
NUMBERS = 200
# On a busy machine a node may be silent for longer than a short SlurmdTimeout. A test marks a lost
# node with `declare_down`, or uses a short timeout if Slurm itself must detect the loss.
SILENT_S = int(PATIENCE_S)
# States of a node that accepts jobs, or that is still cleaning up after one.
AT_REST = ("idle", "comp", "mix", "alloc", "plan")
_tests = count(1)


def require_slurm() -> None:
    """Skip the test unless all packages are installed; with REQUIRE_ALL=1, fail instead."""
    missing = missing_packages()
    if not missing:
        return
    reason = f"Slurm is not installed ({how_to_install(missing)})"
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def kill_node(cluster: SlurmCluster, name: str, *, with_jobs: bool = True) -> None:
    """Make a node disappear; sinfo reports it within twice SlurmdTimeout.

    If not `with_jobs`, only slurmd ends, as in a network partition, and the jobs continue.
    """
    cluster._kill(name)
    if with_jobs:
        left = kill_processes(cluster.conf, name)
        assert not left, f"processes of {name} that cannot be killed"


def as_made(*submissions: Submission) -> dict[str, Callable[[], Submission]]:
    """Return, by token, functions that return the submissions."""
    return {one.token: partial(_same, one) for one in submissions}


def _same(submission: Submission) -> Submission:
    return submission


def number_jobs_anew() -> None:
    """Give jobs numbers that no earlier test used, because a cluster remembers job numbers."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT max(nextval(pg_get_serial_sequence('scheduling_job', 'id')))"
            " FROM generate_series(1, %s)",
            [NUMBERS * next(_tests)],
        )


@contextmanager
def own_slurm(folder: Path, **settings: Any) -> Iterator[SlurmCluster]:
    """Yield a cluster that a test may break.

    The sockets are in a separate folder, because the paths of tests are too long for sockets.
    """
    require_slurm()
    with (
        TemporaryDirectory(prefix="slurm-") as sockets,
        SlurmCluster(
            folder, sockets=Path(sockets), **{"slurmd_timeout_s": SILENT_S, **settings}
        ) as cluster,
    ):
        try:
            yield cluster
        finally:
            end_quickly(cluster)


def declare_down(cluster: SlurmCluster, node: str) -> None:
    """Mark a node as down, as Slurm would after its SlurmdTimeout."""
    cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=silent")


def end_quickly(cluster: SlurmCluster) -> None:
    """Kill the controller, so that the cluster's shutdown kills jobs instead of cancelling them.

    To cancel the jobs of a lost node would take long.
    """
    with suppress(KeyError):  # The test may have stopped the controller already.
        cluster.kill_controller()


class Kept(Generic[T]):
    """A resource that tests share as long as they leave it unchanged."""

    def __init__(self, make: Callable[[], AbstractContextManager[T]]) -> None:
        self._make = make
        self._stack = ExitStack()
        self._made: list[T] = []

    def get(self) -> T:
        """Return the resource, which is made if necessary."""
        if not self._made:
            self._made.append(self._stack.enter_context(self._make()))
        return self._made[0]

    def end(self) -> None:
        self._made.clear()
        self._stack.close()


@contextmanager
def left_as_it_was(cluster: SlurmCluster, kept: Kept[Any]) -> Iterator[None]:
    """Fail a test that changes the cluster; the next test then gets another cluster."""
    before = nodes_of(cluster)
    yield
    try:
        left = left_behind(cluster, before)
    except BaseException:
        kept.end()
        raise
    if left:
        kept.end()
        pytest.fail(f"the test leaves in the cluster that all share: {'; '.join(left)}")


def left_behind(cluster: SlurmCluster, before: list[str]) -> list[str]:
    """Return what a test changed: daemons, jobs, partitions, nodes or processes."""
    if dead := cluster.dead_daemons():
        return [f"{name} does not run" for name in dead]
    going = ("--states=PENDING,RUNNING,SUSPENDED", "--format=job %i %j %T")
    left = cluster.run("squeue", "--noheader", *going).splitlines()
    if left:
        return left
    # Ended jobs leave their nodes by themselves, but drains stay.
    eventually(lambda: not processes(cluster.conf))
    return sorted(set(nodes_of(cluster)) ^ set(before))


def nodes_of(cluster: SlurmCluster) -> list[str]:
    """Return each node of each partition, and whether it accepts jobs."""
    rows = cluster.run("sinfo", "--noheader", "--Node", "--format=%N %P %a %T").splitlines()
    found = []
    for row in rows:
        name, partition, available, state = row.split()
        state = "takes jobs" if state.startswith(AT_REST) else state
        found.append(f"{name} in {partition}, which is {available}: {state}")
    return found


@pytest.fixture(scope="session")
def kept_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept[SlurmCluster]]:
    """Yield a cluster for all tests of a process that do not break it."""
    kept = Kept(lambda: own_slurm(tmp_path_factory.mktemp("slurm")))
    yield kept
    kept.end()


@pytest.fixture
def slurm_cluster(kept_slurm: Kept[SlurmCluster]) -> Iterator[SlurmCluster]:
    """Yield five nodes of four GPUs, shared with other tests; a test that changes them fails.

    A test that kills a part of the cluster restarts that part, or uses its own cluster.
    """
    cluster = kept_slurm.get()
    with left_as_it_was(cluster, kept_slurm):
        yield cluster
