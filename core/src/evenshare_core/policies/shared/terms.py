"""Own and borrowed GPUs of the terms that a round grants or renews.

Terms that continue keep their own and borrowed GPUs. The remaining quota goes to renewals in the
order (lease start, lease id), then to new leases in pick order. All other GPUs are borrowed at the
posted price. This order differs from the pick order, so a pick that was within quota when it was
picked may borrow above its limits here. The pick is then withdrawn, and the next round tries again.
Leases may end before their expiry to make room for one job (`Decision.preemptions`), and some of
their jobs may move to other GPUs. The ends, the moves and the job's grant are one exchange. If a
limit withdraws a part of it, the whole exchange is called off and the leases continue.

Source: architecture, "Own and borrowed", "Credit loop".
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec

from evenshare_core.domain.decision import (
    Decision,
    End,
    Grant,
    Preemption,
    Renew,
    Skip,
    TermLength,
)
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason, PreemptionRule, Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.shared.admission import Admission, Refusal, Split

_END_REASONS = {
    Reason.PRICE_ABOVE_MAX: EndReason.PRICE_ABOVE_MAX,
    Reason.BUDGET: EndReason.BUDGET,
}


Term = TypeVar("Term", Grant, Renew)
NO_LENGTHS: Mapping[int, int] = MappingProxyType({})


def end_reason(reason: Reason) -> EndReason:
    """Return why a lease ends if its renewal was refused for `reason`."""
    return _END_REASONS.get(reason, EndReason.NOT_RENEWED)


def expired_ends(
    snapshot: Snapshot, renewed: Collection[int], refused: Mapping[int, Refusal]
) -> tuple[End, ...]:
    """Return the leases that end by this round and are not in `renewed`, each with the reason.

    `refused`: refused renewals, by job.
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
    """Return the ends of `expired` leases that are not in `renewed`, each with the reason.

    `gpus`: schedulable GPUs of each node. `refused`: refused renewals, by job.
    """
    ends = []
    for lease in sorted(expired, key=attrgetter("id")):
        if lease.id in renewed:
            continue
        reason = EndReason.NOT_RENEWED
        if any(gpus.get(node, 0) < count for node, count in lease.placement):
            reason = EndReason.DRAINED
        elif lease.job in refused:
            reason = end_reason(refused[lease.job].reason)
        ends.append(End(lease.id, lease.job, lease.tenant, reason))
    return tuple(ends)


class Terms(msgspec.Struct, frozen=True, gc=False):
    """The terms of a round.

    `withdrawn`: terms that a limit refused, renewals before grants. `lengths`: by job, the lengths
    of terms, where they differ from the pool's lease length.
    """

    renewed: list[tuple[Lease, Split]]
    granted: list[tuple[Grant, Split]]
    withdrawn: list[tuple[Lease | Grant, Refusal]]
    lengths: Mapping[int, int] = NO_LENGTHS


def split_terms(
    renewed: Sequence[Lease],
    grants: Sequence[Grant],
    admission: Admission,
    jobs: Mapping[int, Job],
    lengths: Mapping[int, int] = NO_LENGTHS,
) -> Terms:
    """Split every new term into own and borrowed GPUs, and withdraw terms that a limit refuses.

    `admission`: the round's admission before any pick. `jobs`: at least the jobs of the terms, by
    id. `lengths`: as in `Terms`.
    """
    length, enter = lengths.get, admission.enter
    again: list[tuple[Lease, Split]] = []
    given: list[tuple[Grant, Split]] = []
    withdrawn: list[tuple[Lease | Grant, Refusal]] = []
    for lease in sorted(renewed, key=_by_start) if len(renewed) > 1 else renewed:
        split = enter(jobs[lease.job], lease.tenant, lease.gpu_type, length(lease.job))
        if isinstance(split, Refusal):
            withdrawn.append((lease, split))
        else:
            again.append((lease, split))
    for grant in sorted(grants, key=_by_order) if len(grants) > 1 else grants:
        split = enter(jobs[grant.job], grant.tenant, grant.gpu_type, length(grant.job))
        if isinstance(split, Refusal):
            withdrawn.append((grant, split))
        else:
            given.append((grant, split))
    return Terms(again, given, withdrawn, lengths)


def withdrawn_ends(terms: Terms) -> list[End]:
    """Return the ends of leases whose renewal was withdrawn, each with the reason."""
    return [
        End(row.id, row.job, row.tenant, end_reason(refusal.reason))
        for row, refusal in terms.withdrawn
        if isinstance(row, Lease)
    ]


class Exchanges(NamedTuple):
    """The terms of a round and its valid preemptions. `called_off`: the other preemptions."""

    terms: Terms
    preemptions: tuple[Preemption, ...]
    called_off: tuple[Preemption, ...]


