"""A job of a simulated pool while it is active."""

from dataclasses import dataclass

from evenshare_core.simulation.workloads import SimJob
from evenshare_core.units import ONE_MILLI


@dataclass(slots=True)
class Run:
    """A submitted job that has not ended, with its work done and its current lease."""

    job: SimJob
    done_us: int = 0
    started_us: int | None = None  # start of its first lease
    leases: int = 0
    lease: int = 0  # lease id; 0: the job is waiting
    ends_us: int = 0
    lasts_us: int = 0  # length of the current term
    overhead_us: int = 0  # overhead of the current lease so far
    speed_milli: int = ONE_MILLI
