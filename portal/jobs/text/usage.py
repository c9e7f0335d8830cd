"""Data of templates/jobs/_usage.html: a job's resource usage as a sentence, charts and notes."""

from collections.abc import Sequence
from hashlib import blake2s
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _

from evenshare_core.domain.reason_texts import GPU_STATES
from portal.charts.explore.job_usage import size_text, usage_charts
from portal.charts.figures import duration, percent, plural, thousands
from portal.common.clocks import Clocks
from scheduling.engine.executors.local_spec import CPU
from scheduling.engine.executors.local_usage import GpuState
from scheduling.models import Job, Lease
from scheduling.selectors.stored_texts import STORED
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
            "usage_charts": usage_charts(
                usage, gpus=started[-1].gpus, file="usage-" + str(job.uid)
            ),
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
    return _("After {time} of pool time, its lease is not renewed, and the job is held.").format(
        time=duration(after_s)
    )


def usage_digest(job: Job, usage: JobUsage) -> str:
    """Return a digest that changes exactly when the region would."""
    return blake2s(repr((job.is_active, usage)).encode(), digest_size=8).hexdigest()


def usage_sentence(usage: JobUsage, *, is_active: bool) -> str:
    """Return the average usage as one line."""
    if not usage.points:
        nothing_yet = _("Resource usage: no samples yet")
        return nothing_yet if is_active else _("Resource usage: no samples")
    cores = mean_of(usage.points, "cores")
    memory = mean_of(usage.points, "memory_bytes")
    busy = mean_of(usage.points, "busy")
    parts = [_("{count} cores").format(count=thousands(cores, 2))]
    if memory is not None:
        parts.append(_("{size} of memory").format(size=size_text(memory)))
    if busy is not None:
        parts.append(_("GPUs at {percent}").format(percent=percent(busy / 1000)))
    used = ", ".join(parts)
    if usage.leases[-1].ended_at is None:
        return _("Uses on average: {resources}").format(resources=used)
    return _("Used on average: {resources}").format(resources=used)


def usage_notes(usage: JobUsage) -> list[str]:
    """Return a sentence per unknown figure, with the reason."""
    notes = []
    newest = usage.leases[-1] if usage.leases else None
    has_gpus = newest is not None and newest.gpu_type != CPU
    if newest is not None and newest.nodes and has_gpus and newest.gpu_state is not GpuState.OK:
        reason = _(GPU_STATES[newest.gpu_state])
        notes.append(_("GPU use is not reported: {reason}.").format(reason=reason))
    if newest is not None and 0 < newest.gpus_known < newest.gpus:
        notes.append(
            _("GPU figures of lease {lease} cover {known} of its {count} GPUs.").format(
                lease=thousands(newest.number),
                known=thousands(newest.gpus_known),
                count=thousands(newest.gpus),
            )
        )
    if newest is not None and 0 < newest.nodes < newest.of_nodes:
        notes.append(
            _("Samples cover {known} of the {count} nodes of lease {lease}.").format(
                lease=thousands(newest.number),
                known=thousands(newest.nodes),
                count=thousands(newest.of_nodes),
            )
        )
    refused = [line for lease in usage.leases for line in lease.refused]
    if refused:
        notes.append(_refused_text(refused))
    if usage.cut:
        notes.append(_("Earlier leases are not shown."))
    return notes


def _refused_text(refused: Sequence[str]) -> str:
    last = STORED.shown(refused[-1])
    if len(refused) == 1:
        return _("Unusable samples: {file}.").format(file=last)
    more = plural(len(refused) - 1, "more file")
    return _("Unusable samples: {file} and {more}.").format(file=last, more=more)