def settle_exchanges(
    renewed: Sequence[Lease],
    grants: Sequence[Grant],
    preemptions: Sequence[Preemption],
    admission: Callable[[Collection[int]], Admission],
    jobs: Mapping[int, Job],
    *,
    lengths: Mapping[int, int] = NO_LENGTHS,
) -> Exchanges:
    """Split the terms of a round that ends leases before their expiry.

    `admission` returns the round's admission before any pick, without the leases of the given ids.
    An exchange is called off if a limit refuses the job for which leases end, or a job that would
    move. The remaining terms are then split again, until no exchange is called off.
    """
    live, left, off = list(preemptions), list(grants), list[Preemption]()
    refusals: list[tuple[Lease | Grant, Refusal]] = []
    while True:
        limits = admission({row.lease for row in live})
        terms = split_terms(renewed, left, limits, jobs, lengths)
        broken = _called_off(terms, live)
        if not broken:
            terms = Terms(terms.renewed, terms.granted, [*terms.withdrawn, *refusals], lengths)
            return Exchanges(terms, tuple(live), tuple(off))
        refusals += [(row, broken[row.job]) for row in left if row.job in broken]
        gone = [row for row in live if row.for_job in broken]
        off += gone
        live = [row for row in live if row.for_job not in broken]
        leave_out = {*broken, *(row.job for row in gone)}
        left = [row for row in left if row.job not in leave_out]


def _called_off(terms: Terms, preemptions: Sequence[Preemption]) -> dict[int, Refusal]:
    withdrawn = {row.job: refusal for row, refusal in terms.withdrawn if isinstance(row, Grant)}
    gangs = {row.for_job for row in preemptions}
    broken = {job: refusal for job, refusal in withdrawn.items() if job in gangs}
    for row in preemptions:
        if row.rule is PreemptionRule.DEFRAGMENT and row.job in withdrawn:
            # The limit refuses the moved job. It is not why the job that needed the move waits.
            broken.setdefault(row.for_job, Refusal(Reason.LEASE_TURN))
    return broken


def settle(snapshot: Snapshot, answer: Decision) -> Decision:
    """Add the own and borrowed GPUs and the price of each term to a policy's answer.

    Withdrawn terms become ends or skips.
    """
    jobs = {job.id: job for job in snapshot.jobs}
    leases = {lease.id: lease for lease in snapshot.leases}

    def admission(preempted: Collection[int]) -> Admission:
        return Admission.of(snapshot, without=preempted)

    # Several renewals of one lease are an error, which the invariants report.
    renewals: dict[int, list[Renew]] = {}
    for renewal in answer.renewals:
        renewals.setdefault(renewal.lease, []).append(renewal)
    renewed = [leases[renewal.lease] for renewal in answer.renewals]
    lengths = {row.job: row.lease_us for row in answer.lengths}
    terms, preemptions, called_off = settle_exchanges(
        renewed, answer.grants, answer.preemptions, admission, jobs, lengths=lengths
    )
    go_on = {row.lease for row in called_off}
    ends = [end for end in answer.ends if end.lease not in go_on]
    kept_jobs = {row.job for row in called_off}
    priced = [_priced(renewals[lease.id].pop(0), split) for lease, split in terms.renewed]
    withdrawn = [(jobs[row.job], row.gpu_type, refusal) for row, refusal in terms.withdrawn]
    return msgspec.structs.replace(
        answer,
        grants=tuple(_priced(grant, split) for grant, split in terms.granted),
        renewals=tuple(sorted(priced, key=_by_order)),
        ends=tuple(sorted([*ends, *withdrawn_ends(terms)], key=_by_lease)),
        skips=(*_without(answer.skips, kept_jobs, jobs), *_skips(withdrawn)),
        preemptions=preemptions,
        lengths=_lengths(answer, terms),
    )


def _lengths(answer: Decision, terms: Terms) -> tuple[TermLength, ...]:
    """Return the lengths without those of withdrawn terms.

    The invariants report any other length without a term.
    """
    asked = {row.job for row in answer.grants} | {row.job for row in answer.renewals}
    given = {row.job for row, _ in terms.granted} | {row.job for row, _ in terms.renewed}
    gone = asked - given
    return tuple(row for row in answer.lengths if row.job not in gone)


def _without(skips: Iterable[Skip], kept: Collection[int], jobs: Mapping[int, Job]) -> list[Skip]:
    """Return the rows without jobs that keep their leases after a called-off exchange."""
    if not kept:
        return list(skips)
    rows = []
    for skip in skips:
        left = tuple(job for job in skip.jobs if job not in kept)
        if left == skip.jobs:
            rows.append(skip)
        elif left:
            gpus = sum(jobs[job].gpus for job in left)
            rows.append(Skip(skip.reason, skip.tenant, left, gpus, skip.numbers))
    return rows


_by_start = attrgetter("started_us", "id")
_by_order, _by_lease = attrgetter("order"), attrgetter("lease")


def _priced(term: Term, split: Split) -> Term:
    own, borrowed, price_micro = split
    return msgspec.structs.replace(term, own=own, borrowed=borrowed, price_micro=price_micro)


def _skips(withdrawn: list[tuple[Job, str, Refusal]]) -> list[Skip]:
    """Return a row per (reason, tenant, type), with the numbers of the first job to arrive."""
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
