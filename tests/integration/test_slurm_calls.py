"""Test how many calls the `slurm` executor makes, and that a faulty lease affects no other."""

from __future__ import annotations

import errno
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evenshare_core.units import SECOND_US
from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.executors.base import ExecutorError, Launch, ReportState, Stop, token_job
from scheduling.engine.executors.local_spec import LeaseSpec
from scheduling.engine.executors.slurm.commands import Slurm
from scheduling.engine.executors.slurm.users import UserRefusedError
from tests.integration.slurm_world import SlurmWorld, slurm_world

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def world(tmp_path: Path, slurm_cluster: SlurmCluster) -> Iterator[SlurmWorld]:
    with slurm_world(tmp_path / "jobs", slurm_cluster) as made:
        yield made


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the calls of each tool."""
    counted: Counter[str] = Counter()
    run = Slurm._run

    def counting(self: Slurm, tool: str, *words: str) -> subprocess.CompletedProcess[str]:
        counted[tool] += 1
        return run(self, tool, *words)

    monkeypatch.setattr(Slurm, "_run", counting)
    return counted


def launch(world: SlurmWorld, *tokens: str) -> None:
    at_us = world.now_us()
    world.executor.launch([Launch(token, token_job(token), at_us) for token in tokens])


class TestLaunch:
    def test_lists_queue_only_after_earlier_attempt(
        self, world: SlurmWorld, calls: Counter[str]
    ) -> None:
        token = world.lease("/bin/sleep", "6000")
        launch(world, token)
        assert calls == {"sbatch": 1}
        (world.folder(token) / "shim.json").unlink(missing_ok=True)
        launch(world, token)
        assert calls == {"sbatch": 1, "squeue": 1}

    def test_unwritable_launch_does_not_block_others(
        self, world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bad, refused, good, last = (world.lease("true") for _ in range(4))
        prepare = world.executor._prepare

        def full(token: str, start: LeaseSpec, **more: Any) -> None:
            if token == bad:
                raise OSError(errno.ENOSPC, "No space left on device")
            if token == refused:
                raise UserRefusedError("of nobody")
            prepare(token, start, **more)

        monkeypatch.setattr(world.executor, "_prepare", full)
        with pytest.raises(ExecutorError, match="No space left"):
            launch(world, bad, refused, good, last)
        assert world.ended(refused).state is ReportState.STOPPED
        assert "Slurm does not run this job: of nobody" in world.log(refused)
        assert world.ended(good).exit_code == world.ended(last).exit_code == 0
        assert not world.folder(bad).exists()


class TestStop:
    def test_unwritable_stop_does_not_block_others(
        self, world: SlurmWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bad, good = (world.shell("echo ready; sleep 6000") for _ in range(2))
        note = world.executor._note_stop

        def full(token: str, grace_s: float) -> None:
            if token == bad:
                raise OSError(errno.EDQUOT, "Disk quota exceeded")
            note(token, grace_s)

        monkeypatch.setattr(world.executor, "_note_stop", full)
        at_us = world.now_us()
        stops = [Stop(token, token_job(token), at_us, SECOND_US) for token in (bad, good)]
        with pytest.raises(ExecutorError, match="Disk quota exceeded"):
            world.executor.stop(stops)
        assert world.ended(good).state is ReportState.STOPPED
        # The shim was woken although the call failed.
        assert world.ended(bad).state is ReportState.STOPPED


class TestListing:
    def test_calls_squeue_once(self, world: SlurmWorld, calls: Counter[str]) -> None:
        tokens = [world.lease("/bin/sleep", "6000") for _ in range(3)]
        launch(world, *tokens)
        calls.clear()
        assert set(world.listed()) == set(tokens)
        assert calls == {"squeue": 1}
