"""Tiresias-L: least attained service, in discretised queues.

Source: Tiresias (NSDI 2019), 3.3, discretised two-dimensional LAS, which does not know job lengths;
"Tiresias-L" as Astraea-LTGF compares with it, section 6.1.5.

| paper | here |
|---|---|
| attained service, GPUs x time | GPU-time that the job received, `fairness.gpu_time.job_received` |
| K queues, thresholds Q_1, Q_2, ... | `queues`; `first_threshold`, times `threshold_factor` each |
| PromoteKnob | `promote_after`; 0: never, the paper's own setting |

A job is in the first queue until it has received `first_threshold`, then in the next, and so on.
Jobs of an earlier queue go first. Each queue is first in, first out, so that jobs with similar
GPU-time do not take each other's GPUs. Jobs with an expired lease queue with the waiting jobs; this
is how they are preempted. Jobs that do not fit block no other job.

Departures, each with its test in tests/papers/test_baseline_orders.py:

- Within a queue, jobs are ordered by submission. Tiresias orders them by their first start, which a
  job that never ran does not have.
- A promoted job gets a lease and keeps its attained service. Tiresias resets it.
- Leases end only at their expiry, so a job changes queues at the end of a lease.

All orders end in (submitted, id).
"""

from bisect import bisect_right
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta

from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.gpu_time import job_received
from evenshare_core.policies.options import SPREAD_TEXT, UNIT, Options, parse_options
from evenshare_core.policies.orders.base import OrderedPolicy
from evenshare_core.policies.policy import Traits
from evenshare_core.policies.shared.ordered import QueuedJob, QueueRule, by_arrival
from evenshare_core.policies.shared.ordered_session import OrderedSession
from evenshare_core.policies.shared.session import Session
from evenshare_core.units import SECOND_US

FIRST, LATER, PROMOTED = "first_queue", "later_queue", "promoted"


class TiresiasOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    queues: Annotated[
        int, Meta(ge=2, le=10, description="Number of queues: steps of GPU-time received.")
    ] = 3
    first_threshold: Annotated[
        int,
        Meta(
            ge=1,
            le=10**9,
            description="GPU-time after which a job leaves the first queue.",
            extra_json_schema={UNIT: "GPU-seconds"},
        ),
    ] = 3600
    threshold_factor: Annotated[
        int,
        Meta(
            ge=2, le=1000, description="Factor from the threshold of one queue to that of the next."
        ),
    ] = 10
    promote_after: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="A job goes first again when it has waited this many times its run time;"
            " 0: never.",
        ),
    ] = 0
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False

    def queue_of(self, received_gpu_us: int) -> int:
        """Return the index of a job's queue, from 0, by its GPU-time received."""
        first_us = self.first_threshold * SECOND_US
        thresholds = [first_us * self.threshold_factor**step for step in range(self.queues - 1)]
        return bisect_right(thresholds, received_gpu_us)


class TiresiasL(OrderedPolicy):
    name = "tiresias_l"
    version = "1"
    title = "Least attained service"
    promise = "Jobs that received little GPU-time go before jobs that received much."
    suits = "Short waits for short jobs, without estimates."
    order_text = (
        "Jobs that received little GPU-time go first, in a few steps; within a step in the order"
        " of submission."
    )
    note_texts = MappingProxyType(
        {
            FIRST: "It has received little GPU-time so far.",
            LATER: "It has received more GPU-time than jobs of the first queue, which go first.",
            PROMOTED: "It waited so long compared with its run time that it goes first again.",
        }
    )
    traits = Traits(preempts=True)
    options_type = TiresiasOptions

    def rule(self, snapshot: Snapshot) -> QueueRule:
        options = parse_options(TiresiasOptions, snapshot.options)
        return _rule(options, snapshot.at_us)

    def session(self, options: dict[str, Any]) -> Session | None:
        """Return a session that keeps the queue, or None if waiting promotes jobs."""
        chosen = parse_options(TiresiasOptions, options)
        if chosen.promote_after:
            return None
        return OrderedSession(lambda view: _rule(chosen, view.at_us))


def _rule(options: TiresiasOptions, at_us: int) -> QueueRule:
    def is_promoted(one: QueuedJob) -> bool:
        """Return whether the job has waited longer than PromoteKnob x its run time."""
        ran_gpu_us = job_received(one.sums, at_us)
        if not options.promote_after or one.lease is not None or not ran_gpu_us:
            return False
        waits_us = at_us - one.sums.held_since_us
        return waits_us * one.job.gpus > options.promote_after * ran_gpu_us

    def queue(one: QueuedJob) -> int:
        return 0 if is_promoted(one) else options.queue_of(job_received(one.sums, at_us))

    def note(one: QueuedJob) -> str:
        if options.queue_of(job_received(one.sums, at_us)) == 0:
            return FIRST
        return PROMOTED if is_promoted(one) else LATER

    return QueueRule(
        order=lambda one: (queue(one), *by_arrival(one)),
        preempts=True,
        spread=options.spread,
        note=note,
    )


POLICY = TiresiasL()
