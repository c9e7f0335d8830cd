"""Detect rounds in which leases come due and nothing else happens, so that all are renewed.

Assume that the last round tried every waiting job and gave none of them GPUs. If nothing happens,
the next round can differ for two reasons only: time has passed, and leases are due. The GPUs of a
due lease are free until its turn comes. Under the conditions below, neither has any effect. The
conditions use only the smallest gangs and points in time, so they hold for every order in which
jobs are tried:

| rule | condition under which it gives nothing |
|---|---|
| 3 | the smallest gang is larger than any node's free GPUs plus those of its due leases |
| 4 (a) | each job would lift its tenant above its quota, even without the due leases; or |
|       | the tenant is not owed GPU-time before a known time |
| 4 (b) | no job that fits on one node is new |
| 5 | fewer GPUs are free than any gang of 2 or more needs |
| 6 | no waiting gang is larger than a node and fits in the pool |

With promises, no promise is due, and no tenant starts to be owed GPU-time. A promised gang starts
early only if a node's free GPUs and those of its due leases suffice, which rule 3 excludes.

If a condition does not hold, the round is decided in full, or skipped if `quiet` allows it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from evenshare_core.fairness.gpu_time import ClaimSums
from evenshare_core.placement.consolidated import FreeCapacity
from evenshare_core.policies.evenshare.options import EvenshareOptions
from evenshare_core.policies.evenshare.picks import EvenPicks
from evenshare_core.policies.evenshare.queues import ClaimKey, Kind
from evenshare_core.policies.evenshare.quiet import below_from, has_choice_of_types, owed_from
from evenshare_core.policies.shared.renewals import NO_GANG, NONE, Least, have_no_use, least_of
from evenshare_core.policies.shared.session import KeptRound


class Calm(NamedTuple):
    """Facts that hold before `until_us` if nothing happens except that leases come due.

    `least`: the smallest gangs, by GPU type. `beyond`: for each claim, the number of GPUs by which
    the claim's smallest one-node gang would exceed its quota.
    """

    until_us: int
    least: Mapping[str, Least]
    beyond: Mapping[ClaimKey, int]

    def only_renews(self, view: KeptRound) -> bool:
        """Return whether a round renews all due leases, if nothing else happens."""
        if view.is_limited or view.at_us >= self.until_us:
            return False
        of_claim: dict[ClaimKey, int] = {}
        for lease in view.due:
            claim = (lease.tenant, lease.gpu_type)
            of_claim[claim] = of_claim.get(claim, 0) + lease.gpus
        return have_no_use(self.least, view) and all(
            gpus < self.beyond.get(claim, NONE) for claim, gpus in of_claim.items()
        )


def calm_of(
    picks: EvenPicks, claims: Mapping[ClaimKey, ClaimSums], next_mark_us: int
) -> Calm | None:
    """Return the facts that hold after a round that only renewed leases; None if unknown.

    `claims`: the sums at the round, by (tenant, GPU type).
    """
    progress, promised = picks.progress, picks.promised
    pool, options = progress.pool, progress.options
    if options.estimates != "none" or promised.is_open or has_choice_of_types(progress):
        return None
    if options.promises and options.is_tight:
        return None  # the GPUs of due leases decide which tenant gets a promise
    until_us = next_mark_us if promised.next_us is None else min(next_mark_us, promised.next_us)
    least: dict[str, Least] = {}
    beyond: dict[ClaimKey, int] = {}
    for key, kinds in pool.queues.items():
        waiting = [kind for kind, entries in kinds.items() if entries]
        if not waiting:
            continue
        free = progress.free_by_type.get(key[1])
        if free is None:
            return None
        size, gangs = free.available.size, [kind[0] for kind in waiting]
        if _may_get_room(options, waiting, free):
            return None
        small, large = least_of(gangs, size)
        known = least.get(key[1], NO_GANG)
        least[key[1]] = (min(small, known[0]), min(large, known[1]))
        mine = progress.standings[key]
        below_us = below_from(mine, claims[key], pool.at_us) if options.promises else None
        until_us = until_us if below_us is None else min(until_us, below_us)
        if not options.has_guarantee or small == NONE:
            continue
        above = mine.held + small - mine.quota
        if above > 0:
            beyond[key] = above
        elif options.is_tight or mine.is_owed():
            return None
        else:
            owed_us = owed_from(mine, claims[key], pool.at_us)
            until_us = until_us if owed_us is None else min(until_us, owed_us)
    return Calm(until_us, least, beyond)


def _may_get_room(options: EvenshareOptions, waiting: Iterable[Kind], free: FreeCapacity) -> bool:
    """Return whether rule 5 or 6, or overtaking, could give GPUs to one of these kinds."""
    size, may_pay = free.available.size, options.pays and not options.is_tight
    return any(
        size < kind[0] <= free.capacity
        or (kind[4] and may_pay and kind[0] <= size)
        or (options.moves_per_round and 2 <= kind[0] <= free.unheld.total)
        for kind in waiting
    )
