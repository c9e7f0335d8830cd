"""Test the nodes of a real Slurm: `sync_nodes` finds them, states are synchronised both ways."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine import node_states
from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.node_source import EngineNode
from scheduling.engine.executors.slurm.executor import SlurmExecutor
from scheduling.models import LeaseSlot, Node, Pool, PriceSetting
from scheduling.services.node_sync import plan_node_sync, sync_nodes
from scheduling.services.nodes import drain_node, resume_node
from tenants.audit import Actor
from tenants.models import AuditRecord, User
from tests.factories import cluster
from tests.integration.slurm_world import SlurmWorld, own_slurm_world, slurm_world
from tests.slurm import kill_node
from tests.tools import eventually

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def actor(committed_db: str) -> Actor:
    assert committed_db
    return Actor(User.objects.create(username="otto", site_role=User.SiteRole.OPERATOR))


@pytest.fixture
def world(tmp_path: Path, slurm_cluster: SlurmCluster) -> Iterator[SlurmWorld]:
    with slurm_world(tmp_path / "jobs", slurm_cluster) as made:
        yield made


@pytest.fixture
def own_world(tmp_path: Path) -> Iterator[SlurmWorld]:
    with own_slurm_world(tmp_path, slurmd_timeout_s=4) as made:
        yield made


@pytest.fixture
def _every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_states, "LOOK_S", 0)


def sync(pool: Pool, *options: str) -> tuple[list[str], list[str]]:
    """Run the command; return its output and its error output."""
    out, err = io.StringIO(), io.StringIO()
    call_command("sync_nodes", pool.name, *options, stdout=out, stderr=err)
    return out.getvalue().splitlines(), err.getvalue().splitlines()


def names(pool: Pool, **wanted: object) -> list[str]:
    rows = Node.objects.filter(pool=pool, **wanted).order_by("name")
    return list(rows.values_list("name", flat=True))


@pytest.mark.usefixtures("actor")
class TestPartitionNodes:
    def test_are_added_once_with_their_gpus(self, world: SlurmWorld) -> None:
        pool = world.lab.pool
        lines, complaints = sync(pool, "--dry-run")
        assert lines == [
            "~ node-1: 0 -> 64 CPUs, 0 -> 64000 MB of memory",
            "~ node-2: 0 -> 64 CPUs, 0 -> 64000 MB of memory",
            "+ node-3: v100, 4 GPUs, 64 CPUs, 64000 MB of memory",
            "+ node-4: v100, 4 GPUs, 64 CPUs, 64000 MB of memory",
            "+ node-5: k80, 4 GPUs, 64 CPUs, 64000 MB of memory",
            "nothing written: use --user NAME instead of --dry-run",
        ]
        assert complaints == []
        assert names(pool) == ["node-1", "node-2"]
        assert sync(pool, "--user", "otto")[0] == lines[:-1]
        assert names(pool, gpus=4, cpus=64, memory_mb=64_000) == [f"node-{n}" for n in range(1, 6)]
        assert set(
            PriceSetting.objects.filter(pool=pool).values_list("gpu_type__name", flat=True)
        ) >= {"a100", "v100", "k80"}
        actions = AuditRecord.objects.order_by("id").values_list("action", flat=True)
        assert list(actions) == ["node.changed"] * 2 + ["node.added"] * 3
        assert sync(pool, "--user", "otto") == (["nothing to change"], [])
        assert AuditRecord.objects.count() == 5

    def test_removed_nodes_are_drained_once(self, world: SlurmWorld) -> None:
        pool = world.lab.pool
        sync(pool, "--user", "otto")
        world.slurm.run("scontrol", "update", "PartitionName=gpu", "Nodes=node-[1-4]")
        try:
            assert sync(pool, "--user", "otto")[0] == [
                "- node-5: drained: its engine no longer has it"
            ]
            assert sync(pool, "--user", "otto")[0] == ["nothing to change"]
            assert names(pool, state="drained") == ["node-5"]
            assert AuditRecord.objects.latest("id").action == "node.drained"
        finally:
            world.slurm.run("scontrol", "update", "PartitionName=gpu", "Nodes=ALL")

    def test_type_can_have_other_name_in_portal(self, world: SlurmWorld) -> None:
        pool = world.lab.pool
        pool.executor_options = {**pool.executor_options, "gres_types": {"volta": "v100"}}
        pool.save()
        sync(pool, "--user", "otto")
        assert names(pool, gpu_type__name="volta") == ["node-3", "node-4"]


class TestSyncNodes:
    def test_explains_why_it_refuses(
        self,
        world: SlurmWorld,
        actor: Actor,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        pool = world.lab.pool
        with pytest.raises(CommandError, match="no pool nowhere"):
            call_command("sync_nodes", "nowhere", "--dry-run")
        with pytest.raises(CommandError, match="--user"):
            sync(pool)
        User.objects.create(username="guest")
        with pytest.raises(CommandError, match="guest is not an operator"):
            sync(pool, "--user", "guest")
        right = pool.executor_options
        for wrong, why in (
            ({"partition": "nowhere"}, "partition nowhere does not exist"),
            ({"partition": ""}, "executor_options.*partition"),
        ):
            pool.executor_options = {**right, **wrong}
            pool.save()
            with pytest.raises(CommandError, match=why):
                sync(pool, "--user", actor.user.username)
        pool.executor_options = right
        pool.save()
        with monkeypatch.context() as without:
            without.setenv("PATH", str(tmp_path))
            with pytest.raises(CommandError, match="not installed"):
                sync(pool, "--dry-run")
        pool.executor = "virtual"
        pool.save()
        with pytest.raises(CommandError, match="no own list of nodes"):
            sync(pool, "--dry-run")
        assert names(pool) == ["node-1", "node-2"]

    def test_skips_and_names_nodes_that_do_not_match(self, actor: Actor) -> None:
        lab = cluster({"a": 4}, nodes=2)
        there = [
            EngineNode("n0000", "v100", 4),
            EngineNode("n0001", "a100", 4),
            EngineNode("Gpu_01.site", "v100", 4),
            EngineNode("n3", "A100_80GB", 4),
            EngineNode("n4", unfit="it has no GPUs"),
            EngineNode("n5", "v100", 5000),
            EngineNode("n6", "v100", 8),
        ]
        changes, left = sync_nodes(actor=actor, pool=lab.pool, there=there)
        assert [(one.kind, one.name) for one in changes] == [("added", "n6")]
        reasons = dict(left)
        assert set(reasons) == {"n0001", "Gpu_01.site", "n3", "n4", "n5"}
        assert "v100 here and a100 there" in reasons["n0001"]
        assert "gres_types" in reasons["n3"]
        assert names(lab.pool) == ["n0000", "n0001", "n6"]

    def test_keeps_gpus_that_leases_hold(self, actor: Actor) -> None:
        lab = cluster({"a": 4}, nodes=1, policy="ltgf")
        lab.submit("a", 3, 60)
        lab.round()
        assert LeaseSlot.objects.filter(holding=True).count() == 3
        there = [EngineNode("n0000", "v100", 2, 16)]
        changes, left = sync_nodes(actor=actor, pool=lab.pool, there=there)
        assert left == [("n0000", "leases hold 3 of its GPUs, and it has 2 there")]
        assert (changes[0].after, names(lab.pool, gpus=4, cpus=16)) == (
            {"cpus": 16},
            ["n0000"],
        )
        there = [EngineNode("n0000", "v100", 3, 16)]
        assert [one.after for one in plan_node_sync(lab.pool, there)[0]] == [{"gpus": 3}]


@pytest.mark.usefixtures("_every_round")
class TestNodeDrainedBySlurm:
    def test_takes_no_lease_until_slurm_resumes_it(self, world: SlurmWorld) -> None:
        try:
            world.slurm.run(
                "scontrol", "update", "NodeName=node-1", "State=DRAIN", "Reason=bad disk"
            )
            world.lab.round(after_s=2)
            node = Node.objects.get(pool=world.lab.pool, name="node-1")
            assert (node.effective_state, node.state) == ("drained", "up")
            assert node.engine_reason == "by Slurm: bad disk"
            assert names(world.lab.pool, effective_state="up") == ["node-2"]
        finally:
            world.slurm.run("scontrol", "update", "NodeName=node-1", "State=RESUME")
        eventually(lambda: taken(world) == ["node-1", "node-2"])

    def test_stays_drained_after_drain_and_resume_in_portal(
        self, world: SlurmWorld, actor: Actor
    ) -> None:
        pool = world.lab.pool
        try:
            world.slurm.run("scontrol", "update", "NodeName=node-1", "State=DRAIN", "Reason=theirs")
            drain_node(actor=actor, pool=pool, name="node-1", reason="ours")
            world.lab.round(after_s=2)
            resume_node(actor=actor, pool=pool, name="node-1")
            world.lab.round(after_s=2)
            assert world.slurm.node_states()["node-1"] == "drained"
            assert names(pool, effective_state="up") == ["node-2"]
        finally:
            world.slurm.run("scontrol", "update", "NodeName=node-1", "State=RESUME")
        eventually(lambda: world.slurm.node_states()["node-1"] == "idle")


@pytest.mark.usefixtures("_every_round")
class TestNodeDrainedByOperator:
    def test_is_drained_in_slurm_with_reason_until_resumed(
        self, world: SlurmWorld, actor: Actor
    ) -> None:
        pool = world.lab.pool
        drain_node(actor=actor, pool=pool, name="node-2", reason='two "fans" | it\'s\nloud')
        world.lab.round(after_s=2)
        assert world.slurm.node_states()["node-2"] == "drained"
        said = world.slurm.run("sinfo", "--noheader", "--nodes=node-2", "--format=%E").strip()
        assert said == "evenshare: two 'fans' | it's loud"
        world.lab.round(after_s=2)
        node = Node.objects.get(pool=pool, name="node-2")
        assert (node.engine_state, node.engine_reason, node.engine_trouble) == ("up", "", "")
        resume_node(actor=actor, pool=pool, name="node-2")
        world.lab.round(after_s=2)
        eventually(lambda: world.slurm.node_states()["node-2"] == "idle")
        eventually(lambda: taken(world) == ["node-1", "node-2"])

    def test_drain_of_unknown_node_raises_error(self, world: SlurmWorld) -> None:
        executor = SlurmExecutor()
        with pytest.raises(ExecutorError, match="Invalid node name"):
            executor.drain(world.lab.pool.pk, {"node-9": "fan"})


@pytest.mark.usefixtures("_every_round")
class TestMissingNode:
    def test_is_lost_and_used_again_after_return(self, own_world: SlurmWorld) -> None:
        kill_node(own_world.slurm, "node-1")
        eventually(lambda: taken(own_world) == ["node-2"])
        eventually(lambda: own_world.slurm.node_states()["node-1"].startswith("down"))
        own_world.lab.round(after_s=2)
        node = Node.objects.get(pool=own_world.lab.pool, name="node-1")
        assert (node.state, node.effective_state) == ("up", "lost")
        assert node.engine_reason.casefold() == "by slurm: not responding"
        own_world.slurm.start_daemon("node-1")
        eventually(lambda: taken(own_world) == ["node-1", "node-2"])


def taken(world: SlurmWorld) -> list[str]:
    """Return the nodes that get leases in one more round."""
    world.lab.round(after_s=2)
    return names(world.lab.pool, effective_state="up")


class TestSlurmAccount:
    def test_is_set_by_tenant_and_not_by_job(
        self, world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = world.lab.pool
        pool.executor_options = {
            **pool.executor_options, "account": "site", "accounts": {"a": "physics"},
        }  # fmt: skip
        pool.save()
        wishes = {"SBATCH_ACCOUNT": "evil", "SLURM_ACCOUNT": "evil", "SBATCH_UID": "1"}
        for key, value in wishes.items():
            monkeypatch.setenv(key, value)
        job = world.lab.submit(
            "a", 1, 60, environment=wishes,
            command=["/bin/sleep", "3600", "--account=evil", "--uid=1"],
        )  # fmt: skip
        job.name = "x --account=evil --uid=1\n#SBATCH --account=evil"
        job.save()
        token = world.lease(job=job)
        world.launch(token)
        assert asked_of(world, token) == "physics"
        pool.executor_options = {**pool.executor_options, "accounts": {"b": "chemistry"}}
        pool.save()
        other = world.run("/bin/sleep", "3600")
        assert asked_of(world, other) == "site"


def asked_of(world: SlurmWorld, token: str) -> str:
    queued = world.queued(token)
    assert queued is not None
    said = world.slurm.run(
        "squeue", "--noheader", "--states=all", f"--jobs={queued.job_id}", "--format=%a %U"
    ).split()
    owner = world.slurm.run(
        "squeue", "--noheader", "--me", "--states=all", "--format=%i %U"
    ).splitlines()
    assert f"{queued.job_id} {said[1]}" in [line.strip() for line in owner]
    return said[0]
