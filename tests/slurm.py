"""A real Slurm cluster for tests, where Debian's packages of it are installed."""

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

# More jobs than a test has.
NUMBERS = 200
# On a busy machine a node may be silent for longer than a short SlurmdTimeout. A test says that a
# node is lost by `declare_down`, or takes a short one where Slurm is to find out by itself.
SILENT_S = int(PATIENCE_S)
# States of a node that takes jobs, or that one has not quite left.
AT_REST = ("idle", "comp", "mix", "alloc", "plan")
_tests = count(1)


def require_slurm() -> None:
    """Skip, or fail where REQUIRE_ALL=1, unless all packages are there."""
    missing = missing_packages()
    if not missing:
        return
    reason = f"Slurm is not installed ({how_to_install(missing)})"
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def kill_node(cluster: SlurmCluster, name: str, *, with_jobs: bool = True) -> None:
    """Have a node vanish; sinfo tells it within twice SlurmdTimeout.

    Without its jobs only slurmd dies, as where a network is cut: what ran there runs on.
    """
    cluster._kill(name)
    if with_jobs:
        left = kill_processes(cluster.conf, name)
        assert not left, f"processes of {name} that cannot be killed"


def as_made(*submissions: Submission) -> dict[str, Callable[[], Submission]]:
    """Submissions that are made when their turn comes, by token."""
    return {one.token: partial(_same, one) for one in submissions}


def _same(submission: Submission) -> Submission:
    return submission


def number_jobs_anew() -> None:
    """Give jobs numbers that no earlier test's had: a cluster remembers those."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT max(nextval(pg_get_serial_sequence('scheduling_job', 'id')))"
            " FROM generate_series(1, %s)",
            [NUMBERS * next(_tests)],
        )


@contextmanager
def own_slurm(folder: Path, **settings: Any) -> Iterator[SlurmCluster]:
    """A cluster that a test may break; tests' own folders are too deep for sockets."""
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
    """Tell Slurm what it would find out by itself once a node's SlurmdTimeout is over."""
    cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=silent")


def end_quickly(cluster: SlurmCluster) -> None:
    """Kill the controller: its cluster's end then kills jobs, and waits for none to be cancelled.

    It would wait for long for those of a node that is gone.
    """
    with suppress(KeyError):  # It was stopped by the test.
        cluster.kill_controller()


class Kept(Generic[T]):
    """Something that tests share for as long as they leave it as it was."""

    def __init__(self, make: Callable[[], AbstractContextManager[T]]) -> None:
        self._make = make
        self._stack = ExitStack()
        self._made: list[T] = []

    def get(self) -> T:
        """What is there; it is made unless it is."""
        if not self._made:
            self._made.append(self._stack.enter_context(self._make()))
        return self._made[0]

    def end(self) -> None:
        self._made.clear()
        self._stack.close()


@contextmanager
def left_as_it_was(cluster: SlurmCluster, kept: Kept[Any]) -> Iterator[None]:
    """Fail a test that leaves something behind; the next one then gets another cluster."""
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
    """What is not as it was: daemons, jobs, partitions, nodes, processes."""
    if dead := cluster.dead_daemons():
        return [f"{name} does not run" for name in dead]
    going = ("--states=PENDING,RUNNING,SUSPENDED", "--format=job %i %j %T")
    left = cluster.run("squeue", "--noheader", *going).splitlines()
    if left:
        return left
    # What has ended leaves its nodes by itself; what drains them stays.
    eventually(lambda: not processes(cluster.conf))
    return sorted(set(nodes_of(cluster)) ^ set(before))


def nodes_of(cluster: SlurmCluster) -> list[str]:
    """Each node of each partition, and whether both take jobs."""
    rows = cluster.run("sinfo", "--noheader", "--Node", "--format=%N %P %a %T").splitlines()
    found = []
    for row in rows:
        name, partition, available, state = row.split()
        state = "takes jobs" if state.startswith(AT_REST) else state
        found.append(f"{name} in {partition}, which is {available}: {state}")
    return found


@pytest.fixture(scope="session")
def kept_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept[SlurmCluster]]:
    """A cluster for all tests of a process that break nothing."""
    kept = Kept(lambda: own_slurm(tmp_path_factory.mktemp("slurm")))
    yield kept
    kept.end()


@pytest.fixture
def slurm_cluster(kept_slurm: Kept[SlurmCluster]) -> Iterator[SlurmCluster]:
    """Five nodes of four GPUs, which other tests have too: a test that leaves something fails.

    Who kills a part of it starts that again, or has a cluster of its own.
    """
    cluster = kept_slurm.get()
    with left_as_it_was(cluster, kept_slurm):
        yield cluster
