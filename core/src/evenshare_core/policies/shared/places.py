"""Exchange of places in the queue among the jobs of one tenant.

A place is a time of arrival. Policies order jobs by it, at least those that are equal otherwise.
Before a policy sees the jobs, the places of a tenant's candidates are dealt out again among the
same jobs. Higher priorities come first, or the person with the fewest GPUs. The tenant has the same
places as before, so other tenants see no difference. Candidates are jobs that wait and may start,
and jobs whose lease is due. Jobs with the priority `KEEPS_PLACE` take no part.

Policies order equal places by ids, which cannot be exchanged. If the order differs from that of the
ids, later ones of equal places are a microsecond apart.

A job that got a term keeps its place, and so do its tenant's other candidates (`places_after`).
Otherwise the tenant would lose the later place when that job ends, and overtake other tenants.

Source: docs/adr/0247-places-are-exchanged.md.
"""

from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from typing import Any

from msgspec.structs import replace

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.job_ranks import KEEPS_PLACE, JobRank
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.shared.backoffs import jobs_backing_off

_NO_RANK = JobRank(0)


def with_places(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the places that each tenant's own order gives to its jobs."""
    places = exchanged_places(snapshot)
    if not places:
        return snapshot
    jobs = tuple(
        replace(job, submitted_us=places[job.id]) if job.id in places else job
        for job in snapshot.jobs
    )
    return replace(snapshot, jobs=jobs)


def exchanged_places(snapshot: Snapshot) -> dict[int, int]:
    """Return the new place of each job whose place changes, in us since 1970; empty if none."""
    places: dict[int, int] = {}
    for ordered in _own_orders(snapshot).values():
        places |= _dealt(ordered, snapshot.at_us)
    return places


def places_after(
    snapshot: Snapshot, decision: Decision, superseded: Iterable[Mapping[str, Any]]
) -> dict[int, int]:
    """Return the places that jobs keep after a round, for those whose place changes.

    `superseded`: parts of the decision that were not applied, as stored with the round.
    """
    orders = _own_orders(snapshot)
    if not orders:
        return {}
    left_out = {(row["item"], row["id"]) for row in superseded}
    picked = {row.job for row in decision.grants if ("grant", row.job) not in left_out}
    picked |= {row.job for row in decision.renewals if ("renewal", row.lease) not in left_out}
    places: dict[int, int] = {}
    for ordered in orders.values():
        dealt = _dealt(ordered, snapshot.at_us)
        if dealt.keys() & picked:
            places |= dealt
    return places


def disclosed_ranks(snapshot: Snapshot) -> tuple[JobRank, ...]:
    """Return ranks that give the same places, without priorities and people."""
    rows: list[JobRank] = []
    for tenant, ordered in _own_orders(snapshot).items():
        if places := _dealt(ordered, snapshot.at_us):
            # A job that keeps its place is ranked between the others, as at its place.
            jobs = [
                (places.get(job.id, job.submitted_us), job.id)
                for job in _candidates(snapshot, {tenant})[tenant]
            ]
            rows += [JobRank(id_, -index) for index, (_, id_) in enumerate(sorted(jobs))]
    return tuple(sorted(rows, key=lambda row: row.job))


def _own_orders(snapshot: Snapshot) -> dict[int, list[Job]]:
    if not snapshot.ranks:
        return {}
    ranks = {row.job: row for row in snapshot.ranks}
    tenants = {job.tenant for job in snapshot.jobs if job.id in ranks}
    held = _held_by_person(snapshot, ranks, _going_on(snapshot))
    return {
        tenant: _ordered([job for job in jobs if _takes_part(job, ranks)], ranks, held)
        for tenant, jobs in _candidates(snapshot, tenants).items()
    }


def _candidates(snapshot: Snapshot, tenants: Collection[int]) -> dict[int, list[Job]]:
    """Return the jobs of these tenants that wait and may start, or whose lease is due."""
    going_on, late = _going_on(snapshot), jobs_backing_off(snapshot)
    candidates: dict[int, list[Job]] = {tenant: [] for tenant in sorted(tenants)}
    for job in snapshot.jobs:
        if job.tenant in tenants and job.id not in going_on and job.id not in late:
            candidates[job.tenant].append(job)
    return candidates


def _going_on(snapshot: Snapshot) -> set[int]:
    return {row.job for row in snapshot.leases if not row.ends_by(snapshot.at_us)}


def _takes_part(job: Job, ranks: Mapping[int, JobRank]) -> bool:
    return ranks.get(job.id, _NO_RANK).priority != KEEPS_PLACE


def _held_by_person(
    snapshot: Snapshot, ranks: Mapping[int, JobRank], going_on: Collection[int]
) -> dict[tuple[int, int], int]:
    """Return the GPUs in leases that continue, by (tenant, person)."""
    held: dict[tuple[int, int], int] = {}
    for lease in snapshot.leases:
        rank = ranks.get(lease.job, _NO_RANK)
        if rank.person and lease.job in going_on:
            key = lease.tenant, rank.person
            held[key] = held.get(key, 0) + lease.gpus
    return held


def _ordered(
    jobs: Iterable[Job], ranks: Mapping[int, JobRank], held: Mapping[tuple[int, int], int]
) -> list[Job]:
    """Return a tenant's candidates by (priority, arrival), or person by person.

    Each place goes to the person with the fewest GPUs, counting those held now and those of places
    dealt before it. Within a person, (priority, arrival) decides, as it does between equal people.
    """

    def key(job: Job) -> tuple[int, int, int]:
        return (-ranks.get(job.id, _NO_RANK).priority, *arrival_order(job))

    queues: dict[int, list[Job]] = {}
    for job in sorted(jobs, key=key, reverse=True):
        queues.setdefault(ranks.get(job.id, _NO_RANK).person, []).append(job)
    if len(queues) < 2:
        return [job for rows in queues.values() for job in reversed(rows)]
    gpus = {person: held.get((rows[-1].tenant, person), 0) for person, rows in queues.items()}
    turns = [(gpus[person], key(rows[-1]), person) for person, rows in queues.items()]
    heapify(turns)
    ordered = []
    while turns:
        before, _, person = turns[0]
        rows = queues[person]
        job = rows.pop()
        ordered.append(job)
        if rows:
            heapreplace(turns, (before + job.gpus, key(rows[-1]), person))
        else:
            heappop(turns)
    return ordered


def _dealt(ordered: list[Job], at_us: int) -> dict[int, int]:
    places: dict[int, int] = {}
    last_us, last_id = 0, 0
    for job, place_us in zip(ordered, sorted(job.submitted_us for job in ordered), strict=True):
        now_us = max(place_us, last_us)
        if now_us == last_us and job.id < last_id:
            now_us = min(now_us + 1, max(at_us, now_us))
        if now_us != job.submitted_us:
            places[job.id] = now_us
        last_us, last_id = now_us, job.id
    return places
