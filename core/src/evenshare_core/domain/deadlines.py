"""Jobs with deadlines, as a snapshot has them, and what a round answers to them.

Source: W. Gao et al., "UniSched", IEEE TC 2024, sections II-B and III-C2.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from evenshare_core.domain.ids import JobId, TenantId
from evenshare_core.domain.values import Value
from evenshare_core.units import REWARD_MICRO


class DeadlineClass(StrEnum):
    """What a job asks for. Names are part of the API."""

    STRICT = "strict_slo"
    SOFT = "soft_slo"
    BEST_EFFORT = "best_effort"
    PROFILER = "profiler"

    @property
    def has_deadline(self) -> bool:
        """Whether it runs on SLO leases."""
        return self in (DeadlineClass.STRICT, DeadlineClass.SOFT)


# The most that one job may be rewarded with, in millionths of a point: 100 points of a deadline.
MOST_REWARD_MICRO = {
    DeadlineClass.STRICT: 100 * REWARD_MICRO,
    DeadlineClass.SOFT: 100 * REWARD_MICRO,
    DeadlineClass.BEST_EFFORT: REWARD_MICRO - 1,
    DeadlineClass.PROFILER: REWARD_MICRO,
}


class DeadlineStep(NamedTuple):
    """A reward for an end by an instant."""

    by_us: int
    reward_micro: int


class Deadline(Value, frozen=True, array_like=True):
    """The deadlines of one job; `id` is the job's, `kind` strict (one step) or soft.

    `steps` rise in time and fall in reward, which is above 0 and 100 points at most.
    """

    id: JobId
    kind: DeadlineClass
    steps: tuple[DeadlineStep, ...]


class DeadlineLimit(StrEnum):
    """What is in the way of a deadline. Names are part of the API."""

    LENGTH = "length"  # it takes longer than that, on a pool of its own
    QUOTA = "quota"  # its tenant may not have so many GPUs then
    CAPACITY = "capacity"  # GPUs that others have by then
    SIZE = "size"  # the pool never has so many GPUs free at once
    BUDGET = "budget"  # its tenant's other jobs have all the reward that it may ask for


class DeadlineState(StrEnum):
    """How a job stands to its deadline. Names are part of the API."""

    PLANNED = "planned"  # it has leases by which it ends in time
    REFUSED = "refused"  # no plan meets a deadline; it runs with what is left
    MISSED = "missed"  # all its deadlines are over; it is a best-effort job from now on


class PlanCause(StrEnum):
    """What moved a plan that was given before. Names are part of the API."""

    CAPACITY = "capacity"  # the pool has more or fewer GPUs of its type
    QUOTA = "quota"  # its tenant may have more or fewer of them
    ESTIMATE = "estimate"  # its estimate was changed
    LATE = "late"  # it runs longer than its estimate
    DEMAND = "demand"  # other jobs came, went or moved


class PlannedLease(NamedTuple):
    """Consecutive leases of a plan: instants."""

    start_us: int
    end_us: int


class DeadlineAnswer(Value, frozen=True, array_like=True):
    """What a round answers to a job with a deadline; published where it says something new.

    `by_us` and `reward_micro`: the step that its plan meets. `leases`: when it is planned to run,
    ascending, without gaps between parts of one; on `gpus` GPUs of `gpu_type`, `one_node` or over
    several. `chance_milli`: how likely it ends by then, in thousandths; None: nobody knows how far
    its estimate may be off. Of one that is refused, `limit` is what is in the way,
    `blocked` the planned leases that had no room (the first ones), and `earliest_us` the earliest
    deadline that would do (None: none). `cause` (`PlanCause`) names what moved a plan that was
    given before; empty: nothing did, or it is the first.
    """

    job: JobId
    tenant: TenantId
    state: DeadlineState
    by_us: int = 0
    reward_micro: int = 0
    gpu_type: str = ""
    gpus: int = 0
    one_node: bool = True
    leases: tuple[PlannedLease, ...] = ()
    chance_milli: int | None = None
    limit: DeadlineLimit | None = None
    blocked: tuple[PlannedLease, ...] = ()
    earliest_us: int | None = None
    cause: str = ""
