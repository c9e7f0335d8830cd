"""Immediate quota: a job within its tenant's quota takes GPUs from borrowers, with notice.

The policy serves to test how the engine, the accounts and the pages handle preemptions. It is first
come, first served. Then waiting jobs preempt leases:

- guarantee: a job whose tenant holds less than its quota ends leases of tenants that borrow;
- defragment: a gang fits on no node, although enough GPUs are free; leases of one GPU move from a
  node to other nodes.

Source: none. All orders end in (submitted, id).
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import Decision, End, Grant, Key, Preemption, Skip
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason, PreemptionRule, Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.options import Options, parse_options
from evenshare_core.policies.policy import Policy, Traits
from evenshare_core.policies.shared.ordered import QueueRule, by_arrival, decide_in_order
from evenshare_core.units import SECOND_US


class PreemptingOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options: the minimum runtime, for which a new lease is protected."""

    min_runtime_s: Annotated[
        int, Meta(ge=0, le=86_400, description="Minimum runtime, seconds.")
    ] = 0

    @property
    def min_runtime_us(self) -> int:
        return self.min_runtime_s * SECOND_US


class _Draft:
    """A decision under construction; all jobs are of one GPU type."""

    def __init__(self, snapshot: Snapshot, decision: Decision) -> None:
        self.snapshot = snapshot
        self.ends, self.grants = list(decision.ends), list(decision.grants)
        self.preemptions: list[Preemption] = []
        self.jobs = {job.id: job for job in snapshot.jobs}
        self.quotas = {row.tenant: row.gpus for row in snapshot.entitlements}
        self.waiting = [self.jobs[job] for skip in decision.skips for job in skip.jobs]
        over = {end.lease for end in decision.ends}
        self.free = Counter({node.id: node.gpus for node in snapshot.nodes})
        self.holds: Counter[int] = Counter()
        self.running = [lease for lease in snapshot.leases if lease.id not in over]
        for tenant, placement in [
            *((lease.tenant, lease.placement) for lease in self.running),
            *((grant.tenant, grant.placement) for grant in decision.grants),
        ]:
            self._take(tenant, placement)

    def _take(self, tenant: int, placement: Placement, sign: int = 1) -> None:
        for node, gpus in placement:
            self.free[node] -= sign * gpus
            self.holds[tenant] += sign * gpus

    def grant(self, job: Job, node: int) -> None:
        order = 1000 + len(self.grants)
        placement = ((node, job.gpus),)
        gpu_type = next(row.gpu_type for row in self.snapshot.nodes if row.id == node)
        self.grants.append(Grant(order, job.id, job.tenant, gpu_type, placement, Key(None, None)))
        self._take(job.tenant, placement)
        if job in self.waiting:
            self.waiting.remove(job)

    def end(self, lease: Lease, rule: PreemptionRule, winner: Job) -> None:
        moved = rule is PreemptionRule.DEFRAGMENT
        reason = EndReason.MOVED if moved else EndReason.PREEMPTED
        numbers = {"held": self.holds[winner.tenant], "quota": self.quotas.get(winner.tenant, 0)}
        self.ends.append(End(lease.id, lease.job, lease.tenant, reason))
        self.preemptions.append(
            Preemption(lease.id, lease.job, lease.tenant, rule, winner.id, winner.tenant, numbers)
        )
        self.running.remove(lease)
        self._take(lease.tenant, lease.placement, -1)
        if not moved:
            self.waiting.append(self.jobs[lease.job])

    def open_leases(self, node: int) -> list[Lease]:
        """Return the leases only on this node that may be preempted now, youngest first."""
        at_us = self.snapshot.at_us
        rows = [
            lease
            for lease in self.running
            if lease.may_be_preempted(at_us) and [place for place, _ in lease.placement] == [node]
        ]
        return sorted(rows, key=lambda lease: (-lease.started_us, -lease.id))

    def guarantee(self, job: Job) -> bool:
        """End leases of borrowers on one node until the job fits there."""
        if self.holds[job.tenant] + job.gpus > self.quotas.get(job.tenant, 0):
            return False
        for node in sorted(self.free):
            over: list[Lease] = []
            left = Counter(self.holds)
            for lease in self.open_leases(node):
                if self.free[node] + sum(row.gpus for row in over) >= job.gpus:
                    break
                if lease.tenant != job.tenant and left[lease.tenant] > self.quotas.get(
                    lease.tenant, 0
                ):
                    over.append(lease)
                    left[lease.tenant] -= lease.gpus
            spare = self.free[node] + sum(row.gpus for row in over) - job.gpus
            if over and spare >= 0:
                for lease in list(over):  # keep the leases whose GPUs are not needed
                    if lease.gpus <= spare:
                        over.remove(lease)
                        spare -= lease.gpus
                for lease in over:
                    self.end(lease, PreemptionRule.GUARANTEE, job)
                self.grant(job, node)
                return True
        return False

    def defragment(self, gang: Job) -> bool:
        """Move leases of one GPU off a node until the gang fits there."""
        if sum(self.free.values()) < gang.gpus:
            return False
        for node in sorted(self.free):
            small = [lease for lease in self.open_leases(node) if lease.gpus == 1]
            others = [other for other in sorted(self.free) if other != node and self.free[other]]
            needed = gang.gpus - self.free[node]
            if not 0 < needed <= min(len(small), len(others)):
                continue
            for lease, other in zip(small[:needed], others, strict=False):
                self.end(lease, PreemptionRule.DEFRAGMENT, gang)
                self.grant(self.jobs[lease.job], other)
            self.grant(gang, node)
            return True
        return False


class Preempting(Policy):
    """The policy of this module."""

    name = "preempting"
    version = "1"
    title = "Quota at once"
    promise = "A job within its tenant's quota takes GPUs from borrowers, with notice."
    suits = "Tests."
    order_text = "Whoever was submitted first; within quota before those who borrow."
    traits = Traits(preempts=True, preempts_running=True)
    options_type = PreemptingOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        """Decide one round."""
        parse_options(PreemptingOptions, snapshot.options)
        rule = QueueRule(order=by_arrival, queue=lambda one: (one.job.id, ""), strict=False)
        decision = decide_in_order(snapshot, rule)
        draft = _Draft(snapshot, decision)
        for job in sorted(draft.waiting, key=arrival_order):
            draft.guarantee(job) or draft.defragment(job)
        return replace(
            decision,
            ends=tuple(sorted(draft.ends, key=lambda end: end.lease)),
            grants=tuple(draft.grants),
            preemptions=tuple(draft.preemptions),
            skips=_skips(decision.skips, draft.waiting),
        )


def _skips(skips: tuple[Skip, ...], waiting: list[Job]) -> tuple[Skip, ...]:
    """Return the reasons of the jobs that still wait; a preempted job waits for its turn."""
    left = {job.id for job in waiting}
    rows = []
    for skip in skips:
        jobs = tuple(job for job in skip.jobs if job in left)
        left -= set(jobs)
        if jobs:
            rows.append(replace(skip, jobs=jobs))
    rows += [
        Skip(Reason.LEASE_TURN, job.tenant, (job.id,), job.gpus, {"needed": job.gpus})
        for job in sorted(waiting, key=arrival_order)
        if job.id in left
    ]
    return tuple(rows)


POLICY = Preempting()
