"""Test that `check_slurm POOL` compares the portal's data about the pool with a real cluster."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.demo.slurm.cluster import SlurmCluster
from scheduling.models import Lease, Node, Pool, PoolClock
from scheduling.services.node_sync import pools_beside
from tenants.models import User
from tests.factories import cluster
from tests.integration.slurm_world import SlurmWorld, slurm_world
from tests.integration.test_slurm_check import check, jobs
from tests.integration.test_slurm_nodes import names, sync
from tests.tools import eventually

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def world(tmp_path: Path, slurm_cluster: SlurmCluster) -> Iterator[SlurmWorld]:
    with slurm_world(tmp_path / "jobs", slurm_cluster) as made:
        yield made


def second_pool(world: SlurmWorld, conf: Path, **nodes: int) -> Pool:
    """Create another pool on the cluster of `conf`."""
    options = {"conf": str(conf), "partition": world.slurm.partition}
    pool = cluster({"x": 0}, nodes=len(nodes), executor="slurm", executor_options=options).pool
    for row, name in zip(Node.objects.filter(pool=pool), nodes, strict=True):
        Node.objects.filter(pk=row.pk).update(name=name.replace("_", "-"))
    return pool


def lines_on(text: str, about: str) -> list[str]:
    return [line for line in text.splitlines() if line[9:].startswith(f"{about}: ")]


class TestJobsOfPartition:
    def test_names_jobs_running_after_their_lease(self, world: SlurmWorld) -> None:
        lives, ended = world.shell("exec sleep 600"), world.shell("exec sleep 600")
        about = "jobs that run on"
        (line,) = lines_on(check(world.lab.pool.name)[0], about)
        assert line == f"ok       {about}: none without a lease"
        queued = world.queued(ended)
        assert queued is not None
        job, number = (int(part) for part in ended.split("-")[1:])
        lease = Lease.objects.filter(job_id=job, number=number)
        granted = lease.get().granted_at
        lease.update(state="ended", ended_at=granted, started_at=granted)
        text, status = check(world.lab.pool.name)
        (line,) = lines_on(text, about)
        assert line.startswith(f"warning  {about}: 1 job of leases that have ended")
        assert f": {queued.job_id} ({ended}). " in line
        assert line.endswith(f": scancel {queued.job_id}")
        assert lives not in line
        assert status == 0
        world.slurm.run(*line.rpartition(": ")[2].split())
        eventually(lambda: lines_on(check(world.lab.pool.name)[0], about)[0].startswith("ok"))

    def test_jobs_submitted_by_hand_count_as_others(self, world: SlurmWorld) -> None:
        world.shell("exec sleep 600")
        about = "jobs of others"
        (line,) = lines_on(check(world.lab.pool.name)[0], about)
        assert line == f"ok       {about}: none in the partition"
        ids = ["--parsable", "--output=/dev/null", "--wrap", "sleep 600"]
        job = world.slurm.run("sbatch", *ids).strip()
        try:
            text, status = check(world.lab.pool.name)
            (line,) = lines_on(text, about)
            assert line.startswith(f"error    {about}: 1 job of ")
            assert "(by hand)" in line
            assert status == 1
        finally:
            world.slurm.run("scancel", job)
            eventually(lambda: job not in jobs(world.slurm))


class TestTwoPoolsOnOneCluster:
    def test_shared_nodes_are_an_error_naming_both_pools(
        self, world: SlurmWorld, tmp_path: Path
    ) -> None:
        about = "nodes of other pools"
        first = world.lab.pool.name
        assert lines_on(check(first)[0], about) == [f"ok       {about}: no node of this pool"]
        # The same cluster through another path.
        conf = Path(shutil.copy(world.slurm.conf, tmp_path / "slurm.conf"))
        second = second_pool(world, conf)
        text, status = check(first)
        (line,) = lines_on(text, about)
        assert line.startswith(
            f"error    {about}: node-1, node-2, node-3, node-4, node-5: the pools {first} and"
            f" {second.name} would both"
        )
        assert status == 1
        PoolClock.objects.filter(pool=second).update(paused=True)
        text, status = check(first)
        assert lines_on(text, about)[0].startswith(f"warning  {about}: node-1")
        assert status == 0

    def test_disjoint_partitions_share_nothing(self, world: SlurmWorld) -> None:
        first = world.lab.pool
        partition = ("scontrol", "create", "PartitionName=rest", "Nodes=node-[3-5]")
        world.slurm.run(*partition)
        second = second_pool(world, world.slurm.conf)
        second.executor_options["partition"] = "rest"
        second.save()
        world.slurm.run("scontrol", "update", "PartitionName=gpu", "Nodes=node-[1-2]")
        try:
            line = "ok       nodes of other pools: no node of this pool"
            assert line in check(first.name)[0]
        finally:
            world.slurm.run("scontrol", "update", "PartitionName=gpu", "Nodes=ALL")
            world.slurm.run("scontrol", "delete", "PartitionName=rest")

    def test_unreachable_cluster_is_reported_as_unknown(
        self, world: SlurmWorld, tmp_path: Path
    ) -> None:
        conf = tmp_path / "slurm.conf"
        conf.write_text("# Nothing that the tools can read: they refuse at once.\n")
        second_pool(world, conf)
        text, _ = check(world.lab.pool.name)
        (line,) = lines_on(text, "nodes of other pools")
        assert line.startswith("warning ")
        assert "whether the pool pool-2 shares them: scontrol: " in line


class TestUsersOfPool:
    def test_raise_error_if_other_pool_has_no_users(self, world: SlurmWorld) -> None:
        about = "users of other pools"
        first = world.lab.pool
        second = second_pool(world, world.slurm.conf)
        assert lines_on(check(first.name)[0], about) == []
        users = {**first.executor_options, "users": {"a": "games"}}
        Pool.objects.filter(pk=first.pk).update(executor_options=users)
        (line,) = lines_on(check(first.name)[0], about)
        assert line.startswith(f"error    {about}: jobs of {second.name} run as the portal's user")
        PoolClock.objects.filter(pool=second).update(paused=True)
        assert lines_on(check(first.name)[0], about) == []


class TestSyncNodes:
    def test_skips_node_of_other_pool_on_same_cluster(
        self, world: SlurmWorld, tmp_path: Path
    ) -> None:
        User.objects.create(username="otto", site_role=User.SiteRole.OPERATOR)
        conf = Path(shutil.copy(world.slurm.conf, tmp_path / "slurm.conf"))
        second = second_pool(world, conf, node_5=4)
        first = world.lab.pool
        _, complaints = sync(first, "--user", "otto")
        why = (
            "! node-5: it is a node of the pool pool-2, whose cluster is the same or does not"
            " answer. Remove it there first, or pause that pool: each pool would undo the other's"
            " drains"
        )
        assert complaints == [why]
        assert names(first) == [f"node-{number}" for number in range(1, 5)]
        _, complaints = sync(second, "--dry-run")
        held = [
            line.partition(":")[0] for line in complaints if "is a node of the pool pool-1" in line
        ]
        assert held == [f"! node-{number}" for number in range(1, 5)]
        # A paused pool reads no node states.
        for fields in ({"paused": True}, {"paused": False}):
            PoolClock.objects.filter(pool=second).update(**fields)
            assert bool(pools_beside(first)) is not fields["paused"]
        # A pool whose cluster does not answer may have the same cluster.
        conf.write_text("# Nothing that the tools can read: they refuse at once.\n")
        assert pools_beside(first) == [second]
        assert sync(first, "--user", "otto")[1] == [why]
        assert pools_beside(second) == [first]
