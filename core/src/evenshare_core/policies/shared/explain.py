"""Reasons why jobs wait: one reason per job, grouped, with the numbers that explain it.

A job gets the first reason in this list that applies, given the GPUs left at the end of the round:

1. the gang is larger than its GPU type;
2. a limit of the job or its tenant (quota, price, credit) refuses it;
3. owners do not lend their idle GPUs;
4. its tenant was taken out of the round (line 17);
5. GPUs are held back for a gang;
6. other jobs were served first, with GPUs that the job could have used;
7. too few GPUs are free;
8. enough GPUs are free, but not on one node.

A job therefore never gets the reason "no free GPUs" while a limit of its tenant refuses it.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from evenshare_core.domain.decision import Skip
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.reasons import Reason
from evenshare_core.placement.consolidated import FreeCapacity
from evenshare_core.policies.shared.admission import Admission

FITS_TEXT = "The job fits on one node and, with all GPUs that its tenant holds, within quota."
Why = tuple[Reason, dict[str, Any]]


class Queue(NamedTuple):
    """The waiting jobs of one tenant and GPU type, with the facts from which reasons follow.

    `own_rho`: the tenant's rho with this round's charges. `served_rho`: the highest rho of a served
    tenant. `passed_over`: the job that took the tenant out of the round, or None. `others`: other
    GPU types that these jobs accept; none had room.
    """

    tenant: int
    gpu_type: str
    jobs: list[Job]
    own_rho: float | None
    served_rho: float | None
    passed_over: int | None
    others: tuple[str, ...] = ()


def skips(
    queues: Iterable[Queue], free_by_type: dict[str, FreeCapacity], admission: Admission
) -> list[Skip]:
    """Group waiting jobs by reason. Return one row per (tenant, GPU type, reason)."""
    rows = []
    for queue in queues:
        rows += _queue_skips(queue, free_by_type[queue.gpu_type], admission)
    return rows


def _queue_skips(queue: Queue, free_capacity: FreeCapacity, admission: Admission) -> list[Skip]:
    # The reason depends only on a gang's size and maximum price, so each pair is tested once.
    alike: dict[tuple[int, int | None], list[Job]] = {}
    passed_over = queue.passed_over
    for job in queue.jobs:
        kind = (job.gpus, job.max_price_micro if job.id != passed_over else -1)
        same = alike.get(kind)
        if same is None:
            alike[kind] = [job]
        else:
            same.append(job)
    groups: dict[str, list[list[Job]]] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for _, jobs in sorted(alike.items(), key=lambda row: row[0][0]):
        reason, why = _why(jobs[0], queue, free_capacity, admission)
        # numbers of the smallest gang, which is closest to fitting
        numbers.setdefault(reason.value, why)
        groups.setdefault(reason.value, []).append(jobs)
    return [
        _skip(queue, Reason(reason), groups[reason], numbers[reason]) for reason in sorted(groups)
    ]


def _skip(queue: Queue, reason: Reason, alike: list[list[Job]], numbers: dict[str, Any]) -> Skip:
    arrivals = [(job.submitted_us, job.id) for jobs in alike for job in jobs]
    arrivals.sort()
    also = {"other_types": list(queue.others)} if queue.others else {}
    return Skip(
        reason=reason,
        tenant=queue.tenant,
        jobs=tuple([job_id for _, job_id in arrivals]),
        gpus=sum(jobs[0].gpus * len(jobs) for jobs in alike),
        numbers={"gpu_type": queue.gpu_type, **numbers, **also},
    )


def _why(job: Job, queue: Queue, free_capacity: FreeCapacity, admission: Admission) -> Why:
    gpus = job.gpus
    if gpus > free_capacity.capacity:
        return Reason.TOO_LARGE, {"needed": gpus, "capacity": free_capacity.capacity}
    refusal = admission.check(job, queue.gpu_type)
    if refusal is not None:
        return refusal.reason, refusal.numbers
    if queue.passed_over is not None and queue.passed_over != job.id:
        return Reason.TENANT_PASSED_OVER, {"first_job": queue.passed_over, "needed": gpus}
    return _why_no_room(gpus, queue, free_capacity)


def _why_no_room(gpus: int, queue: Queue, free_capacity: FreeCapacity) -> Why:
    """Return why a gang that no limit refuses found no room."""
    left, held = free_capacity.available.total, sum(free_capacity.held_back.values())
    if held and free_capacity.would_fit_unheld(gpus):
        return Reason.RESERVED_FOR_GANG, {"needed": gpus, "free": left, "held_back": held}
    if free_capacity.fitted_at_start(gpus):
        numbers = {"needed": gpus, "own_rho": queue.own_rho, "served_rho": queue.served_rho}
        return Reason.LEASE_TURN, numbers
    free = free_capacity.start_total
    if free < gpus:
        return Reason.NO_FREE_GPUS, {"needed": gpus, "free": free}
    return Reason.FRAGMENTED, {
        "needed": gpus,
        "free": free,
        "largest_hole": free_capacity.start_largest_free,
    }
