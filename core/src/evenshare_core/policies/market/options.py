"""Options of the market."""

from typing import Annotated, Literal

from msgspec import Meta

from evenshare_core.policies.options import SPREAD_TEXT, UNIT, Options
from evenshare_core.units import ONE_MILLI, SECOND_US


class MarketOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    interval_s: Annotated[
        int,
        Meta(
            ge=0,
            le=86_400,
            description="How often queued jobs are planned on borrowed GPUs; 0: in every round."
            " Own quota is granted in every round.",
        ),
    ] = 60
    horizon_s: Annotated[
        int,
        Meta(
            ge=60,
            le=366 * 86_400,
            description="How far ahead jobs are planned, in whole lease lengths, at most 1,024.",
        ),
    ] = 7 * 86_400
    borrow_limit: Annotated[
        Literal["lease", "job"],
        Meta(
            description="Length of borrowing: term by term, each at its posted price, renewed"
            " while the job's value covers it and no owner needs the GPUs (lease); or at one"
            " price for the job's estimated run time, within the pool's longest lease (job)."
        ),
    ] = "lease"
    default_bid: Annotated[
        float,
        Meta(
            ge=0.0,
            le=1000.0,
            description="Assumed value of a GPU-hour to a job without a utility or maximum"
            " price, in base rates of the GPU type.",
            extra_json_schema={UNIT: "base rates"},
        ),
    ] = 1.0
    theta: Annotated[
        Literal["history", "fixed"],
        Meta(
            description="Price of a full pool: from the highest value of jobs of the last 30 days,"
            " or from the theta of the price settings if that is higher (history); or"
            " only from that theta (fixed)."
        ),
    ] = "history"
    theta_factor: Annotated[
        float,
        Meta(
            ge=0.1,
            le=10.0,
            description="Factor of (theta - 1) from history: 0.8 admits more jobs under load.",
        ),
    ] = 1.0
    plan_jobs: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Maximum number of jobs for which a batch searches a start, of those whose"
            " value covers the lowest price. Later jobs wait.",
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
        return round(self.theta_factor * ONE_MILLI)
