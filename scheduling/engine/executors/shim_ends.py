"""Combines a lease's files and the engine's observation of it into a report in pool time."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeGuard

from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.units import MICROSECOND_NS
from scheduling.engine.clock import pool_time
from scheduling.engine.executors.base import Report, ReportState, token_job, token_number
from scheduling.engine.executors.local_evaluations import parse_evaluations
from scheduling.engine.executors.local_files import (
    read_evaluations,
    read_iterations,
    read_progress,
)
from scheduling.engine.executors.local_iterations import parse_iterations
from scheduling.engine.executors.spans import EngineWord, span_of
from scheduling.models import PoolClock


@dataclass(frozen=True)
class PoolInstants:
    """Converts this machine's wall time into a pool's time."""

    clock: PoolClock
    skew: timedelta

    def pool_us(self, wall_us: int | None, default_us: int) -> int:
        """Return microseconds of pool time; `default_us` if `wall_us` is None or out of range."""
        if wall_us is None:
            return default_us
        try:
            return to_us(pool_time(self.clock, from_us(wall_us) + self.skew))
        except OverflowError:
            return default_us


def report_of(
    token: str,
    at_us: int,
    instants: PoolInstants,
    *,
    claim: Mapping[str, Any] | None,
    ended: Mapping[str, Any] | None,
    seen: EngineWord | None,
) -> Report | None:
    """Return the report at `at_us`, or None if the program has not started yet.

    If the engine does not know the token (`seen` is None), only its files are used.
    """
    if seen is None:
        if claim is None:
            return None
        if claim.get("never"):
            return Report(token, ReportState.STOPPED, at_us, at_us)
    now_us = time.time_ns() // MICROSECOND_NS
    span = span_of(seen, claim, ended, now_us)
    if span.started_us is None and span.ended_us is None:
        return None
    heard = _heard(token, span.started_us, instants.clock.scale)
    started_us = instants.pool_us(span.started_us, at_us)
    if span.ended_us is not None:
        # The program has ended. If its end is in the future, the clock or the job's file is wrong.
        is_to_come = span.ended_us >= now_us
        ended_us = at_us if is_to_come else instants.pool_us(span.ended_us, at_us)
        how = (ended if seen is None else seen.exit or ended) or {"lost": True}
        is_lost = bool(how.get("lost"))
        if ended_us <= at_us or is_lost:
            state, code = outcome(how)
            return Report(
                token, state, min(started_us, ended_us), ended_us, code,
                contradiction=span.contradiction, **heard,
            )  # fmt: skip # rows of what belongs together
    return Report(token, ReportState.RUNNING, started_us, contradiction=span.contradiction, **heard)


def _heard(token: str, started_us: int | None, scale: int) -> dict[str, Any]:
    """Return the job's own reports: progress, iterations and evaluations."""
    job, lease = token_job(token), token_number(token)
    said = parse_iterations(read_iterations(job), lease=lease, started_us=started_us, scale=scale)
    metric = parse_evaluations(read_evaluations(job), lease=lease)
    return {"progress": read_progress(job), "evaluations": metric, **said._asdict()}


def outcome(ended: Mapping[str, Any]) -> tuple[ReportState, int | None]:
    """Return how a program ended. After a request to stop, only exit code 0 is a success."""
    code, number = ended.get("code"), ended.get("signal")
    if ended.get("lost") or ended.get("never") or (ended.get("asked") and code != 0):
        return ReportState.STOPPED, None
    if _is_small(number):
        return ReportState.FINISHED, 128 + number
    return ReportState.FINISHED, code if _is_small(code) else 255


def _is_small(value: object) -> TypeGuard[int]:
    """Return whether the value is a possible exit code: a job may write anything here."""
    return type(value) is int and 0 <= value < 256
