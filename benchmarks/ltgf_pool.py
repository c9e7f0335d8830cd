"""Seeded pools for the LTGF benchmark and tests: tenants with history, jobs and leases."""

from __future__ import annotations

import random

import msgspec

from scheduling.domain.cluster import Node
from scheduling.domain.entitlements import Entitlement, Tenant
from scheduling.domain.jobs import Job
from scheduling.domain.leases import Lease
from scheduling.domain.snapshot import Change, ChangeKind, PoolPrice, Service, Snapshot
from scheduling.domain.values import SECOND_US
from scheduling.fairness.gpu_time import advance

LEASE_US = 900 * SECOND_US
ROUND_US = 10 * SECOND_US
HOUR_US = 3600 * SECOND_US
# Gangs as in the Philly trace: mostly one GPU, few over one node.
GANGS, SHARES = (1, 2, 4, 8, 16, 32), (70, 8, 10, 9, 2, 1)


def pool(
    *, seed: int, nodes: int, tenants: int, pending: int, fill: float, expired: float,
    gpu_types: tuple[str, ...] = ("v100",),
) -> Snapshot:  # fmt: skip
    """A pool `fill` full of leases, a share `expired` of which ends now, and `pending` jobs.

    The GPU-time sums come from changes over the last hours, so tenants differ in rho.
    """
    rng = random.Random(seed)  # noqa: S311 - a seeded workload, not a secret
    at_us = 12 * HOUR_US
    rows = [Node(i, gpu_types[i % len(gpu_types)], 8) for i in range(1, nodes + 1)]
    quotas = [
        Entitlement(tenant, gpu_type, rng.randint(0, 2 * 8 * nodes // tenants))
        for tenant in range(1, tenants + 1)
        for gpu_type in gpu_types
    ]
    changes = [
        Change(0, ChangeKind.QUOTA, q.tenant, gpus=q.gpus, gpu_types=(q.gpu_type,)) for q in quotas
    ]
    jobs: list[Job] = []
    leases: list[Lease] = []

    def submit(gpus: int, gpu_type: str, terms: int = 0) -> Job:
        submitted_us = rng.randrange(at_us)
        job = Job(
            len(jobs) + 1, rng.randint(1, tenants), gpus, submitted_us, (gpu_type,), terms=terms
        )
        jobs.append(job)
        changes.append(
            Change(
                submitted_us, ChangeKind.ACTIVE, job.tenant, job.id, gpus, (gpu_type,)
            )
        )  # fmt: skip
        return job

    for node in rows:
        free = 8
        while free and rng.random() < fill:
            job = submit(min(free, rng.choice((1, 1, 2, 4, 8))), node.gpu_type, terms=1)
            free -= job.gpus
            started_us = rng.randrange(job.submitted_us, at_us)
            expires_us = at_us if rng.random() < expired else at_us + rng.randrange(1, LEASE_US)
            changes.append(Change(started_us, ChangeKind.HOLD, job.tenant, job.id, job.gpus))
            leases.append(
                Lease(
                    len(leases) + 1, job.id, job.tenant, node.gpu_type, ((node.id, job.gpus),),
                    started_us, expires_us, 1, job.gpus, 0, 0,
                )
            )  # fmt: skip
    for _ in range(pending):
        job = submit(rng.choices(GANGS, SHARES)[0], rng.choice(gpu_types))
        if rng.random() < 0.3:  # it ran before
            from_us = rng.randrange(job.submitted_us, at_us)
            until_us = rng.randrange(from_us, at_us)
            changes.append(Change(from_us, ChangeKind.HOLD, job.tenant, job.id, job.gpus))
            changes.append(Change(until_us, ChangeKind.RELEASE, job.tenant, job.id))
    changes.sort(key=lambda change: change.at_us)  # stable: a job's own changes stay in order
    return Snapshot(
        schema=1, pool=1, number=1, at_us=at_us, round_us=ROUND_US, lease_us=LEASE_US,
        policy="ltgf", policy_version="1", options={"reserve_after_leases": 0}, seed=seed,
        nodes=tuple(rows), tenants=tuple(Tenant(i) for i in range(1, tenants + 1)),
        entitlements=tuple(quotas), jobs=tuple(jobs), leases=tuple(leases),
        prices=tuple(PoolPrice(name, 0, 0, 0, 1_000_000, 2000) for name in gpu_types),
        changes=tuple(changes), service=Service(at_us=0),
    )  # fmt: skip


def advanced(snapshot: Snapshot) -> Snapshot:
    """The same pool with the sums at the round's instant, as a policy sees it."""
    service = advance(snapshot.service, snapshot.changes, snapshot.at_us)
    return msgspec.structs.replace(snapshot, service=service, changes=())
