"""A small pool that keeps jobs and leases between rounds and feeds `decide_round`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from evenshare_core.domain.cluster import Node, Placement
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement, Tenant
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Change, ChangeKind, PoolPrice, Service, Snapshot
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.policies.base import decide_round
from evenshare_core.units import SECOND_US

MINUTE_US = 60 * SECOND_US


@dataclass
class Run:
    """A job with its true duration."""

    job: Job
    left_us: int
    ended_us: int | None = None
    leases: list[tuple[int, int, Placement]] = field(default_factory=list)  # start, end, placement


@dataclass
class Pool:
    """Nodes, quotas and jobs; `round()` decides a round, applies it and advances by `round_us`."""

    nodes: tuple[Node, ...]
    entitlements: tuple[Entitlement, ...]
    runs: list[Run]
    round_us: int = 10 * MINUTE_US
    lease_us: int = 10 * MINUTE_US
    options: dict[str, Any] = field(default_factory=dict)
    prices: tuple[PoolPrice, ...] = ()
    at_us: int = 0
    number: int = 0
    service: Service = field(default_factory=lambda: Service(at_us=0))
    memory: dict[str, Any] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)  # leases by job
    changes: list[Change] = field(default_factory=list)
    arrived: set[int] = field(default_factory=set)
    decisions: list[Decision] = field(default_factory=list)
    next_lease: int = 1

    def __post_init__(self) -> None:
        for row in self.entitlements:
            self._change(ChangeKind.QUOTA, row.tenant, gpus=row.gpus, gpu_types=(row.gpu_type,))

    def _change(self, kind: ChangeKind, tenant: int, **rest: Any) -> None:
        at_us = rest.pop("at_us", self.at_us)
        self.changes.append(Change(at_us, kind, tenant, **rest))

    def snapshot(self) -> Snapshot:
        """Return the round's snapshot, which has the jobs submitted until then."""
        for run in self.runs:
            job = run.job
            if job.submitted_us <= self.at_us and job.id not in self.arrived:
                self.arrived.add(job.id)
                self._change(
                    ChangeKind.ACTIVE, job.tenant, at_us=job.submitted_us, job=job.id,
                    gpus=job.gpus, gpu_types=job.gpu_types, weight=job.weight,
                )  # fmt: skip
        self.changes.sort(key=lambda change: change.at_us)
        active = sorted(
            (run.job for run in self.runs if run.job.id in self.arrived and run.ended_us is None),
            key=lambda job: job.id,
        )
        return Snapshot(
            schema=1, pool=1, number=self.number, at_us=self.at_us, round_us=self.round_us,
            lease_us=self.lease_us, policy="ltgf", policy_version="1", options=self.options,
            seed=0, nodes=self.nodes,
            tenants=tuple(Tenant(i) for i in sorted({row.tenant for row in self.entitlements})),
            entitlements=self.entitlements, jobs=tuple(active),
            leases=tuple(sorted(self.leases.values(), key=lambda lease: lease.id)),
            prices=self.prices, changes=tuple(self.changes), service=self.service,
            memory=self.memory,
        )  # fmt: skip

    def round(self) -> Decision:
        """Decide, apply, and run until the next round."""
        snapshot = decode(canonical_bytes(self.snapshot()), Snapshot)
        decision = decode(canonical_bytes(decide_round(snapshot)), Decision)
        self.decisions.append(decision)
        self.service, self.memory, self.changes = decision.service, decision.memory, []
        self.prices = decision.prices
        self._apply(decision)
        self._go_on()
        return decision

    def cancel(self, job: Job) -> None:
        self._change(ChangeKind.INACTIVE, job.tenant, job=job.id)

    def _apply(self, decision: Decision) -> None:
        for end in decision.ends:
            self._release(self.leases[end.job], self.at_us)
        until_us = self.at_us + self.lease_us
        for row in decision.renewals:
            old = self.leases[row.job]
            self.leases[row.job] = Lease(
                old.id, old.job, old.tenant, old.gpu_type, old.placement, old.started_us,
                until_us, old.term + 1, row.own, row.borrowed, row.price_micro,
            )  # fmt: skip
        for grant in decision.grants:
            self.leases[grant.job] = Lease(
                self.next_lease, grant.job, grant.tenant, grant.gpu_type, grant.placement,
                self.at_us, until_us, 1, grant.own, grant.borrowed, grant.price_micro,
            )  # fmt: skip
            self.next_lease += 1
            gpus = sum(count for _, count in grant.placement)
            self._change(ChangeKind.HOLD, grant.tenant, job=grant.job, gpus=gpus)

    def _release(self, lease: Lease, at_us: int) -> None:
        del self.leases[lease.job]
        self._change(ChangeKind.RELEASE, lease.tenant, at_us=at_us, job=lease.job)
        run = self._run(lease.job)
        run.leases.append((lease.started_us, at_us, lease.placement))

    def _run(self, job_id: int) -> Run:
        return next(run for run in self.runs if run.job.id == job_id)

    def _go_on(self) -> None:
        for lease in list(self.leases.values()):
            run = self._run(lease.job)
            span_us = min(self.round_us, run.left_us)
            run.left_us -= span_us
            if not run.left_us:
                run.ended_us = self.at_us + span_us
                self._release(lease, run.ended_us)
                self._change(ChangeKind.INACTIVE, lease.tenant, at_us=run.ended_us, job=lease.job)
        self.at_us += self.round_us
        self.number += 1
