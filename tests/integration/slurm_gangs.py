"""Help to test gangs of training processes on a Slurm cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence

from scheduling.engine.clock import read_clock
from scheduling.engine.executors.base import token_job
from scheduling.models import Job, Lease
from tests.integration.slurm_world import SlurmWorld
from tests.tools import eventually


def begins(world: SlurmWorld, token: str, ranks: int = 2) -> list[int]:
    """Wait until all ranks of a lease have started, and return each rank's first step."""
    pattern = re.compile(r"rank \d begins at step (\d+)")
    eventually(lambda: len(pattern.findall(world.log(token))) == ranks)
    return [int(step) for step in pattern.findall(world.log(token))]


def reaches(world: SlurmWorld, token: str, step: int) -> None:
    """Wait until the lease has reported a step."""

    def is_there() -> bool:
        report = world.listed().get(token)
        progress = report.progress if report is not None else None
        return bool(progress and progress.get("step", 0) >= step)

    eventually(is_there)


def next_lease(world: SlurmWorld, token: str, *argv: str, gpus: Sequence[int]) -> str:
    """Record that a lease has ended, and launch the job's next one."""
    now = read_clock(world.lab.pool.pk).pool_at
    Lease.objects.filter(job_id=token_job(token)).update(state="ended", ended_at=now)
    again = world.lease(*argv, gpus=gpus, job=Job.objects.get(pk=token_job(token)))
    world.launch(again)
    return again
