"""A real Slurm cluster for tests, where Debian's packages of it are installed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from portal.demo.slurm.cluster import SlurmCluster
from portal.demo.slurm.packages import how_to_install, missing_packages


def require_slurm() -> None:
    """Skip, or fail where REQUIRE_ALL=1, unless all packages are there."""
    missing = missing_packages()
    if not missing:
        return
    reason = f"Slurm is not installed ({how_to_install(missing)})"
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Five nodes of four GPUs, for the tests of a module; it starts within a second or so.

    Who kills a part of it starts that again, or has a cluster of its own.
    """
    require_slurm()
    with SlurmCluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster
