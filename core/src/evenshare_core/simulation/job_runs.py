"""A job of a simulated pool while it is active."""

from __future__ import annotations

from dataclasses import dataclass

from evenshare_core.simulation.workloads import SimJob
from evenshare_core.units import ONE_MILLI


@dataclass(slots=True)
class Run:
    """A job that has arrived and is not over: its work and its present lease."""

    job: SimJob
    done_us: int = 0
    started_us: int | None = None  # of its first lease
    leases: int = 0
    lease: int = 0  # 0: it waits
    ends_us: int = 0
    lasts_us: int = 0  # the present term
    overhead_us: int = 0  # of the present lease, so far
    speed_milli: int = ONE_MILLI
