"""Options of UniSched."""

from typing import Annotated, Literal

from msgspec import Meta

from evenshare_core.policies.options import UNIT, Options
from evenshare_core.policies.shared.estimates import UNKNOWN_S, UnknownSeconds
from evenshare_core.units import COUNT_MAX


class UniSchedOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    lease_multiple: Annotated[
        int,
        Meta(
            ge=1,
            le=12,
            description="Lease length of jobs with deadlines, in lease lengths of the pool.",
            extra_json_schema={UNIT: "leases"},
        ),
    ] = 1
    reward_points_per_gpu: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000,
            description="Points that a tenant's jobs with deadlines may claim together, per GPU"
            " of its quota, in the order of submission. Further jobs are treated as jobs"
            " without a deadline.",
            extra_json_schema={UNIT: "points per GPU"},
        ),
    ] = 100
    margin_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="Spare time before the deadline, as a part of the job's remaining work,"
            " rounded up to whole leases. It allows for wrong estimates and new jobs.",
            extra_json_schema={UNIT: "percent"},
        ),
    ] = 25
    select: Annotated[
        Literal["all", "consolidated"],
        Meta(
            description="Allowed placement: any GPUs, at the speed on several nodes (all); or"
            " one block of 1, 2, 4 or 8 GPUs of a node, or whole nodes (consolidated)."
        ),
    ] = "all"
    objective: Annotated[
        Literal["rewards", "alike"],
        Meta(
            description="Objective: the sum of rewards (rewards); or the number of jobs that"
            " meet their last deadline (alike)."
        ),
    ] = "rewards"
    use_estimator: Annotated[
        bool,
        Meta(
            description="Plan with measured speeds on several nodes. Off: a job counts as"
            " equally fast on one node and on several."
        ),
    ] = True
    count_restarts: Annotated[
        bool,
        Meta(description="Plan for the time that a job loses when it is suspended and resumed."),
    ] = True
    unknown_s: UnknownSeconds = UNKNOWN_S
    iterations: Annotated[
        int,
        Meta(
            ge=0,
            le=COUNT_MAX,
            description="Maximum steps of each linear program in OR-Tools (GLOP). At the limit"
            " the best plan so far is used, with its gap.",
            extra_json_schema={UNIT: "steps"},
        ),
    ] = 20_000
