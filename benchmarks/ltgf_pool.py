"""Random pools for the LTGF benchmark and tests: tenants with history, jobs and leases."""

import random

import msgspec

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement, Mode, Tenant, effective_quotas
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Change, ChangeKind, PoolPrice, Service, Snapshot
from evenshare_core.fairness.gpu_time import advance
from evenshare_core.units import HOUR_US, SECOND_US

LEASE_US = 900 * SECOND_US
ROUND_US = 10 * SECOND_US
AT_US = 12 * HOUR_US
NODE_GPUS = 8
# Gang sizes as in the Philly trace: mostly one GPU, few larger than a node.
GANGS, SHARES = (1, 2, 4, 8, 16, 32), (70, 8, 10, 9, 2, 1)


def pool(
    *,
    seed: int,
    nodes: int,
    tenants: int,
    pending: int,
    fill: float,
    expired: float,
    gpu_types: tuple[str, ...] = ("v100",),
    limits: bool = False,
    several: float = 0.0,
) -> Snapshot:
    """Return a pool with a part `fill` of its GPUs in leases, and with `pending` waiting jobs.

    A part `expired` of the leases ends now. The GPU-time sums come from changes over the last
    hours, so tenants differ in rho. `limits` adds sharing modes, borrow and lend limits, credit,
    maximum prices and deadlines. A part `several` of the jobs accepts more than one GPU type, or
    all.
    """
    maker = _Maker(seed, limits=limits, gpu_types=gpu_types, several=several)
    maker.quotas(tenants, gpu_types, nodes)
    rows = [Node(i, gpu_types[i % len(gpu_types)], NODE_GPUS) for i in range(1, nodes + 1)]
    for node in rows:
        maker.fill(node, fill, expired)
    for _ in range(pending):
        maker.wait(maker.rng.choice(gpu_types))
    # the sort is stable, so it keeps the order of changes at the same time
    maker.changes.sort(key=lambda change: change.at_us)
    return Snapshot(
        schema=1,
        pool=1,
        number=1,
        at_us=AT_US,
        round_us=ROUND_US,
        lease_us=LEASE_US,
        policy="ltgf",
        policy_version="1",
        options={"reserve_after_leases": 0},
        seed=seed,
        nodes=tuple(rows),
        tenants=tuple(maker.tenants),
        entitlements=tuple(maker.entitlements),
        jobs=tuple(maker.jobs),
        leases=tuple(maker.leases),
        prices=tuple(PoolPrice(name, 400_000, 0, 0, 1_000_000, 2000) for name in gpu_types),
        changes=tuple(maker.changes),
        service=Service(at_us=0),
    )


def advanced(snapshot: Snapshot) -> Snapshot:
    """Return the pool with GPU-time sums at the round's time, as policies see it."""
    service = advance(snapshot.service, snapshot.changes, snapshot.at_us)
    return msgspec.structs.replace(snapshot, service=service, changes=())


class _Maker:
    """Rows of a pool under construction; ids count up, so rows are sorted by id."""

    def __init__(
        self, seed: int, *, limits: bool, gpu_types: tuple[str, ...], several: float
    ) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - a seeded workload, not a secret
        self.limits, self.gpu_types, self.several = limits, gpu_types, several
        self.tenants: list[Tenant] = []
        self.entitlements: list[Entitlement] = []
        self.jobs: list[Job] = []
        self.leases: list[Lease] = []
        self.changes: list[Change] = []

    def quotas(self, tenants: int, gpu_types: tuple[str, ...], nodes: int) -> None:
        for tenant in range(1, tenants + 1):
            credit = self.rng.choice((None, 0, 500_000, 50_000_000)) if self.limits else None
            self.tenants.append(Tenant(tenant, credit))
        for gpu_type in gpu_types:
            capacity = NODE_GPUS * nodes // len(gpu_types)
            wished = [self.rng.randint(0, 2 * capacity // tenants + 1) for _ in self.tenants]
            quotas = effective_quotas(wished, capacity)
            for owner, gpus in zip(self.tenants, quotas, strict=True):
                self.entitlements.append(self._entitlement(owner.id, gpu_type, gpus))
                self.changes.append(
                    Change(0, ChangeKind.QUOTA, owner.id, gpus=gpus, gpu_types=(gpu_type,))
                )
        self.entitlements.sort(key=lambda row: (row.tenant, row.gpu_type))

    def _entitlement(self, tenant: int, gpu_type: str, gpus: int) -> Entitlement:
        if not self.limits:
            return Entitlement(tenant, gpu_type, gpus)
        borrow, lend = self.rng.choice((None, 0, 4)), self.rng.choice((None, 0, 3))
        return Entitlement(tenant, gpu_type, gpus, self.rng.choice(list(Mode)), borrow, lend)

    def _submit(self, gpus: int, gpu_type: str, terms: int = 0) -> Job:
        submitted_us = self.rng.randrange(AT_US)
        limited = self.limits and self.rng.random() < 0.5
        job = Job(
            id=len(self.jobs) + 1,
            tenant=self.rng.choice(self.tenants).id,
            gpus=gpus,
            submitted_us=submitted_us,
            gpu_types=self._accepted(gpu_type),
            weight=self.rng.choice((1, 1, 1, 3)),
            terms=terms,
            max_price_micro=self.rng.choice((0, 1_000_000)) if limited else None,
            deadline_us=AT_US + self.rng.randrange(HOUR_US) if limited else None,
        )
        self.jobs.append(job)
        self._change(job, ChangeKind.ACTIVE, submitted_us, job.gpu_types)
        return job

    def _accepted(self, gpu_type: str) -> tuple[str, ...]:
        if not self.several or self.rng.random() >= self.several:
            return (gpu_type,)
        other = self.rng.choice(self.gpu_types)
        return () if other == gpu_type else (gpu_type, other)

    def _change(self, job: Job, kind: ChangeKind, at_us: int, gpu_types: tuple[str, ...]) -> None:
        self.changes.append(
            Change(at_us, kind, job.tenant, job.id, job.gpus, gpu_types, job.weight)
        )

    def fill(self, node: Node, fill: float, expired: float) -> None:
        """Fill a part of a node with running jobs, which use own quota at random."""
        free = node.gpus
        while free and self.rng.random() < fill:
            gpus = min(free, self.rng.choice((1, 1, 2, 4, 8)))
            free -= gpus
            job = self._submit(gpus, node.gpu_type, terms=1)
            started_us = self.rng.randrange(job.submitted_us, AT_US)
            ends = self.rng.random() < expired
            self._change(job, ChangeKind.HOLD, started_us, (node.gpu_type,))
            self.leases.append(
                Lease(
                    id=len(self.leases) + 1,
                    job=job.id,
                    tenant=job.tenant,
                    gpu_type=node.gpu_type,
                    placement=((node.id, gpus),),
                    started_us=started_us,
                    expires_us=AT_US if ends else AT_US + self.rng.randrange(1, LEASE_US),
                    term=1,
                    own=gpus,
                    borrowed=0,
                    price_micro=0,
                )
            )

    def wait(self, gpu_type: str) -> None:
        """Add a pending job; some of these jobs ran before."""
        job = self._submit(self.rng.choices(GANGS, SHARES)[0], gpu_type)
        if self.rng.random() < 0.3:
            from_us = self.rng.randrange(job.submitted_us, AT_US)
            self._change(job, ChangeKind.HOLD, from_us, (gpu_type,))
            self._change(job, ChangeKind.RELEASE, self.rng.randrange(from_us, AT_US), ())
