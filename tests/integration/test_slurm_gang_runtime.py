"""Test a gang on a real Slurm cluster, in which each rank keeps a checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenshare.runtime.sets import complete_sets
from portal.demo.slurm.cluster import SlurmCluster
from portal.demo.slurm.config import SlurmNode
from portal.demo.slurm.processes import kill_processes, processes
from scheduling.engine.executors.base import ReportState, token_job
from scheduling.engine.executors.shim.rendezvous import FIRST_PORT, PORTS, free_port_of
from tests.architecture.sources import ROOT
from tests.integration.slurm_gangs import begins, next_lease, reaches
from tests.integration.slurm_world import SlurmWorld, own_slurm_world, slurm_world
from tests.ports import free_port
from tests.tools import PATIENCE_S, eventually

pytestmark = pytest.mark.usefixtures("committed_db")

TRAIN = str(ROOT / "examples" / "train_gang.py")
STEPS = 600
COMMAND = (sys.executable, TRAIN, "--steps", str(STEPS), "--pause", "0.005")
FOREVER = (sys.executable, TRAIN, "--steps", "100000000", "--pause", "0.005")


@pytest.fixture
def world(tmp_path: Path, slurm_cluster: SlurmCluster) -> Iterator[SlurmWorld]:
    with slurm_world(tmp_path / "jobs", slurm_cluster) as made:
        yield made


@pytest.fixture(scope="module")
def weights() -> str:
    """Return the final weights of two uninterrupted ranks outside of the portal."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [*COMMAND[:-2]],
            env={"PATH": os.environ["PATH"], "RANK": str(rank), **where},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    ends = [rank.communicate(timeout=PATIENCE_S)[0].splitlines()[-1].split() for rank in ranks]
    assert ends[0][-1] == ends[1][-1]
    return ends[0][-1]


def ranks_of(world: SlurmWorld, node: str) -> list[int]:
    """Return the training processes of a node."""
    pids = processes(world.slurm.conf, node)
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids}
    return [pid for pid, line in lines.items() if line.startswith(os.fsencode(COMMAND[0]))
            and TRAIN.encode() in line]  # fmt: skip


class TestPreemptedGang:
    def test_resumes_at_common_step_and_ends_with_same_bits(
        self, world: SlurmWorld, weights: str
    ) -> None:
        token = world.run(*COMMAND, gpus=(4, 4))
        assert begins(world, token) == [0, 0]
        reaches(world, token, 50)
        world.stop(token)
        assert world.ended(token).state is ReportState.STOPPED
        assert world.exit(token)["code"] == 99, world.log(token)
        newest = complete_sets(world.folder(token).parents[1] / "checkpoints")[0]
        assert newest.size == 2

        again = next_lease(world, token, *COMMAND, gpus=(2, 2))
        [step, other] = begins(world, again)
        assert step == other >= 50
        report = world.ended(again)
        assert (report.state, report.exit_code) == (ReportState.FINISHED, 0), world.log(again)
        assert world.log(again).count(f"weights {weights}") == 2


@pytest.fixture
def wide_world(tmp_path: Path) -> Iterator[SlurmWorld]:
    """Yield a world of three nodes, so that two are left for a gang if one node hangs."""
    nodes = [SlurmNode(f"node-{number}", "a100", 4) for number in (1, 2, 3)]
    with own_slurm_world(tmp_path, nodes=nodes) as made:
        yield made


class TestRankOfOlderLease:
    def test_suspended_rank_completes_no_checkpoint_set(self, wide_world: SlurmWorld) -> None:
        """The rank is suspended before the stop, as if its node hung, and resumes later."""
        world = wide_world
        token = world.run(*FOREVER, gpus=(1, 1))
        reaches(world, token, 20)
        [asleep] = ranks_of(world, "node-2")
        # Its task and slurmstepd are suspended too; otherwise a stop would resume the program.
        node = [pid for pid in processes(world.slurm.conf, "node-2") if pid != asleep]
        for pid in (*node, asleep):
            os.kill(pid, signal.SIGSTOP)
        try:
            world.stop(token, grace_s=3.0)
            folder = world.folder(token).parents[1]
            eventually((world.folder(token) / "exit.json").exists)
            assert complete_sets(folder / "checkpoints") == []
            world.avoided.add("node-2")
            again = next_lease(world, token, *FOREVER, gpus=(1, 1))
            begins(world, again)
            reaches(world, again, 5)
        finally:
            for pid in (asleep, *node):
                os.kill(pid, signal.SIGCONT)
        eventually(lambda: not Path(f"/proc/{asleep}/exe").exists())
        assert complete_sets(folder / "checkpoints") == []
        world.stop(again)
        world.ended(again)
        assert {one.lease for one in complete_sets(folder / "checkpoints")} == {2}


class TestKilledNode:
    def test_loses_lease_but_not_last_complete_checkpoint_set(self, world: SlurmWorld) -> None:
        token = world.run(*FOREVER, "--every", "0.5", gpus=(1, 1))
        path = world.folder(token).parents[1] / "checkpoints"
        eventually(lambda: path.exists() and complete_sets(path))
        assert not kill_processes(world.slurm.conf, "node-2")
        assert world.ended(token).state is ReportState.STOPPED
        assert world.exit(token)["lost"]
        again = next_lease(world, token, *FOREVER, gpus=(1, 1))
        [step, other] = begins(world, again)
        assert step == other > 0


class TestUnevenGang:
    SAY = (
        'echo "$RANK/$WORLD_SIZE node $NODE_RANK/$NNODES srun $SLURM_PROCID/$SLURM_NTASKS'
        ' gpus $EVENSHARE_GPUS_PER_NODE nodes $EVENSHARE_NODES at $MASTER_PORT"'
    )

    def test_knows_its_ranks(self, world: SlurmWorld) -> None:
        token = world.shell(self.SAY, gpus=(4, 1))
        assert world.ended(token).exit_code == 0, world.log(token)
        port = free_port_of(f"{token_job(token)}-1", is_free=lambda _: True)
        lines = sorted(line for line in world.log(token).splitlines() if "/" in line)
        assert lines == [
            f"{rank}/2 node {rank}/2 srun {rank}/2 gpus 4,1 nodes {'node-1,node-2'} at {port}"
            for rank in (0, 1)
        ]
        assert FIRST_PORT <= port < FIRST_PORT + PORTS

    def test_single_node_job_has_same_variables(self, world: SlurmWorld) -> None:
        token = world.shell('echo "$NODE_RANK/$NNODES $MASTER_ADDR:$MASTER_PORT"', gpus=(2,))
        assert world.ended(token).exit_code == 0
        port = free_port_of(f"{token_job(token)}-1", is_free=lambda _: True)
        assert f"0/1 127.0.0.1:{port}\n" in world.log(token)
