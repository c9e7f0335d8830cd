"""Why jobs wait after a round of evenshare."""

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.decision import Skip
from evenshare_core.domain.jobs import Job, arrival_order
from evenshare_core.domain.reasons import EndReason, Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.claims import reported_type_first
from evenshare_core.policies.evenshare.picks import EvenPicks
from evenshare_core.policies.evenshare.progress import RoundProgress
from evenshare_core.policies.evenshare.promises import StartPromise
from evenshare_core.policies.evenshare.queues import ClaimKey, Waiting
from evenshare_core.policies.promised_start import latest_start_us
from evenshare_core.policies.shared import explain


def wait_reasons(
    candidates: list[Waiting], picks: EvenPicks, snapshot: Snapshot
) -> tuple[Skip, ...]:
    """Return why the candidates that the round did not serve wait, by group."""
    progress, promised = picks.progress, picks.promised.rows
    served = {row.job for row in progress.grants} | {row.job for row in progress.renewals}
    capacity = capacity_by_type(snapshot.nodes)
    types_of: dict[tuple[tuple[str, ...], str, int], tuple[str, ...]] = {}
    waits: dict[tuple[int, tuple[str, ...]], list[Job]] = {}
    for job, sums in candidates:
        if job.id in served or job.id in promised:
            continue
        kind = (job.gpu_types, sums.gpu_type, job.gpus)
        types = types_of.get(kind)
        if types is None:
            types = types_of[kind] = reported_type_first(capacity, job, sums.gpu_type)
        jobs = waits.get((job.tenant, types))
        if jobs is None:
            waits[job.tenant, types] = [job]
        else:
            jobs.append(job)
    queues = [
        explain.Queue(tenant, types[0], _by_arrival(jobs), None, None, None, types[1:])
        for (tenant, types), jobs in sorted(waits.items())
    ]
    rows = explain.skips(queues, progress.free_by_type, progress.admission)
    waits_for = [row for row in promised.values() if row.job not in served]
    return (*rows, *_preempted(progress, snapshot), *_promised(waits_for, snapshot))


def _promised(promises: list[StartPromise], snapshot: Snapshot) -> list[Skip]:
    """Return a row per promised job, with the latest round in which it starts."""
    tenants = {job.id: job.tenant for job in snapshot.jobs}
    return [
        Skip(
            Reason.PROMISED,
            tenants[row.job],
            (row.job,),
            row.gpus,
            {
                "gpu_type": row.gpu_type,
                "needed": row.gpus,
                "starts_us": latest_start_us(row.due_us, snapshot.at_us, snapshot.round_us),
                "held_back": sum(part.held for part in row.parts.values()),
            },
        )
        for row in sorted(promises, key=lambda row: row.order)
    ]


def _by_arrival(jobs: list[Job]) -> list[Job]:
    """Sort jobs by arrival if a group of jobs is explained by the numbers of its first job.

    The order matters only if gangs of one size have different maximum prices.
    """
    if all(job.max_price_micro is None for job in jobs):
        return jobs
    return sorted(jobs, key=arrival_order)


def _preempted(progress: RoundProgress, snapshot: Snapshot) -> list[Skip]:
    jobs = progress.pool.jobs
    types = {lease.id: lease.gpu_type for lease in snapshot.leases} if progress.ends else {}
    waits: dict[ClaimKey, list[Job]] = {}
    for end in progress.ends:
        if end.reason is EndReason.PREEMPTED:
            waits.setdefault((end.tenant, types[end.lease]), []).append(jobs[end.job])
    return [
        Skip(
            Reason.LEASE_TURN,
            key[0],
            tuple(job.id for job in sorted(rows, key=arrival_order)),
            sum(job.gpus for job in rows),
            {"gpu_type": key[1], "preempted": True},
        )
        for key, rows in sorted(waits.items())
    ]
