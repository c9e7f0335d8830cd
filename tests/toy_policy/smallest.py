"""Smallest first: the job that needs the fewest GPUs starts first. The smallest complete policy.

Source: none.

All orders end in (submitted, id).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Property
from evenshare_core.fairness.measure import Measured
from evenshare_core.policies.options import Options, parse_options
from evenshare_core.policies.policy import Policy
from evenshare_core.policies.shared.ordered import QueuedJob, QueueRule, by_arrival, decide_in_order


class SmallestOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of the toy policy, one of each type."""

    backfill: Annotated[bool, Meta(description="Whoever fits goes on past one that does not.")] = (
        True
    )
    order: Annotated[
        Literal["smallest", "largest"], Meta(description="Which end of the sizes is served first.")
    ] = "smallest"
    step_gpus: Annotated[
        int, Meta(ge=1, le=64, description="Sizes within one step count as the same.")
    ] = 1
    scale: Annotated[float, Meta(ge=0.5, le=2, description="What sizes are multiplied with.")] = 1.0


class Smallest(Policy):
    """The policy of this module."""

    name = "smallest"
    version = "7"
    title = "Smallest first"
    promise = "A small job never waits for a large one."
    suits = "Tests."
    order_text = "Whoever needs the fewest GPUs goes first, says the toy."
    options_type = SmallestOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        """Decide one round."""
        options = parse_options(SmallestOptions, snapshot.options)
        sign = 1 if options.order == "smallest" else -1

        def size(one: QueuedJob) -> tuple[Any, ...]:
            steps = int(one.job.gpus * options.scale) // options.step_gpus
            return (sign * steps, *by_arrival(one))

        rule = QueueRule(
            order=size, queue=lambda one: (0, one.gpu_type), strict=not options.backfill
        )
        return decide_in_order(snapshot, rule)

    def promises(self, options: Options, measured: Measured | None = None) -> frozenset[Property]:
        """Return the promises: with backfill, no GPU is idle if a waiting job could use it."""
        promised = super().promises(options, measured)
        assert isinstance(options, SmallestOptions)
        return promised | {Property.PARETO} if options.backfill else promised


POLICY = Smallest()
