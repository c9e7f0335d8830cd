"""The time until which no round grants anything, after a round that granted nothing.

This assumes that nothing happens: no job is submitted, ends or is cancelled, no lease expires, and
no node changes. Without estimates, a round's grants then depend on time in six ways:

| what depends on time | when it may change the grants |
|---|---|
| the decayed sums | at the next mark; between marks they are linear |
| guarantee | when a tenant whose job it would serve starts to be owed GPU-time |
| preemptible and movable jobs | when a lease has run for the minimum runtime |
| the restart budget | when a job has run long enough to pay for a restart |
| rule 5 | when a job becomes long, so that its lease may end for a new job |
| gangs that overtake | when a job becomes long, or a gang comes before it after a long wait |

The order in which jobs are tried changes with the tenants' keys, and for long jobs with their lag.
This makes no difference: while nothing is granted, each job is tried on the same free GPUs. If a
job's failure excludes other jobs (`_failed` of a round), it must exclude them in any order. It
does, since a larger gang needs everything that a smaller one needs. There are two exceptions. Rule
4 (b) remembers failures by tenant, and the new jobs of a tenant are tried in one order. A gang over
several nodes may have room although a smaller gang finds no node. The large gang may then wait only
because of the order, so nothing is known. Victims of one size receive GPU-time at the same rate, so
their order stays.
"""

from collections.abc import Mapping
from typing import NamedTuple

from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import JobService
from evenshare_core.fairness.gpu_time import ClaimSums
from evenshare_core.placement.defragmentation import MOVABLE_GPUS
from evenshare_core.policies.evenshare.gangs import Gang, overtaken_from, waiting_gangs
from evenshare_core.policies.evenshare.picks import EvenPicks
from evenshare_core.policies.evenshare.progress import RoundProgress
from evenshare_core.policies.evenshare.queues import (
    HEAD_START_US,
    LONG_GPU_US,
    ClaimKey,
    TenantStanding,
)


class _Rules(NamedTuple):
    """The rules that could make room for a waiting job.

    `guarantee`, `defragment`: the GPU types to which the guarantee or rule 6 applies. `pays`:
    tenants with new jobs, by type. `gangs`: gangs that may overtake, by type.
    """

    guarantee: set[str]
    defragment: set[str]
    pays: dict[str, set[int]]
    gangs: dict[str, list[Gang]]


def stays_until(picks: EvenPicks, claims: Mapping[ClaimKey, ClaimSums], next_mark_us: int) -> int:
    """Return until when, in us, rounds decide the same as this round, which granted nothing.

    `claims`: the sums at the time of the round, by (tenant, GPU type). Return the round's own time
    if nothing is known about later rounds:

    - with estimates, since keys and ranks change with time;
    - if a waiting job accepts several GPU types, since its claim may move with time;
    - if a gang over several nodes has room, but a smaller gang failed before it (rule 3).
    """
    progress, promised = picks.progress, picks.promised
    pool, options = progress.pool, progress.options
    if options.estimates != "none" or promised.is_open or has_choice_of_types(progress):
        return pool.at_us
    rules = _Rules(set(), set(), {}, {})
    until_us = next_mark_us if promised.next_us is None else min(next_mark_us, promised.next_us)
    for key, kinds in pool.queues.items():
        gangs = [kind[0] for kind, entries in kinds.items() if entries]
        if not gangs:
            continue
        gpu_type = key[1]
        free = progress.free_by_type.get(gpu_type)
        if free is None or any(
            free.available.size < gpus <= free.available.total for gpus in gangs
        ):
            return pool.at_us
        if any(2 <= gpus <= free.unheld.total for gpus in gangs) and options.moves_per_round:
            rules.defragment.add(gpu_type)
        is_new = any(kind[4] for kind, entries in kinds.items() if entries)
        if is_new and options.pays and not options.is_tight:
            rules.pays.setdefault(gpu_type, set()).add(key[0])
        gangs_of_claim = waiting_gangs(progress, key, kinds, claims[key])
        rules.gangs.setdefault(gpu_type, []).extend(gangs_of_claim)
        mine = progress.standings[key]
        below_us = below_from(mine, claims[key], pool.at_us) if options.promises else None
        until_us = until_us if below_us is None else min(until_us, below_us)
        if not options.has_guarantee or mine.held + min(gangs) > mine.quota:
            continue
        if options.is_tight or mine.is_owed():
            rules.guarantee.add(gpu_type)
        else:
            owed_us = owed_from(mine, claims[key], pool.at_us)
            until_us = until_us if owed_us is None else min(until_us, owed_us)
    return _until_victims(progress, rules, until_us, claims)


