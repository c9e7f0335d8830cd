"""Provide real-time rounds of a pool on the five nodes of a real Slurm cluster, and jobs for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import connection
from django.test import override_settings

from billing.metering import meter_pool
from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.clock import read_clock
from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.slurm.commands import Slurm
from scheduling.engine.executors.slurm.options import SlurmOptions
from scheduling.engine.rounds import execute_round
from scheduling.engine.seal import seal_rounds
from scheduling.models import Job, Lease, Node, PriceSetting
from tests.factories import Cluster, cluster
from tests.integration.local_world import processes_below
from tests.slurm import number_jobs_anew
from tests.tools import PATIENCE_S, eventually

CHILD = Path(__file__).with_name("slurm_process.py")

# The gang's program counts to a number in steps of 0.1 s, and saves the count when it is stopped.
# Only the first rank counts. Each start writes a line, and the program ends with the given code.
COUNTER = """
import os, pathlib, signal, sys, time
home = pathlib.Path(os.environ["EVENSHARE_JOB_DIR"])
saved, done = home / "count", home / "done"
leads = os.environ.get("RANK", "0") == "0"
count = int(saved.read_text()) if saved.exists() else 0
def checkpoint(*_):
    if leads:
        (home / "count.new").write_text(str(count))
        (home / "count.new").replace(saved)
    sys.exit(99)
signal.signal(signal.SIGUSR1, checkpoint)
if leads:
    with (home / "starts").open("a") as file:
        print(os.environ["EVENSHARE_LEASE"], count, file=file)
while count < int(sys.argv[1]) and not done.exists():
    count += leads
    time.sleep(0.1)
if leads:
    done.touch()
sys.exit(int(sys.argv[2]))
"""


@dataclass
class SlurmRounds:
    """A pool with three tenants, each of which has the quota of one GPU type."""

    root: Path
    slurm: SlurmCluster
    lab: Cluster

    def submit(
        self, tenant: str, gpus: int, steps: int, code: int = 0, gpu_types: Sequence[str] = ()
    ) -> Job:
        """Submit a gang that counts to `steps`, at the current pool time."""
        self.lab.at = read_clock(self.lab.pool.pk).pool_at
        command = [sys.executable, "-c", COUNTER, str(steps), str(code)]
        return self.lab.submit(tenant, gpus, 1, command=command, gpu_types=list(gpu_types))

    def end(self, job: Job) -> None:
        """End a job's program before its last step."""
        (self.root / str(job.pk) / "done").touch()

    def turn(self) -> bool:
        """Run the due round and its meter, as the tick does; return True to continue."""
        execute_round(self.lab.pool.pk, now=read_clock(self.lab.pool.pk))
        seal_rounds(self.lab.pool.pk)
        meter_pool(self.lab.pool.pk)
        time.sleep(0.1)
        return True

    def turn_that_is_killed(self, point: str) -> bool:
        """Run a round in a process that is killed at a point; return whether it got there."""
        at = read_clock(self.lab.pool.pk).pool_at
        command = [sys.executable, str(CHILD), str(self.root), str(self.lab.pool.pk)]
        victim = subprocess.Popen(
            [*command, at.isoformat(), f"{point}:kill", "30"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "portal.site.settings"},
        )
        victim.communicate(timeout=PATIENCE_S)
        self.take_over()
        return victim.returncode == -signal.SIGKILL

    def take_over(self) -> None:
        """Make the fence of a dead process expire at once."""
        with connection.cursor() as cursor:
            cursor.execute("UPDATE scheduling_poolfence SET until = clock_timestamp()")

    def starts(self, job: Job) -> list[tuple[int, int]]:
        """Return (lease, count) of each start of a job's program."""
        lines = (self.root / str(job.pk) / "starts").read_text().splitlines()
        return [(int(lease), int(count)) for lease, count in map(str.split, lines)]

    def in_slurm(self) -> int:
        """Return how many Slurm jobs run or may still run."""
        return len(self.slurm.run("squeue", "--noheader").splitlines())

    def close(self) -> None:
        options = SlurmOptions(conf=str(self.slurm.conf), partition=self.slurm.partition)
        tools = Slurm(options)
        try:
            tools.cancel(job.job_id for job in tools.queue().values())
        except ExecutorError:
            # If a test failed while its controller was down, the end of the cluster kills its jobs.
            return
        eventually(lambda: not processes_below(self.root))


@contextmanager
def slurm_rounds(root: Path, slurm: SlurmCluster, **fields: Any) -> Iterator[SlurmRounds]:
    number_jobs_anew()
    options = {"conf": str(slurm.conf), "partition": slurm.partition}
    types = list(dict.fromkeys(node.gpu_type for node in slurm.nodes))
    wanted = {"lease_s": 8, "round_s": 1, "grace_s": 20, "policy": "ltgf", **fields}
    with override_settings(LOCAL_ROOT=str(root)):
        lab = cluster(
            dict.fromkeys("abc"[: len(types)], 0), nodes=0, executor="slurm",
            executor_options=options, **wanted,
        )  # fmt: skip
        PriceSetting.objects.filter(pool=lab.pool).delete()
        for name, tenant in zip(types, lab.tenants, strict=True):
            own = [node for node in slurm.nodes if node.gpu_type == name]
            lab.add_type(
                name, nodes=len(own), gpus=own[0].gpus,
                quotas={tenant: sum(node.gpus for node in own)},
            )  # fmt: skip
            made = Node.objects.filter(pool=lab.pool, gpu_type__name=name).order_by("id")
            for node, one in zip(made, own, strict=True):
                Node.objects.filter(pk=node.pk).update(name=one.name)
        world = SlurmRounds(root, slurm, lab)
        try:
            yield world
        finally:
            world.close()


def ended_events(job: Job) -> list[str]:
    """Return the end reasons of a job's leases that ran, in order.

    If the job finishes while it is being moved, its waiting lease never runs.
    """
    ran = Lease.objects.filter(job=job, state="ended", started_at__isnull=False)
    rows = ran.order_by("number")
    return list(rows.values_list("end_reason", flat=True))
