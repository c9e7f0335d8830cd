"""Options of UniSched."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from evenshare_core.policies.options import UNIT, Options
from evenshare_core.policies.shared.estimates import UNKNOWN_S, UnknownSeconds
from evenshare_core.units import COUNT_MAX


class UniSchedOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of UniSched."""

    lease_multiple: Annotated[
        int,
        Meta(
            ge=1,
            le=12,
            description="How many of the pool's leases one lease of a job with a deadline lasts;"
            " it keeps its GPUs for that long.",
            extra_json_schema={UNIT: "leases"},
        ),
    ] = 1
    reward_points_per_gpu: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000,
            description="The reward that a tenant's jobs with deadlines may ask for together, in"
            " points per GPU of its quota, in the order of submission. A job beyond it is treated"
            " as one without a deadline.",
            extra_json_schema={UNIT: "points per GPU"},
        ),
    ] = 100
    margin_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="How much of a job's remaining work its plan leaves free before its"
            " deadline, in whole leases, where it can: for estimates that are wrong, and for jobs"
            " that come.",
            extra_json_schema={UNIT: "percent"},
        ),
    ] = 25
    select: Annotated[
        Literal["all", "consolidated"],
        Meta(
            description="Which GPUs a job may have: any, at the speed that it has on several nodes"
            " (all); or one block of 1, 2, 4 or 8 GPUs of a node, or whole nodes (consolidated)."
        ),
    ] = "all"
    objective: Annotated[
        Literal["rewards", "alike"],
        Meta(
            description="What is made largest: the sum of the rewards (rewards); or how many jobs"
            " meet their last deadline (alike)."
        ),
    ] = "rewards"
    use_estimator: Annotated[
        bool,
        Meta(
            description="Plan by measured speeds on several nodes. Without, a job counts as fast"
            " there as on one."
        ),
    ] = True
    count_restarts: Annotated[
        bool,
        Meta(description="Plan for the time that a job loses where it is suspended and resumed."),
    ] = True
    unknown_s: UnknownSeconds = UNKNOWN_S
    iterations: Annotated[
        int,
        Meta(
            ge=0,
            le=COUNT_MAX,
            description="How many steps the solver may take for each GPU type. At the limit the"
            " plan that there is counts, with its distance from the best.",
            extra_json_schema={UNIT: "steps"},
        ),
    ] = 20_000
