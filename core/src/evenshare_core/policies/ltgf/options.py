"""Options of LTGF and the settings of the paper's evaluation."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from evenshare_core.domain.values import SECOND_US
from evenshare_core.policies.policy import Options

Bonus = Annotated[float, Meta(ge=0, le=1_000_000)]


class LtgfOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of LTGF.

    `work_conserving`: try a tenant's next jobs when one does not fit; off: line 17.
    `tenant_share`: FairShare_j in tenant selection, "demand" is eq. (8), "quota" eq. (16).
    `new_jobs_first`: jobs that never held a lease before all others of their tenant (6.1.1).
    `reserve_after_leases`: K, after how many lease lengths nodes are held back for a gang that
    was passed over; 0: never. `fairness_window_s`: tenants' history that counts; 0: all.
    `spread`: a gang that fits one node may also be split over several.
    Reward hooks (5.2.1) add to -rho_ij, inside a tenant only: `new_job_bonus` for a job that
    never ran, `lease_bonus` per lease term so far, `deadline_bonus` x urgency, which grows from
    0 at `deadline_horizon_s` before the deadline to 1 at it.
    """

    work_conserving: bool = True
    tenant_share: Literal["demand", "quota"] = "demand"
    new_jobs_first: bool = False
    reserve_after_leases: Annotated[int, Meta(ge=0, le=1000)] = 2
    fairness_window_s: Annotated[int, Meta(ge=0, le=10 * 366 * 86_400)] = 0
    spread: bool = False
    new_job_bonus: Bonus = 0.0
    lease_bonus: Bonus = 0.0
    deadline_bonus: Bonus = 0.0
    deadline_horizon_s: Annotated[int, Meta(ge=1, le=366 * 86_400)] = 86_400

    @property
    def fairness_window_us(self) -> int:
        """Length of the fairness window of tenants; 0: all history counts."""
        return self.fairness_window_s * SECOND_US

    @property
    def hooked(self) -> bool:
        """Whether any reward hook is on."""
        return bool(self.new_job_bonus or self.lease_bonus or self.deadline_bonus)


# Section 6.1: the settings of the paper's evaluation (lease 900 s and round 10 s are the pool's).
PAPER_EVALUATION = LtgfOptions(
    work_conserving=False, tenant_share="quota", new_jobs_first=True, reserve_after_leases=0
)
