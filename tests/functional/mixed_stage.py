"""A pool of two GPU types shared by OEF, with a job type each, and everybody who might look."""

from __future__ import annotations

from typing import Any

from scheduling.models import GpuType, Job, Node, Profile
from tenants.models import Quota
from tests.factories import BEGIN, cluster
from tests.functional.pool_stage import Stage, _people

# How much faster than the slow type each runs on the fast one.
SPEEDS = {"alpha": 2000, "beta": 5000, "gamma": 3000}


def mixed_stage(environment: str = "cooperative", rounds: int = 1) -> Stage:
    """Four GPUs of each of two types; alpha, beta and gamma have more jobs than that."""
    lab = cluster(
        {"alpha": 2, "beta": 1, "gamma": 1}, nodes=1, gpus=4, policy="oef",
        options={"environment": environment},
    )  # fmt: skip
    slow, _ = GpuType.objects.get_or_create(name="k80")
    Node.objects.create(pool=lab.pool, name="slow", gpu_type=slow, gpus=4)
    for slug, tenant in lab.tenants.items():
        quota = Quota.objects.get(tenant=tenant, pool=lab.pool)
        Quota.objects.create(
            tenant=tenant, pool=lab.pool, gpu_type=slow, gpus=quota.gpus, valid_from=BEGIN
        )
        profile = Profile.objects.create(
            tenant=tenant, pool=lab.pool, name=f"{slug}-net",
            speedups={"k80": 1000, "v100": SPEEDS[slug]},
        )  # fmt: skip
        for _ in range(9):
            _job(lab.submit(slug, 1, 40_000), profile)
    for _ in range(rounds):
        lab.round(after_s=10)
    _people(lab)
    return Stage(lab)


def _job(job: Any, profile: Profile) -> None:
    """Let it run anywhere, as its profile says."""
    Job.objects.filter(pk=job.pk).update(profile=profile, gpu_types=[])
