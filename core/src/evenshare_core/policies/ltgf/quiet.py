"""The time until which no round grants anything, after a round that granted nothing.

This assumes that nothing happens. While nothing fits, the order of jobs makes no difference. Time
only changes which job is first in line: the first job of the tenant with the lowest rho.
Reservations record this job and the time of its first skip. From bounds on the values that change
with time, this module computes a time until which the same job is first.

| value | its change while nothing happens |
|---|---|
| rho of a tenant (12) | (a + p t) / (b + q t): between its values at both ends |
| rho of a waiting job (15) | falls, at most as fast as if its share were not rounded down |

Quotients of integers are rounded to the nearest float, which preserves their order.
"""

from collections.abc import Collection, Mapping
from math import inf
from typing import NamedTuple

from evenshare_core.fairness.gpu_time import ClaimSums, job_received
from evenshare_core.policies.ltgf.options import LtgfOptions
from evenshare_core.policies.ltgf.picks import LtgfPicks
from evenshare_core.policies.ltgf.queues import LtgfCandidate, TenantClaim
from evenshare_core.policies.shared.renewals import NO_GANG, Least, have_no_use, least_of
from evenshare_core.policies.shared.reservation import Reservations
from evenshare_core.policies.shared.session import KeptRound


class EmptyRound(NamedTuple):
    """Inputs of a round on kept state that granted nothing, with its reservations."""

    view: KeptRound
    tenants: list[TenantClaim]
    pick: LtgfPicks
    reservations: Reservations
    options: LtgfOptions


class _Rival(NamedTuple):
    """A tenant's claim whose sums grow linearly: (12) is (alloc + held t) / (fair + share t)."""

    alloc: int
    held: int
    fair: int
    share: int

    def rho(self, span_us: int) -> float:
        """Return rho after `span_us`.

        If the fair share is 0, rho is 0 for a claim without GPU-time, and inf for any other claim.
        """
        fair = self.fair + self.share * span_us
        alloc = self.alloc + self.held * span_us
        if fair:
            return alloc / fair
        return inf if alloc else 0.0

    def is_smooth(self) -> bool:
        """Return whether rho stays defined, or stays undefined, from now on."""
        return bool(self.fair or not (self.share or (self.held and not self.alloc)))


def stays_until(last: EmptyRound) -> int:
    """Return until when, in us, rounds decide the same as this round, which granted nothing.

    Return the round's own time if this is unknown. It is unknown with several GPU types, or with
    rewards that depend on the clock. It is also unknown if a limit refused a job, so that another
    job came first.
    """
    view, pick = last.view, last.pick
    at_us = view.at_us
    if len(pick.free_by_type) != 1 or last.options.hooked or pick.refused:
        return at_us
    waiting = [claim for claim in last.tenants if claim.queue]
    if not waiting:
        return at_us
    first = min(waiting, key=lambda claim: (*claim.rank(), _arrival(claim.queue[0])))
    head = first.queue[0]
    gpus = {one.job.id: one.job.gpus for claim in waiting for one in claim.queue}
    held_us = last.reservations.stays_until(first.gpu_type, gpus)
    until_us = at_us + view.lease_us if held_us is None else min(held_us, at_us + view.lease_us)
    known = last.reservations
    rows = view.sums.claims
    behind = [
        one
        for one in first.queue[1:]
        if one.job.id not in known and not _is_always_behind(one, head)
    ]
    others = [claim for claim in waiting if claim is not first and _has_other(claim, known)]
    if any((claim.tenant, claim.gpu_type) not in rows for claim in (first, *others)):
        return at_us
    sums = rows[first.tenant, first.gpu_type]
    by_quota = last.options.deserves_quota
    leader = _rival(first, sums, by_quota=by_quota)
    rivals = [
        _rival(claim, rows[claim.tenant, claim.gpu_type], by_quota=by_quota) for claim in others
    ]
    if rivals and not all(one.is_smooth() for one in (leader, *rivals)):
        return at_us
    span_us = until_us - at_us
    while span_us >= view.round_us > 0:
        highest = max(leader.rho(0), leader.rho(span_us))
        if all(highest < min(one.rho(0), one.rho(span_us)) for one in rivals) and all(
            head.rank[1] < _least_rho(one, first, sums, at_us, span_us) for one in behind
        ):
            return at_us + span_us
        span_us //= 2
    return at_us


class CalmQueues(NamedTuple):
    """Facts after a round without grants.

    They hold before `until_us`, or always if it is None, if nothing happens except that leases come
    due. `least`: the smallest waiting gangs, by GPU type.
    """

    until_us: int | None
    least: Mapping[str, Least]

    def only_renews(self, view: KeptRound) -> bool:
        """Return whether all due leases are renewed in a round in which nothing else happens.

        Reservations need no update: the first job in line is already in them, or its lease is
        renewed.
        """
        is_over = self.until_us is not None and view.at_us >= self.until_us
        return not (is_over or view.is_limited) and have_no_use(self.least, view)


def calm_queues(last: EmptyRound, until_us: int | None) -> CalmQueues | None:
    """Return the facts for rounds in which leases come due.

    `until_us`: the result of `stays_until`. Return None if GPUs are held back, since they could be
    GPUs of a due lease. Also return None if a limit applied, since renewals may then change how
    much others may borrow.
    """
    if last.view.is_limited or last.reservations.gangs():
        return None
    least: dict[str, Least] = {}
    for claim in last.tenants:
        # If gangs may span nodes, no gang needs to fit on one.
        size = 0 if last.options.spread else last.pick.free_by_type[claim.gpu_type].available.size
        small, large = least_of([one.job.gpus for one in claim.queue], size)
        known = least.get(claim.gpu_type, NO_GANG)
        least[claim.gpu_type] = (min(small, known[0]), min(large, known[1]))
    return CalmQueues(until_us, least)


def _arrival(one: LtgfCandidate) -> tuple[int, int]:
    return one.job.submitted_us, one.job.id


def _has_other(claim: TenantClaim, known: Collection[int] | Reservations) -> bool:
    return any(one.job.id not in known for one in claim.queue)


def _is_always_behind(one: LtgfCandidate, head: LtgfCandidate) -> bool:
    """Return whether a job that is behind the first job now can never come before it."""
    mine, best = one.sums, head.sums
    if one.rank[0] != head.rank[0]:
        return True
    if not (best.alloc_gpu_us or best.held):  # the first job never ran, so its rho is 0
        return True
    return (  # the job is of the first job's class, deserves no more, and received no less
        (mine.demand, mine.weight) == (best.demand, best.weight)
        and mine.baseline_gpu_us >= best.baseline_gpu_us
        and mine.alloc_gpu_us >= best.alloc_gpu_us
        and _arrival(one) > _arrival(head)
    )


def _rival(claim: TenantClaim, row: ClaimSums, *, by_quota: bool) -> _Rival:
    share = row.quota if by_quota else min(row.demand, row.quota)
    return _Rival(claim.alloc, row.held, claim.fair, share)


def _least_rho(
    one: LtgfCandidate, claim: TenantClaim, row: ClaimSums, at_us: int, span_us: int
) -> float:
    """Return a lower bound on a waiting job's rho during the next `span_us`."""
    sums = one.sums
    fair = claim.classes[sums.demand, sums.weight].fair_gpu_us - sums.baseline_gpu_us
    share = min(row.demand, row.quota) * sums.weight * span_us // row.weights
    fair += min(sums.demand * span_us, share)
    return job_received(sums, at_us) / fair if fair else inf
