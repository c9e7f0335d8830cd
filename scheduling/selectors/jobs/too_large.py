"""Jobs that need more GPUs than the pool has, or than are schedulable now.

A round counts only schedulable GPUs, so its reason is the same in both cases. The pool's size is
read when the reason is shown.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from django.db.models import Q, Sum

from evenshare_core.domain.reason_texts import LARGER_THAN_POOL, UNSCHEDULABLE
from evenshare_core.domain.reasons import Reason
from scheduling.models import Job, Node
from scheduling.selectors.jobs.reasons import ReasonText, why, written


class TypeSize(NamedTuple):
    """GPUs of one type that a pool has, and how many of them are drained or down."""

    gpus: int
    away: int


Sizes = Mapping[str, TypeSize]


def read_sizes(pools: Iterable[int]) -> dict[int, dict[str, TypeSize]]:
    """Return the number of GPUs of pools, by pool and GPU type."""
    wanted = set(pools)
    if not wanted:
        return {}
    sizes: dict[int, dict[str, TypeSize]] = {pool: {} for pool in wanted}
    away = ~Q(effective_state=Node.State.UP)
    rows = Node.objects.filter(pool__in=wanted).values_list("pool", "gpu_type__name")
    for pool, name, gpus, gone in rows.annotate(Sum("gpus"), gone=Sum("gpus", filter=away)):
        if pool is not None:
            sizes[pool][name] = TypeSize(gpus, gone or 0)
    return sizes


def why_now(job: Job, code: str, numbers: Mapping[str, Any] | None = None) -> ReasonText:
    """Return why a job waits at present; if it is too large, with the pool's current size."""
    if code != Reason.TOO_LARGE:
        return why(code, numbers)
    return why_of_job(job, code, read_sizes([job.pool_id])[job.pool_id], numbers)


def why_of_job(
    job: Job, code: str, sizes: Sizes, numbers: Mapping[str, Any] | None = None
) -> ReasonText:
    """Return the reason as in `why_now`, from the sizes of pools. The job type must be loaded."""
    if code != Reason.TOO_LARGE:
        return why(code, numbers)
    return why_too_large(job.gpus, _accepted(job, sizes), sizes, numbers)


def why_too_large(
    needed: int, accepted: Collection[str], sizes: Sizes, numbers: Mapping[str, Any] | None = None
) -> ReasonText:
    """Return why a job that needs `needed` GPUs is too large for the pool.

    Either no accepted type has enough GPUs, or too many of them are drained or down now. `numbers`:
    those of the round's reason; unlike `sizes`, they exclude nodes in maintenance.
    """
    able = {name: size for name, size in sizes.items() if name in accepted}
    recorded = numbers or {}
    fitting = [name for name, size in able.items() if size.gpus >= needed]
    if not fitting:
        largest = max(able, key=lambda name: able[name].gpus, default="")
        capacity = able[largest].gpus if largest else 0
        shown = {"needed": needed, "capacity": capacity, "gpu_type": largest}
        return written(
            Reason.TOO_LARGE, LARGER_THAN_POOL, shown, now=len(sizes) > 1 and bool(largest)
        )
    name = recorded.get("gpu_type", "")
    if name not in fitting:
        name = max(fitting, key=lambda one: able[one].gpus)
    gpus, away = able[name]
    if name == recorded.get("gpu_type") and "capacity" in recorded:
        away = max(away, gpus - recorded["capacity"])
    if not away:  # the missing nodes are back since the round, or are in maintenance
        return written(Reason.TOO_LARGE, UNSCHEDULABLE, None)
    shown = {"needed": needed, "gpus": gpus, "away": away, "gpu_type": name}
    return written(Reason.TOO_LARGE, UNSCHEDULABLE, shown)


def _accepted(job: Job, sizes: Sizes) -> set[str]:
    names = {name for name in sizes if not job.gpu_types or name in job.gpu_types}
    if job.profile is not None:
        names &= {name for name, speed in job.profile.speedups.items() if speed}
    return names
