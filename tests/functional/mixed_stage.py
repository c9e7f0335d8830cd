"""Provide an OEF pool of two GPU types, with a job type per tenant, and all requesters."""

from __future__ import annotations

from typing import Any

from scheduling.models import GpuType, Job, Node, Profile
from tenants.models import Quota
from tests.factories import BEGIN, cluster
from tests.functional.pool_stage import Stage, _people

# The speedup of each job type on the fast GPU type.
SPEEDS = {"alpha": 2000, "beta": 5000, "gamma": 3000}


def mixed_stage(environment: str = "cooperative", rounds: int = 1) -> Stage:
    """Create a pool with four GPUs of each of two types; three tenants have more jobs than GPUs."""
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
    """Submit a job that runs on all types, with the speeds of its profile."""
    Job.objects.filter(pk=job.pk).update(profile=profile, gpu_types=[])
