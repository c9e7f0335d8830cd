"""When and how a program ended, by what its shim wrote down: in a pool's time, as a report has it.

A job may write in these files what it likes: what cannot be counts as not said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeGuard

from evenshare_core.domain.instants import from_us, to_us
from scheduling.engine.clock import pool_time
from scheduling.engine.executors.base import ReportState
from scheduling.models import PoolClock


@dataclass(frozen=True)
class PoolInstants:
    """Turns this machine's wall time into a pool's time."""

    clock: PoolClock
    skew: timedelta

    def pool_us(self, wall_us: object, default_us: int) -> int:
        """Return microseconds of pool time; `default_us` where a file holds no instant, or one
        that the pool's clock never shows: a job may write here what it likes."""
        if not isinstance(wall_us, int) or not 0 < wall_us < 2**53:
            return default_us
        try:
            return to_us(pool_time(self.clock, from_us(wall_us) + self.skew))
        except OverflowError:
            return default_us


def outcome(ended: Mapping[str, Any]) -> tuple[ReportState, int | None]:
    """What an exit means: of a program that was asked to stop, only 0 says it is done."""
    code, number = ended.get("code"), ended.get("signal")
    if ended.get("lost") or ended.get("never") or (ended.get("asked") and code != 0):
        return ReportState.STOPPED, None
    if _is_small(number):
        return ReportState.FINISHED, 128 + number
    return ReportState.FINISHED, code if _is_small(code) else 255


def _is_small(value: object) -> TypeGuard[int]:
    """Whether it is what the kernel says of an end: a job may write here what it likes."""
    return type(value) is int and 0 <= value < 256
