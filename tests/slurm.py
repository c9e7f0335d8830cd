"""A real Slurm cluster for tests, where Debian's packages of it are installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from portal.demo.slurm.cluster import SlurmCluster
from portal.demo.slurm.packages import how_to_install, missing_packages
from scheduling.engine.executors.slurm.commands import Submission


def require_slurm() -> None:
    """Skip, or fail where REQUIRE_ALL=1, unless all packages are there."""
    missing = missing_packages()
    if not missing:
        return
    reason = f"Slurm is not installed ({how_to_install(missing)})"
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def as_made(*submissions: Submission) -> dict[str, Callable[[], Submission]]:
    """Submissions that are made when their turn comes, by token."""
    return {one.token: partial(_same, one) for one in submissions}


def _same(submission: Submission) -> Submission:
    return submission


@contextmanager
def own_slurm(folder: Path, **settings: Any) -> Iterator[SlurmCluster]:
    """A cluster that a test may break; tests' own folders are too deep for sockets."""
    require_slurm()
    with (
        TemporaryDirectory(prefix="slurm-") as sockets,
        SlurmCluster(folder, sockets=Path(sockets), **settings) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="module")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Five nodes of four GPUs, for the tests of a module; it starts within a second or so.

    Who kills a part of it starts that again, or has a cluster of its own.
    """
    with own_slurm(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster
