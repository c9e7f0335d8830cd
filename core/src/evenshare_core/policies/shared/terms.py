"""Own and borrowed GPUs of the terms that a round grants or renews.

Terms that go on keep theirs. The quota that is left is filled in the order (lease start, lease
id), new leases after that in pick order; the rest is borrowed at the posted price. This order
differs from the pick order, so a pick that was within quota at selection may turn out to borrow
above its limits: it is withdrawn here, and the next round goes on from there.

Source: architecture, "Own and borrowed", "Credit loop".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from evenshare_core.domain.decision import End, Grant, Renew, Skip
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason, Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.shared.admission import Admission, Refusal

_END_REASONS = {
    Reason.PRICE_ABOVE_MAX: EndReason.PRICE_ABOVE_MAX,
    Reason.BUDGET: EndReason.BUDGET,
}


def end_reason(reason: Reason) -> EndReason:
    """Why a lease ends whose renewal was refused for `reason`."""
    return _END_REASONS.get(reason, EndReason.NOT_RENEWED)


def expired_ends(
    snapshot: Snapshot, renewed: Collection[int], refused: Mapping[int, Refusal]
) -> tuple[End, ...]:
    """The leases that end by this round and are not in `renewed`, with the reason.

    `refused`: by job, what a limit said to its renewal.
    """
    gpus = {node.id: node.gpus for node in snapshot.nodes}
    expired = [lease for lease in snapshot.leases if lease.ends_by(snapshot.at_us)]
    return ends_of(expired, gpus, renewed, refused)


def ends_of(
    expired: Iterable[Lease],
    gpus: Mapping[int, int],
    renewed: Collection[int],
    refused: Mapping[int, Refusal],
) -> tuple[End, ...]:
    """The same of expired leases alone; `gpus` of each node that may be scheduled now."""
    ends = []
    for lease in sorted(expired, key=lambda lease: lease.id):
        if lease.id in renewed:
            continue
        reason = EndReason.NOT_RENEWED
        if any(gpus.get(node, 0) < count for node, count in lease.placement):
            reason = EndReason.DRAINED
        elif lease.job in refused:
            reason = end_reason(refused[lease.job].reason)
        ends.append(End(lease.id, lease.job, lease.tenant, reason))
    return tuple(ends)


class Terms(NamedTuple):
    """The terms of a round with own, borrowed and price; and what was withdrawn."""

    grants: tuple[Grant, ...]
    renewals: tuple[Renew, ...]
    ends: tuple[End, ...]
    skips: tuple[Skip, ...]


class Picked(Protocol):
    """What a policy picked, before own, borrowed and price are told; a `Decision` is one."""

    @property
    def grants(self) -> Sequence[Grant]: ...
    @property
    def renewals(self) -> Sequence[Renew]: ...
    @property
    def ends(self) -> Sequence[End]: ...
    @property
    def skips(self) -> Sequence[Skip]: ...


def settle(
    answer: Picked, admission: Admission, jobs: Mapping[int, Job], leases: Mapping[int, Lease]
) -> Terms:
    """Split every new term into own and borrowed GPUs; withdraw what may not be taken.

    `admission`: of the round, nothing taken; `jobs` and `leases` by id, at least those picked.
    """
    withdrawn: list[tuple[Job, str, Refusal]] = []
    ends, renewals, grants = list(answer.ends), [], []
    by_start = answer.renewals
    if len(by_start) > 1:
        by_start = sorted(by_start, key=lambda r: (leases[r.lease].started_us, r.lease))
    for renewal in by_start:
        job = jobs[renewal.job]
        refusal = admission.check(job, renewal.gpu_type)
        if refusal is None:
            renewals.append(_priced_renewal(renewal, admission))
            continue
        withdrawn.append((job, renewal.gpu_type, refusal))
        reason = end_reason(refusal.reason)
        ends.append(End(renewal.lease, renewal.job, renewal.tenant, reason))
    for grant in sorted(answer.grants, key=_by_order) if answer.grants else ():
        job = jobs[grant.job]
        refusal = admission.check(job, grant.gpu_type)
        if refusal is None:
            grants.append(_priced_grant(grant, job, admission))
        else:
            withdrawn.append((job, grant.gpu_type, refusal))
    if len(renewals) > 1:
        renewals.sort(key=_by_order)
    if len(ends) > 1:
        ends.sort(key=_by_lease)
    skips = (*answer.skips, *_skips(withdrawn)) if withdrawn else answer.skips
    return Terms(tuple(grants), tuple(renewals), tuple(ends), tuple(skips))


_by_order, _by_lease = attrgetter("order"), attrgetter("lease")


def _priced_renewal(renewal: Renew, admission: Admission) -> Renew:
    own, borrowed = admission.take(renewal.tenant, renewal.gpu_type, renewal.gpus)
    return Renew(
        renewal.order, renewal.lease, renewal.job, renewal.tenant, renewal.gpu_type,
        renewal.gpus, renewal.key, own, borrowed,
        admission.price_micro(renewal.gpu_type) if borrowed else 0,
    )  # fmt: skip


def _priced_grant(grant: Grant, job: Job, admission: Admission) -> Grant:
    own, borrowed = admission.take(grant.tenant, grant.gpu_type, job.gpus)
    return Grant(
        grant.order, grant.job, grant.tenant, grant.gpu_type, grant.placement, grant.key,
        own, borrowed, admission.price_micro(grant.gpu_type) if borrowed else 0,
    )  # fmt: skip


def _skips(withdrawn: list[tuple[Job, str, Refusal]]) -> list[Skip]:
    """One row per (reason, tenant, type); the numbers are of the first job in arrival order."""
    groups: dict[tuple[str, int, str], list[tuple[Job, Refusal]]] = {}
    for job, gpu_type, refusal in sorted(withdrawn, key=lambda row: arrival_order(row[0])):
        groups.setdefault((refusal.reason.value, job.tenant, gpu_type), []).append((job, refusal))
    return [
        Skip(
            reason=Reason(reason),
            tenant=tenant,
            jobs=tuple(job.id for job, _ in rows),
            gpus=sum(job.gpus for job, _ in rows),
            numbers={**rows[0][1].numbers, "gpu_type": gpu_type, "withdrawn": True},
        )
        for (reason, tenant, gpu_type), rows in sorted(groups.items())
    ]
