"""Jobs with deadlines in a snapshot, and a round's answers to them.

Source: W. Gao et al., "UniSched", IEEE TC 2024, sections II-B and III-C2.
"""

from enum import StrEnum
from typing import NamedTuple

from evenshare_core.domain.ids import JobId, TenantId
from evenshare_core.domain.values import Value
from evenshare_core.units import REWARD_MICRO


class DeadlineClass(StrEnum):
    """The class of service that a job requests. Names are part of the API."""

    STRICT = "strict_slo"
    SOFT = "soft_slo"
    BEST_EFFORT = "best_effort"
    PROFILER = "profiler"

    @property
    def has_deadline(self) -> bool:
        """Whether the job runs on SLO leases."""
        return self in (DeadlineClass.STRICT, DeadlineClass.SOFT)


# The maximum reward of one job, in millionths of a point; a deadline has 100 points.
MOST_REWARD_MICRO = {
    DeadlineClass.STRICT: 100 * REWARD_MICRO,
    DeadlineClass.SOFT: 100 * REWARD_MICRO,
    DeadlineClass.BEST_EFFORT: REWARD_MICRO - 1,
    DeadlineClass.PROFILER: REWARD_MICRO,
}


class DeadlineStep(NamedTuple):
    """The reward for a job that ends at `by_us` or before."""

    by_us: int
    reward_micro: int


class Deadline(Value, frozen=True, array_like=True):
    """The deadlines of one job. `id` is the job's; `kind` is strict (one step) or soft.

    `steps` ascend in time and descend in reward. Rewards are above 0, and at most 100 points.
    """

    id: JobId
    kind: DeadlineClass
    steps: tuple[DeadlineStep, ...]


class DeadlineLimit(StrEnum):
    """The reason why a deadline cannot be met. Names are part of the API."""

    LENGTH = "length"  # the job takes longer, even on an empty pool
    QUOTA = "quota"  # its tenant may not hold that many GPUs until the deadline
    CAPACITY = "capacity"  # other jobs hold the GPUs until the deadline
    SIZE = "size"  # the pool never has that many GPUs free at the same time
    BUDGET = "budget"  # its tenant's other jobs use all the reward that the tenant may request


class DeadlineState(StrEnum):
    """The state of a job with a deadline. Names are part of the API."""

    PLANNED = "planned"  # its planned leases end in time
    REFUSED = "refused"  # no plan meets a deadline; the job runs on leftover GPUs
    MISSED = "missed"  # all its deadlines are over; it is a best-effort job from now on


class PlanCause(StrEnum):
    """The cause that moved an earlier plan. Names are part of the API."""

    CAPACITY = "capacity"  # the pool has more or fewer GPUs of its type
    QUOTA = "quota"  # its tenant may hold more or fewer of them
    ESTIMATE = "estimate"  # its estimate changed
    LATE = "late"  # it runs longer than its estimate
    DEMAND = "demand"  # other jobs arrived, left or moved


class PlannedLease(NamedTuple):
    """Consecutive leases of a plan, from start to end."""

    start_us: int
    end_us: int


class DeadlineAnswer(Value, frozen=True, array_like=True):
    """The answer of a round to a job with a deadline; published if it changed.

    - `by_us`, `reward_micro`: the step that the plan meets.
    - `leases`: the planned run times, ascending, with consecutive leases joined. They are on
      `gpus` GPUs of `gpu_type`, on one node if `one_node`.
    - `chance_milli`: the probability that the job ends by `by_us`, in thousandths. `None` if the
      error of its estimate is unknown.
    - `limit`: the reason of a refusal.
    - `blocked`: for a refused job, the first planned leases for which there was no room.
    - `earliest_us`: the earliest deadline that a refused job could meet; `None` if it could meet
      no deadline.
    - `cause`: the `PlanCause` that moved an earlier plan; empty if the plan did not move or is
      the first.
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
