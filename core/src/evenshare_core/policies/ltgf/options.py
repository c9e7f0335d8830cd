"""Options of LTGF and the settings of the paper's evaluation.

With `work_conserving` off, line 17 of Algorithm 1 applies, as in the paper. `tenant_share` selects
eq. (8) or eq. (16) for FairShare_j. `new_jobs_first` follows section 6.1.1. The bonuses are the
reward hooks of 5.2.1, added to -rho_ij.
"""

from typing import Annotated, Literal

from msgspec import Meta

from evenshare_core.policies.options import SPREAD_TEXT, UNIT, Options
from evenshare_core.units import COUNT_MAX, SECOND_US

OF_RHO = {UNIT: "fair shares received"}
Bonus = Annotated[float, Meta(ge=0, le=COUNT_MAX)]


class LtgfOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of LTGF. Bonuses change only the order of jobs within a tenant."""

    work_conserving: Annotated[
        bool,
        Meta(
            description="If a job does not fit, try its tenant's next jobs; off: the tenant gets no"
            " more GPUs in this round."
        ),
    ] = True
    tenant_share: Annotated[
        Literal["demand", "quota"],
        Meta(
            description="Fair share of a tenant at each moment: its demand, up to its quota"
            " (demand), or always its whole quota (quota)."
        ),
    ] = "demand"
    new_jobs_first: Annotated[
        bool, Meta(description="Jobs that never ran go before all others of their tenant.")
    ] = False
    reserve_after_leases: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="How long a large job waits at the head of the queue before nodes are"
            " reserved for it; 0: never.",
            extra_json_schema={UNIT: "lease lengths"},
        ),
    ] = 2
    fairness_window_s: Annotated[
        int,
        Meta(
            ge=0,
            le=10 * 366 * 86_400,
            description="Window for comparing tenants by GPU-time received and deserved; 0:"
            " since the pool started.",
        ),
    ] = 0
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False
    new_job_bonus: Annotated[
        Bonus,
        Meta(
            description="Bonus for a job that never ran, within its tenant: at 1 it goes before"
            " a job that received one whole fair share more.",
            extra_json_schema=OF_RHO,
        ),
    ] = 0.0
    lease_bonus: Annotated[
        Bonus,
        Meta(
            description="Bonus for each past lease of a job, within its tenant: fewer restarts"
            " of long jobs.",
            extra_json_schema=OF_RHO,
        ),
    ] = 0.0
    deadline_bonus: Annotated[
        Bonus,
        Meta(
            description="Bonus for a near deadline, within its tenant; full at the deadline.",
            extra_json_schema=OF_RHO,
        ),
    ] = 0.0
    deadline_horizon_s: Annotated[
        int,
        Meta(
            ge=1,
            le=366 * 86_400,
            description="How long before the deadline its bonus begins to grow.",
        ),
    ] = 86_400

    @property
    def fairness_window_us(self) -> int:
        """Length of the tenants' fairness window; with 0, all history counts."""
        return self.fairness_window_s * SECOND_US

    @property
    def deserves_quota(self) -> bool:
        """Whether eq. (16) applies instead of eq. (8)."""
        return self.tenant_share == "quota"

    @property
    def hooked(self) -> bool:
        return bool(self.new_job_bonus or self.lease_bonus or self.deadline_bonus)


# Settings of section 6.1, except the lease of 900 s and the round of 10 s, which the pool sets.
PAPER_EVALUATION = LtgfOptions(
    work_conserving=False, tenant_share="quota", new_jobs_first=True, reserve_after_leases=0
)
