"""Data of templates/jobs/_usage.html: a job's resource usage as a sentence, charts and notes."""

from collections.abc import Sequence
from hashlib import blake2s
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from evenshare_core.domain.reason_texts import GPU_STATES
from portal.charts.explore.job_usage import size_text, usage_charts
from portal.charts.figures import duration, percent, plural, thousands
from portal.common.clocks import Clocks
from scheduling.engine.executors.local_spec import CPU
from scheduling.engine.executors.local_usage import GpuState
from scheduling.models import Job, Lease
from scheduling.services.usage import JobUsage, job_usage, reports_usage
from scheduling.services.usage_points import mean_of

# The sampling interval of a lease that has just started.
POLL_S = 10


def usage_context(job: Job, leases: Sequence[Lease], clock: Clocks) -> dict[str, Any]:
    """Return the data of the region; `usage` is None if the pool's jobs are not sampled.

    `leases` are the job's newest, in order of their numbers, with their GPU types. Leases that
    never started are ignored.
    """
    if not reports_usage(job):
        return {"usage": None}
    started = [lease for lease in leases if lease.started_at is not None]
    usage = job_usage(job, leases, now=clock.now.pool_at, scale=clock.now.scale)
    digest = usage_digest(job, usage)
    context: dict[str, Any] = {
        "usage": usage,
        "usage_begun": bool(started),
        "usage_digest": digest,
        "usage_url": f"{reverse('job-usage', args=[job.uid])}?{urlencode({'seen': digest})}",
        "usage_poll_s": POLL_S,
    }
    if started:
        context |= {
            "usage_title": usage_sentence(usage, is_active=job.is_active),
            "usage_charts": usage_charts(usage, gpus=started[-1].gpus, file=f"usage-{job.uid}"),
            "usage_notes": usage_notes(usage),
            "usage_idle": clock.instant(usage.idle_since),
            "usage_idle_text": _idle_text(job, usage),
        }
    return context


def _idle_text(job: Job, usage: JobUsage) -> str:
    """Return what follows for the job if all its GPUs idle, or an empty text."""
    after_s = job.pool.idle_return_s
    if usage.idle_since is None or not after_s:
        return ""
    return (
        f" After {duration(after_s)} of pool time, its lease is not renewed, and the job is held."
    )


def usage_digest(job: Job, usage: JobUsage) -> str:
    """Return a digest that changes exactly when the region would."""
    return blake2s(repr((job.is_active, usage)).encode(), digest_size=8).hexdigest()


def usage_sentence(usage: JobUsage, *, is_active: bool) -> str:
    """Return the average usage as one line."""
    if not usage.points:
        return "Resource usage: no samples yet" if is_active else "Resource usage: no samples"
    cores = mean_of(usage.points, "cores")
    memory = mean_of(usage.points, "memory_bytes")
    busy = mean_of(usage.points, "busy")
    held = "" if memory is None else f" and {size_text(memory)} of memory"
    gpus = "" if busy is None else f", its GPUs at {percent(busy / 1000)}"
    verb = "Uses" if usage.leases[-1].ended_at is None else "Used"
    return f"{verb} {thousands(cores, 2)} cores{held} on average{gpus}"


def usage_notes(usage: JobUsage) -> list[str]:
    """Return a sentence per unknown figure, with the reason."""
    notes = []
    newest = usage.leases[-1] if usage.leases else None
    has_gpus = newest is not None and newest.gpu_type != CPU
    if newest is not None and newest.nodes and has_gpus and newest.gpu_state is not GpuState.OK:
        notes.append(f"GPU use is not reported: {GPU_STATES[newest.gpu_state]}.")
    if newest is not None and 0 < newest.gpus_known < newest.gpus:
        notes.append(
            f"GPU figures of lease {thousands(newest.number)} cover"
            f" {thousands(newest.gpus_known)} of its {thousands(newest.gpus)} GPUs."
        )
    if newest is not None and 0 < newest.nodes < newest.of_nodes:
        notes.append(
            f"Samples cover {thousands(newest.nodes)} of the {thousands(newest.of_nodes)} nodes"
            f" of lease {thousands(newest.number)}."
        )
    refused = [line for lease in usage.leases for line in lease.refused]
    if refused:
        more = f" and {plural(len(refused) - 1, 'more file')}" if len(refused) > 1 else ""
        notes.append(f"Unusable samples: {refused[-1]}{more}.")
    if usage.cut:
        notes.append("Earlier leases are not shown.")
    return notes
