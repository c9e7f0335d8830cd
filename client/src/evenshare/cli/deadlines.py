"""Text lines about a round's answer to a job's deadline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .job_fields import LIMITS
from .terminal import inert, when


def standing_line(row: Any, before: str = "") -> str:
    """Return the state of a job's deadline after `before`; empty if the job has no deadline."""
    if not isinstance(row, Mapping):
        return ""
    standing, answer = inert(row.get("standing", "")), row.get("answer")
    if standing == "met":
        return f"{before}met, {duration_text(row.get('spare_s'))} before {when(row.get('by'))}"
    if standing in ("planned", "refused") and isinstance(answer, Mapping):
        return f"{before}{answer_line(answer)}"
    return f"{before}{standing}: {when(row.get('by'))}"


def answer_line(row: Mapping[str, Any]) -> str:
    """Return the answer to a deadline: the planned end, or why no plan meets the deadline."""
    leases = row.get("leases") or []
    if row.get("state") == "planned" and leases:
        nodes = "on one node" if row.get("one_node") else "over several nodes"
        chance = row.get("chance")
        sure = "confidence unknown" if chance is None else f"{int(chance * 1000) // 10} % likely"
        return (
            f"planned to end by {when(leases[-1].get('ends_at'))} on {inert(row.get('gpus'))}"
            f" {inert(row.get('gpu_type'))} {nodes}, {sure}"
        )
    if row.get("state") == "refused":
        earliest = row.get("earliest")
        then = f"; earliest feasible: --deadline {inert(earliest)}" if earliest else ""
        return f"refused: {LIMITS.get(str(row.get('limit')), 'no plan meets it')}{then}"
    return inert(row.get("state", ""))


def preview_line(row: Any) -> str:
    """Return the answer of a dry run to a deadline, or an empty text if the job has no deadline."""
    if not isinstance(row, Mapping):
        return ""
    answer = row.get("answer")
    if not isinstance(answer, Mapping):
        return f"deadline: {inert(row.get('text', ''))}"
    return f"deadline: {answer_line(answer)}, if nothing else changes"


def duration_text(seconds: Any) -> str:
    """Return seconds as hours, minutes and seconds."""
    minutes, rest = divmod(int(seconds or 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m{rest:02}s"