def has_choice_of_types(progress: RoundProgress) -> bool:
    """Return whether a waiting job could use a type of the pool that it does not claim."""
    offered = {name for name, free in progress.free_by_type.items() if free.capacity}
    return any(
        entries and not offered.isdisjoint({*(kind[1] or offered)} - {gpu_type})
        for (_, gpu_type), kinds in progress.pool.queues.items()
        for kind, entries in kinds.items()
    )


def owed_from(mine: TenantStanding, claim: ClaimSums, at_us: int) -> int | None:
    """Return when the guarantee first owes a tenant GPUs (`is_owed`); None if never."""
    falls = 19 * mine.share - 20 * claim.held
    if falls <= 0:
        return None
    return at_us + (20 * mine.received - 19 * mine.deserved) // falls + 1


def below_from(mine: TenantStanding, claim: ClaimSums, at_us: int) -> int | None:
    """Return when a tenant's key first falls below 1, from when it gets promises; None if never."""
    due_us = mine.deserved + HEAD_START_US * mine.share
    if mine.received < due_us or mine.share <= claim.held:
        return None
    return at_us + (mine.received - due_us) // (mine.share - claim.held) + 1


def _until_victims(
    progress: RoundProgress, rules: _Rules, until_us: int, claims: Mapping[ClaimKey, ClaimSums]
) -> int:
    """Return when a lease that cannot end or move for a waiting job now could first do so."""
    if not (rules.guarantee or rules.defragment or rules.pays or rules.gangs):
        return until_us
    pool, least_us = progress.pool, progress.options.min_runtime_us
    at_us, nobody = pool.at_us, set[int]()
    spares: dict[ClaimKey, int] = {}
    for lease in pool.running():
        if len(lease.placement) != 1:
            continue
        gpu_type, gpus, key = lease.gpu_type, lease.placement[0][1], (lease.tenant, lease.gpu_type)
        spare = spares.get(key)
        if spare is None:
            spare = spares[key] = progress.standings[key].spare
        may_lose = spare >= gpus
        payers = rules.pays.get(gpu_type, nobody)
        pays = bool(payers) and (may_lose or lease.tenant in payers)
        guarantees = may_lose and gpu_type in rules.guarantee
        moves = gpus <= MOVABLE_GPUS and gpu_type in rules.defragment
        gangs = rules.gangs.get(gpu_type)
        if not (pays or guarantees or moves or gangs) or lease.job not in pool.jobs:
            continue
        row = pool.sums[lease.job]
        if row.held != gpus:
            return at_us
        instant_us = _preemptible_from(lease, least_us)
        if gangs:
            claim = claims[row.tenant, row.gpu_type]
            overtaken_us = overtaken_from(
                progress, lease, instant_us, gangs, claim, may_lose=may_lose
            )
            until_us = until_us if overtaken_us is None else min(until_us, overtaken_us)
        paid_us = progress.restarts.pays_from(lease) if pays else None
        ends_us = _from_when(row, instant_us, at_us, paid_us, by_age=guarantees or moves)
        until_us = until_us if ends_us is None else min(until_us, ends_us)
    return until_us


def _from_when(
    row: JobService, instant_us: int, at_us: int, paid_us: int | None, *, by_age: bool
) -> int | None:
    """Return when a lease on one node could first end or move for a waiting job, or None if never.

    `instant_us`: when the lease may be preempted. `by_age`: whether it may end from then on.
    `paid_us`: from when the restart budget allows rule 5 to end it, once its job is long, or None.
    """
    if not by_age or instant_us <= at_us:
        if paid_us is None:
            return None
        long_us = row.held_since_us + (LONG_GPU_US - row.alloc_gpu_us) // row.held + 1
        instant_us = max(instant_us, long_us, paid_us)
    return instant_us if instant_us > at_us else None


def _preemptible_from(lease: Lease, min_runtime_us: int) -> int:
    return max(lease.protected_until_us, lease.started_us + min_runtime_us)
