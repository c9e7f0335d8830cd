"""Options of the market."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from evenshare_core.policies.options import SPREAD_TEXT, UNIT, Options
from evenshare_core.units import ONE_MILLI, SECOND_US


class MarketOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of the market."""

    interval_s: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="How often jobs that wait are planned on GPUs that are not their tenant's"
            " own; 0: in every round. Own quota is given in every round.",
        ),
    ] = 60
    horizon_s: Annotated[
        int,
        Meta(
            ge=60,
            le=366 * 86_400,
            description="How far ahead jobs are planned, in whole lease lengths, 1,024 of them at"
            " most.",
        ),
    ] = 7 * 86_400
    borrow_limit: Annotated[
        Literal["lease", "job"],
        Meta(
            description="How long borrowed GPUs are given for: term by term, each at the price"
            " that is posted then, and renewed while the job is worth it and no owner asks (lease);"
            " or at one price for as long as the job is said to take, as far as the pool's longest"
            " lease goes (job)."
        ),
    ] = "lease"
    default_bid: Annotated[
        float,
        Meta(
            ge=0.0,
            le=1000.0,
            description="What a GPU-hour is taken to be worth to a job that says neither a utility"
            " nor a highest price, in base rates of the GPU type.",
            extra_json_schema={UNIT: "base rates"},
        ),
    ] = 1.0
    theta: Annotated[
        Literal["history", "fixed"],
        Meta(
            description="How much a full pool costs: as much as the most that jobs of the last 30"
            " days were worth, and no less than by the theta of the price setting (history); or by"
            " that theta alone (fixed)."
        ),
    ] = "history"
    theta_factor: Annotated[
        float,
        Meta(
            ge=0.1,
            le=10.0,
            description="What theta from history is multiplied with, but for the 1 in it: 0.8 lets"
            " more jobs in under load.",
        ),
    ] = 1.0
    plan_jobs: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="For how many jobs a batch looks for a start that are worth what it could"
            " cost at least; the others wait behind them.",
            extra_json_schema={UNIT: "jobs"},
        ),
    ] = 1000
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False

    @property
    def interval_us(self) -> int:
        """The batch window."""
        return self.interval_s * SECOND_US

    @property
    def default_bid_milli(self) -> int:
        """`default_bid` in thousandths of the base rate."""
        return round(self.default_bid * ONE_MILLI)

    @property
    def theta_factor_milli(self) -> int:
        """`theta_factor` in thousandths."""
        return round(self.theta_factor * ONE_MILLI)
