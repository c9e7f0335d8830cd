"""Provide a pool on a real cluster whose tenants' jobs run as separate Unix users."""

from __future__ import annotations

import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.test import override_settings

from portal.demo.slurm.cluster import SlurmCluster
from scheduling.engine.executors.base import token_job
from scheduling.models import Job, Lease, Pool
from tenants.services.tenants import create_tenant
from tests.integration.slurm_world import SlurmWorld
from tests.slurm import SILENT_S, end_quickly, require_slurm
from tests.unix_users import NAMES, common_python, open_folder, require_users

ANN, BEN, REST = NAMES
AS_ROOT = ("runuser", "-u", "{user}", "--")
# A program that prints its user and saves its progress when it is stopped, like real jobs.
SAVES = """
import json, os, signal, sys, time
rank = os.environ.get("RANK", "0")
job = os.environ["EVENSHARE_JOB_DIR"]
saved = f"{job}/saved-{rank}"
begun = int(open(saved).read()) if os.path.exists(saved) else 0
def checkpoint(*_):
    open(saved + ".new", "w").write(str(begun + 1))
    os.replace(saved + ".new", saved)
    sys.exit(99)
signal.signal(signal.SIGUSR1, checkpoint)
if rank == "0":
    open(job + "/.progress.new", "w").write(json.dumps({"step": begun}))
    os.replace(job + "/.progress.new", os.environ["EVENSHARE_PROGRESS"])
print(f"rank {rank} is {os.getuid()}:{os.getgid()} and begins at {begun}", flush=True)
time.sleep(6000)
"""


@contextmanager
def users_cluster() -> Iterator[SlurmCluster]:
    require_slurm()
    require_users()
    with (
        open_folder() as folder,
        open_folder() as sockets,
        SlurmCluster(folder / "slurm", sockets=sockets, slurmd_timeout_s=SILENT_S) as cluster,
    ):
        try:
            yield cluster
        finally:
            end_quickly(cluster)


class UsersWorld(SlurmWorld):
    """Tenants `a` and `b`, which have a Unix user each, and `c`, which has none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for swatch, slug in enumerate("bc", 1):
            self.lab.tenants[slug] = create_tenant(
                slug=slug, name=slug, initials=slug.upper(), swatch=swatch, book=self.lab.pool.book
            )
        self.set(users={"a": ANN, "b": BEN}, submit_as=AS_ROOT, python=common_python())

    def set(self, **options: object) -> None:
        """Change options of the pool."""
        pool = Pool.objects.get(pk=self.lab.pool.pk)
        Pool.objects.filter(pk=pool.pk).update(
            executor_options={**pool.executor_options, **options}
        )

    def of(self, tenant: str, *argv: str, gpus: tuple[int, ...] = (1,)) -> str:
        """Create a lease of a tenant's job."""
        job = self.lab.submit(tenant, sum(gpus), 60, command=list(argv))
        return self.lease(job=job, gpus=gpus)

    def again(self, token: str, gpus: tuple[int, ...] = (1,)) -> str:
        """Record a lease's end, and create the next one of its job."""
        job = Job.objects.get(pk=token_job(token))
        Lease.objects.filter(job=job).update(
            state="ended", ended_at=job.submitted_at, started_at=job.submitted_at
        )
        self.executor.forget([token])
        return self.lease(job=job, gpus=gpus)

    def job(self, token: str) -> Path:
        return self.folder(token).parents[1]

    def close(self) -> None:
        self.slurm.run("scancel", f"--partition={self.slurm.partition}")
        super().close()


@contextmanager
def users_world(cluster: SlurmCluster) -> Iterator[UsersWorld]:
    with open_folder() as folder, override_settings(LOCAL_ROOT=str(folder / "jobs")):
        world = UsersWorld(folder / "jobs", cluster)
        try:
            yield world
        finally:
            world.close()


def uid(name: str) -> int:
    return pwd.getpwnam(name).pw_uid


def ids(name: str) -> str:
    entry = pwd.getpwnam(name)
    return f"{entry.pw_uid}:{entry.pw_gid}"
