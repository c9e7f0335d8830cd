"""Test a Slurm tool that hangs: a call stops waiting at its time limit, and reports the timeout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scheduling.engine.executors.base import CALL_S, ExecutorError
from scheduling.engine.executors.slurm import commands
from scheduling.engine.executors.slurm.commands import (
    SUBMITTERS,
    NodeGroup,
    Slurm,
    SlurmSilentError,
    Submission,
)
from scheduling.engine.executors.slurm.executor import SlurmExecutor
from scheduling.engine.executors.slurm.options import SlurmOptions
from tests.slurm import as_made
from tests.tools import eventually


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put tools that never answer first in PATH; return the file that lists their processes."""
    pids = tmp_path / "pids"
    for tool in ("squeue", "sbatch", "scancel", "scontrol"):
        program = tmp_path / tool
        program.write_text(f"#!/bin/sh\necho $$ >> {pids}\nexec sleep 600\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(commands, "CALL_S", 0.5)
    return pids


class TestHangingTool:
    def test_is_ended_at_time_limit_of_call(self, hanging: Path) -> None:
        slurm = Slurm(SlurmOptions(partition="gpu"))
        with pytest.raises(ExecutorError, match=r"squeue did not answer within 0\.5 s"):
            slurm.queue()
        with pytest.raises(ExecutorError, match="scancel did not answer"):
            slurm.cancel([1])
        with pytest.raises(ExecutorError, match="scontrol did not answer"):
            slurm.limit({1: 5})
        pids = hanging.read_text().split()
        assert len(pids) == 3
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))

    def test_is_not_called_for_each_job_of_batch(self, hanging: Path) -> None:
        """If each call waited for its timeout, the fence would expire before the last call."""
        slurm = Slurm(SlurmOptions(partition="gpu"))
        group = NodeGroup(("node-1",), "gpu:a100:1", 0, 0)
        batch = [
            Submission(f"es-{n}-1", f"evenshare-{n}", (), "/job.sh", "/", "/dev/null", (group,), 45)
            for n in range(40)
        ]
        answers = slurm.submit(as_made(*batch))
        assert all(isinstance(answer, SlurmSilentError) for answer in answers.values())
        assert len(answers) == len(batch)
        assert len(hanging.read_text().split()) <= 2 * SUBMITTERS

    def test_time_limits_match_protocol(self) -> None:
        assert CALL_S == 5
        assert SlurmExecutor.traits.silence_s == 600
