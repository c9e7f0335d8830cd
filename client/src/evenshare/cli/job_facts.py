"""The facts of `evenshare job show`, as names and texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .deadlines import standing_line
from .job_fields import JOB_FIELDS
from .terminal import inert, named, when


def facts(job: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a job's facts as (name, text); a text may be empty."""
    code = job.get("exit_code")
    shown = [field for field in JOB_FIELDS if field.is_shown]
    return [
        ("reason", inert(job.get("reason_code") or "")),
        ("exit code", "" if code is None else inert(code)),
        ("name", inert(job.get("name") or "")),
        ("tenant", named(job.get("tenant"))),
        ("pool", inert(job.get("pool", ""))),
        ("gpus", f"{inert(job.get('gpus', ''))} {_types(job)}".strip()),
        ("job type", inert(job.get("profile") or "")),
        ("profiling run", _profiling(job.get("profiling_s"))),
        *((f.name.replace("_", " "), _shown(job.get(f.name))) for f in shown),
        ("deadline answer", standing_line(job.get("deadline_answer"))),
        ("deadline left", _left(job.get("deadline_left_s"))),
        ("submitted", when(job.get("submitted_at"))),
        ("started", when(job.get("started_at"))),
        ("ended", when(job.get("ended_at"))),
        ("starts by", f"{when(by)} at the latest" if (by := job.get("starts_by")) else ""),
        *_queue(job.get("queue")),
        ("expected", _expected(job.get("estimate"))),
        ("expected stop", _stop(job.get("stop_estimate"))),
        ("lease", _lease(job.get("lease"))),
        ("sweep", _sweep(job.get("sweep"))),
        ("progress", _progress(job.get("progress"))),
        ("charge", inert(job.get("charge", ""))),
        ("page", inert(job.get("url", ""))),
    ]


def _profiling(seconds: Any) -> str:
    """Return when a profiling run ends."""
    return f"ends after {inert(seconds)} s on GPUs" if seconds else ""


def _shown(value: Any) -> str:
    """Return a requested value as text, with key-value pairs as on the command line."""
    if isinstance(value, Mapping):
        return " ".join(f"{inert(key)}={inert(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(inert, value))
    return inert(value or "")


def _left(seconds: Any) -> str:
    """Return the pool time until a deadline, in hours, minutes and seconds."""
    if not isinstance(seconds, int):
        return ""
    minutes, rest = divmod(abs(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h{minutes:02}m{rest:02}s"
    return text if seconds > 0 else f"none: it passed {text} ago"


def _queue(queue: Any) -> list[tuple[str, str]]:
    """Return a queued job's position and expected start."""
    if not isinstance(queue, Mapping):
        return []
    place = inert(queue.get("order", ""))
    if queue.get("position") is not None:
        place = (
            f"{inert(queue['position'])} in the pool, {inert(queue.get('tenant_position'))} of your"
            f" tenant, as of round {inert(queue.get('round'))}"
        )
    return [("queue place", place), ("start", _start(queue.get("start")))]


def _expected(estimate: Any) -> str:
    """Return a job's expected total duration, the error of the estimate, and its basis."""
    if not isinstance(estimate, Mapping):
        return ""
    basis = estimate.get("basis")
    of = f" from {inert(basis)} reports or runs" if basis else ""
    return (
        f"{inert(estimate.get('seconds'))} s, off by {inert(estimate.get('error_percent'))} %"
        f" ({inert(estimate.get('source'))}{of})"
    )


def _stop(stop: Any) -> str:
    """Return the expected iterations until the job's metric meets its criterion, and the basis."""
    if not isinstance(stop, Mapping):
        return ""
    note = stop.get("note")
    return (
        f"after {inert(stop.get('iterations'))} iterations (10 % to 90 %:"
        f" {inert(stop.get('low'))} to {inert(stop.get('high'))}), from"
        f" {inert(stop.get('evaluations'))} evaluations ({inert(stop.get('source'))}"
        f"{f': {inert(note)}' if note else ''})"
    )


def _start(start: Any) -> str:
    if not isinstance(start, Mapping):
        return "not estimated yet"
    as_of = f"as of round {inert(start.get('round'))}"
    if start.get("p50") is None:
        return f"no reliable estimate {as_of}: {inert(start.get('why', ''))}"
    late = f"after {when(start.get('simulated_until'))}"
    if start.get("p90") is not None:
        late = f"by {when(start['p90'])}"
    return f"expected about {when(start['p50'])} (p50), {late} (p90), {as_of}"


def _types(job: Mapping[str, Any]) -> str:
    return ", ".join(inert(one) for one in job.get("gpu_types") or [])


def _lease(lease: Any) -> str:
    if not isinstance(lease, Mapping):
        return ""
    nodes = ", ".join(inert(node) for node in lease.get("nodes") or [])
    held = f"{inert(lease.get('own'))} own + {inert(lease.get('borrowed'))} borrowed"
    price = f" at {inert(lease['price'])}" if lease.get("price") is not None else ""
    until = lease.get("protected_until")
    return (
        f"{inert(lease.get('number'))} until {when(lease.get('expires_at'))}"
        f"{f' on {nodes}' if nodes else ''}, {held}{price}"
        f"{f', protected until {when(until)}' if until else ''}"
    )


def _sweep(place: Any) -> str:
    """Return a job's sweep, its place there and its parameters."""
    if not isinstance(place, Mapping):
        return ""
    parameters = _shown(place.get("parameters"))
    return f"{inert(place.get('id'))}, job {inert(place.get('index'))}: {parameters}"


def _progress(progress: Any) -> str:
    if not isinstance(progress, Mapping):
        return ""
    metrics = progress.get("metrics")
    named = metrics.items() if isinstance(metrics, Mapping) else ()
    total = progress.get("total")
    parts = [f"step {inert(progress.get('step'))}{f' of {inert(total)}' if total else ''}"]
    return ", ".join(parts + [f"{inert(name)} {inert(value)}" for name, value in named])
