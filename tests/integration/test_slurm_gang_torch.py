"""Test PyTorch on two nodes of a real Slurm cluster, if an interpreter with PyTorch is named.

`EVENSHARE_TORCH_PYTHON=/path/to/python pytest -n0 tests/integration/test_slurm_gang_torch.py`:
without the variable these tests are skipped, since PyTorch is not a package of the portal.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenshare.runtime.sets import complete_sets
from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.executors.base import ReportState
from tests.architecture.sources import ROOT
from tests.integration.slurm_gangs import begins, next_lease, reaches
from tests.integration.slurm_world import SlurmWorld, slurm_world

pytestmark = pytest.mark.usefixtures("committed_db")

TORCH_PYTHON = os.environ.get("EVENSHARE_TORCH_PYTHON", "")
TRAIN = (str(ROOT / "examples" / "train_torch.py"), "--steps", "300", "--pause", "0.02")
PER_NODE = (TORCH_PYTHON, *TRAIN)
TORCHRUN = (
    f"exec {shlex.quote(TORCH_PYTHON)} -m torch.distributed.run --nnodes=$NNODES"
    " --node-rank=$NODE_RANK --nproc-per-node=2 --master-addr=$MASTER_ADDR"
    " --master-port=$MASTER_PORT --signals-to-handle=SIGUSR1,SIGTERM"
)
PER_GPU = ("/bin/sh", "-c", f"{TORCHRUN} {shlex.join(TRAIN)}")


@pytest.fixture
def world(tmp_path: Path, slurm_cluster: SlurmCluster) -> Iterator[SlurmWorld]:
    with slurm_world(tmp_path / "jobs", slurm_cluster) as made:
        yield made


def weights(world: SlurmWorld, token: str) -> list[str]:
    """Return the final weights that the ranks of a lease print."""
    return [line.split()[-1] for line in world.log(token).splitlines() if " weights " in line]


if TORCH_PYTHON:

    class TestTraining:
        @pytest.mark.parametrize(("command", "ranks"), [(PER_NODE, 2), (PER_GPU, 4)])
        def test_ends_with_same_bits_despite_preemption(
            self, command: tuple[str, ...], ranks: int, world: SlurmWorld
        ) -> None:
            whole = world.run(*command, gpus=(2, 2))
            assert world.ended(whole).exit_code == 0, world.log(whole)

            token = world.run(*command, gpus=(2, 2))
            reaches(world, token, 30)
            world.stop(token)
            assert world.ended(token).state is ReportState.STOPPED
            # torchrun's exit code is the same for all ranks, and differs from their own codes.
            assert world.exit(token)["code"] in (99, 1), world.log(token)
            newest = complete_sets(world.folder(token).parents[1] / "checkpoints")[0]
            assert newest.size == ranks

            again = next_lease(world, token, *command, gpus=(1, 1))
            begun = begins(world, again, ranks)
            assert len(set(begun)) == 1
            assert begun[0] >= 30
            assert world.ended(again).exit_code == 0, world.log(again)
            assert len({*weights(world, again), *weights(world, whole)}) == 1
            assert len(weights(world, again)) == ranks
