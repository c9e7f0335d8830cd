"""Build small rounds with profiles and ideals for tests of certificates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenshare_core.domain.cluster import Node, Placement
from evenshare_core.domain.decision import Decision, Grant, Ideal, Key
from evenshare_core.domain.entitlements import Entitlement, Tenant
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import SCHEMA_VERSION, Service, Snapshot
from evenshare_core.fairness.certificate import Certificate, CertificateItem, Property
from evenshare_core.units import HOUR_US

AT_US = 10_000
SLOW, FAST = "k80", "v100"
SLOW_NODE, FAST_NODE = 1, 2


def two_types(
    speeds: dict[int, float],
    *,
    gpus: int = 1,
    demand: int = 8,
    weights: dict[int, int] | None = None,
    policy: str = "oef",
    **rest: Any,
) -> Snapshot:
    """Return a pool with `gpus` slow and as many fast GPUs; `speeds` has the fast speed by tenant.

    The tenant's profile and its first job have the same id as the tenant. The first job is at most
    as large as a type. Jobs of one GPU each fill up the `demand`.
    """
    weights = weights or dict.fromkeys(speeds, 1)
    fields: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "pool": 1,
        "number": 1,
        "at_us": AT_US,
        "round_us": 10,
        "lease_us": HOUR_US,
        "policy": policy,
        "policy_version": "1",
        "options": {},
        "seed": 0,
        "nodes": (Node(SLOW_NODE, SLOW, gpus), Node(FAST_NODE, FAST, gpus)),
        "tenants": tuple(Tenant(tenant) for tenant in sorted(speeds)),
        "entitlements": tuple(
            Entitlement(tenant, name, weights[tenant])
            for tenant in sorted(speeds)
            for name in (SLOW, FAST)
        ),
        "jobs": tuple(job for tenant in sorted(speeds) for job in _jobs(tenant, demand, gpus)),
        "leases": (),
        "prices": (),
        "changes": (),
        "service": Service(at_us=AT_US),
        "profiles": tuple(
            Profile(tenant, tenant, ((SLOW, 1000), (FAST, round(speed * 1000))))
            for tenant, speed in sorted(speeds.items())
        ),
    }
    return Snapshot(**{**fields, **rest})


def _jobs(tenant: int, demand: int, gpus: int) -> list[Job]:
    first = min(demand, gpus)
    rest = range(demand - first)
    return [Job(id=tenant, tenant=tenant, gpus=first, submitted_us=tenant, profile=tenant)] + [
        Job(id=1000 * tenant + one, tenant=tenant, gpus=1, submitted_us=tenant, profile=tenant)
        for one in rest
    ]


def ideals(shares: Mapping[int, Sequence[float]]) -> tuple[Ideal, ...]:
    """Return ideals from each tenant's (slow, fast) GPUs."""
    return tuple(
        Ideal(tenant, tenant, name, gpus)
        for tenant, row in sorted(shares.items())
        for name, gpus in zip((SLOW, FAST), row, strict=True)
        if gpus
    )


def times(shares: Mapping[int, Sequence[float]], factor: float) -> dict[int, Sequence[float]]:
    """Return the same shares for a pool that is `factor` times as large."""
    return {tenant: [gpus * factor for gpus in row] for tenant, row in shares.items()}


def answer(shares: Mapping[int, Sequence[float]], **rest: Any) -> Decision:
    """Return a decision that has only ideals."""
    return Decision(at_us=AT_US, ideals=ideals(shares), service=Service(at_us=AT_US), **rest)


def grant(order: int, job: int, placement: Placement, tenant: int | None = None) -> Grant:
    owner = job if tenant is None else tenant
    return Grant(order, job, owner, FAST, placement, Key(None, None))


def line(found: Certificate, name: Property) -> CertificateItem:
    return next(row for row in found.findings if row.name is name)
