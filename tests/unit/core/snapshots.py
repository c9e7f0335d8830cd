"""Build small snapshots for unit tests: one GPU type, and one tenant by default."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement, Tenant
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Change, ChangeKind, PoolPrice, Service, Snapshot
from evenshare_core.units import HOUR_US

AT_US = 10_000


def job(id: int, gpus: int, tenant: int = 1, **rest: Any) -> Job:  # noqa: A002 - it is Job's name
    return Job(id=id, tenant=tenant, gpus=gpus, submitted_us=id, **rest)


def lease(
    id: int,  # noqa: A002 - it is Lease's name
    job: int,
    *placement: tuple[int, int],
    tenant: int = 1,
    expires_us: int = AT_US,
    **rest: Any,
) -> Lease:
    """Return a lease within quota that started at its id and expires now."""
    own = rest.pop("own", sum(gpus for _, gpus in placement) - rest.get("borrowed", 0))
    return Lease(
        id=id,
        job=job,
        tenant=tenant,
        gpu_type="v100",
        placement=placement,
        started_us=id,
        expires_us=expires_us,
        term=1,
        own=own,
        borrowed=rest.pop("borrowed", 0),
        price_micro=0,
        **rest,
    )


def snapshot(
    jobs: Sequence[Job],
    leases: Sequence[Lease] = (),
    *,
    nodes: dict[int, int],
    quotas: Iterable[Entitlement] = (Entitlement(1, "v100", 64),),
    price_micro: int = 0,
    credit: dict[int, int] | None = None,
    changes: Sequence[Change] = (),
    **rest: Any,
) -> Snapshot:
    """Return a round at AT_US in which every job is active from its submission.

    The holders hold their GPUs from that time on. A lease lasts one hour, so a term of one borrowed
    GPU costs its price.
    """
    quotas = tuple(quotas)
    told = [Change(0, ChangeKind.QUOTA, q.tenant, gpus=q.gpus, gpu_types=("v100",)) for q in quotas]
    holders = {row.job: row.gpus for row in leases}
    for row in sorted(jobs, key=lambda row: row.submitted_us):
        told.append(
            Change(
                row.submitted_us,
                ChangeKind.ACTIVE,
                row.tenant,
                row.id,
                row.gpus,
                row.gpu_types or ("v100",),
                row.weight,
            )
        )
        if row.id in holders:
            told.append(
                Change(row.submitted_us, ChangeKind.HOLD, row.tenant, row.id, holders[row.id])
            )
    fields: dict[str, Any] = {
        "schema": 1,
        "pool": 1,
        "number": 1,
        "at_us": AT_US,
        "round_us": 10,
        "lease_us": HOUR_US,
        "policy": "ltgf",
        "policy_version": "1",
        "options": {},
        "seed": 0,
        "nodes": tuple(Node(node, "v100", gpus) for node, gpus in sorted(nodes.items())),
        "tenants": tuple(
            Tenant(tenant, (credit or {}).get(tenant))
            for tenant in sorted({q.tenant for q in quotas})
        ),
        "entitlements": quotas,
        "jobs": tuple(jobs),
        "leases": tuple(leases),
        "prices": (PoolPrice("v100", price_micro, 0, 0, 1_000_000, 2000),),
        "changes": (*told, *changes),
        "service": Service(at_us=0),
    }
    return Snapshot(**{**fields, **rest})
