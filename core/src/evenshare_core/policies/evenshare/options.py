"""Options of evenshare; rule numbers are those of `policy`."""

from math import ceil
from typing import Annotated, Literal

from msgspec import Meta

from evenshare_core.policies.options import UNIT, Options
from evenshare_core.units import CREDIT_MICRO, ONE_MILLI, SECOND_US

TIGHT_RUNTIME_S = 60
HOURLY_WINDOW_S = 3_600
# The time that a restart counts: snapshots have no measured restart times of all jobs.
RESTART_US = 60 * SECOND_US


class EvenshareOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    preset: Annotated[
        Literal["standard", "hourly", "tight"],
        Meta(
            description="Which tenant a round serves first: the one furthest below its fair"
            " share over the window (standard) or over one hour at most (hourly), or the one"
            " that holds less than its quota now (tight). Later presets keep tenants closer to"
            " their quotas, and more short jobs wait."
        ),
    ] = "standard"
    window_s: Annotated[
        int,
        Meta(
            ge=60,
            le=366 * 86_400,
            description="Window for comparing tenants: GPU-time received and deserved decays by"
            " two thirds per window. Shorter: quotas hold from hour to hour, and jobs wait"
            " longer.",
        ),
    ] = 86_400
    estimates: Annotated[
        Literal["none", "given", "deadlines"],
        Meta(
            description="Order of a tenant's jobs: least GPU-time received first (none); by"
            " estimates, first the job that its fair share would have finished earliest"
            " (given); or least remaining GPU-time first and jobs that cannot meet their"
            " deadline last (deadlines)."
        ),
    ] = "none"
    min_runtime_s: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="How long a job runs before it may be preempted or moved; at most"
            f" {TIGHT_RUNTIME_S} s with the tight preset.",
        ),
    ] = 300
    guarantee: Annotated[
        bool,
        Meta(
            description="Without promised starts: preempt leases for a tenant that is owed GPUs"
            " within its quota."
        ),
    ] = True
    promises: Annotated[
        bool,
        Meta(
            description="Promise a start time to the longest waiting job of each tenant that is"
            " owed GPU-time, and keep GPUs for it. If off, leases are preempted for quotas and"
            " for gangs larger than a node."
        ),
    ] = True
    late_credit_milli: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000 * ONE_MILLI,
            extra_json_schema={UNIT: "thousandths of a credit"},
            description="Credit to a tenant per GPU-hour by which a promised start is late. It"
            " counts for promises that are made from now on; 0: no credit.",
        ),
    ] = 0
    pays: Annotated[
        bool,
        Meta(
            description="Preempt leases of long jobs for jobs that never ran; not with the tight"
            " preset."
        ),
    ] = True
    gangs_overtake: Annotated[
        bool,
        Meta(
            description="Without promised starts: preempt leases of long jobs for a gang larger"
            " than a node that is ahead of them; not with the tight preset."
        ),
    ] = True
    restart_budget_percent: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="Maximum share of a job's time that restarts may cost if its leases end"
            " for jobs that never ran, with promises; 0: no limit. A restart counts as"
            f" {RESTART_US // SECOND_US} s. Moves and ends for promised starts do not count.",
            extra_json_schema={UNIT: "%"},
        ),
    ] = 2.0
    gangs_per_round: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="For how many large jobs a round may move small jobs to other nodes; 0:"
            " none.",
        ),
    ] = 2
    moves_per_round: Annotated[
        int,
        Meta(ge=0, le=1000, description="Maximum number of jobs that a round may move."),
    ] = 16

    @property
    def is_tight(self) -> bool:
        """Whether tenants are kept at their quotas all the time (the preset "tight")."""
        return self.preset == "tight"

    @property
    def has_guarantee(self) -> bool:
        """Whether leases end early for tenants that are owed GPUs within their quotas."""
        return self.guarantee and not self.promises

    @property
    def may_overtake(self) -> bool:
        """Whether leases of long jobs end for gangs that are larger than a node."""
        return self.gangs_overtake and not (self.is_tight or self.promises)

    @property
    def min_runtime_us(self) -> int:
        """The time during which a new lease may not be ended."""
        least_s = min(self.min_runtime_s, TIGHT_RUNTIME_S) if self.is_tight else self.min_runtime_s
        return least_s * SECOND_US

    @property
    def late_credit_micro(self) -> int:
        """The credit per GPU-hour of a late promised start, in micro-credits; with 0, none."""
        return self.late_credit_milli * CREDIT_MICRO // ONE_MILLI if self.promises else 0

    @property
    def paid_us(self) -> int:
        """The time that a job runs for each restart that the budget allows; 0 without a budget."""
        percent = self.restart_budget_percent if self.promises else 0
        return ceil(100 * RESTART_US / percent) if percent else 0

    @property
    def window_us(self) -> int:
        """The time tau in which past GPU-time decays to 1/e."""
        is_hourly = self.preset == "hourly"
        return (min(self.window_s, HOURLY_WINDOW_S) if is_hourly else self.window_s) * SECOND_US
