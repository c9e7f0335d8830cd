"""Hydra: jobs with deadlines come first, the shortest remaining time first, without preemption.

Source: Hydra (Z. Yang et al., IEEE Transactions on Computers 2023), as UniSched compares with it in
V-A. In a homogeneous cluster without preemption, SLO jobs have a higher priority than best-effort
jobs. Both are ordered by shortest remaining time first.

| paper | here | unit |
|---|---|---|
| remaining time | estimate - GPU-time received / gang | us |
| SLO job | a job with a deadline that has not passed | |

Expired leases are renewed before other jobs are placed, so that a job runs to its end. Jobs that do
not fit block no other job.

Departures, each with its test in tests/papers/test_baseline_deadlines.py:

- Hydra searches the assignment of groups of jobs to GPU types by branch and bound, for the least
  sums of completion times and delays. On GPUs of one type, as UniSched uses it, only the order
  remains. Here, a job has the same length on all types.
- Deadlines only determine the class of a job: a later deadline does not move it back.
- Remaining time comes from the job's estimate, not from a model of its speed. A job without an
  estimate is assumed to need `unknown_s`.

All orders end in (submitted, id).
"""

from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta

from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.options import SPREAD_TEXT, Options, parse_options
from evenshare_core.policies.orders.base import OrderedPolicy
from evenshare_core.policies.policy import Private, Traits
from evenshare_core.policies.shared.deadline_jobs import steps_left
from evenshare_core.policies.shared.estimates import UNKNOWN_S, UnknownSeconds, left_us
from evenshare_core.policies.shared.ordered import QueuedJob, QueueRule, by_arrival

SLO, BEST_EFFORT = "slo", "best_effort"


class HydraOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    unknown_s: UnknownSeconds = UNKNOWN_S
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False


class Hydra(OrderedPolicy):
    name = "hydra"
    version = "1"
    title = "Deadlines, then shortest remaining time"
    promise = (
        "Jobs with deadlines start before all others; within each group, least remaining"
        " work first."
    )
    suits = "Short waits and deadlines without preemption; jobs need estimates."
    order_text = (
        "Jobs with deadlines go before all others; within each group, least estimated remaining"
        " work first."
    )
    note_texts = MappingProxyType(
        {
            SLO: "Of the jobs with deadlines that fit, it had the least remaining work.",
            BEST_EFFORT: "No job with a deadline fits; of the other jobs it had the least"
            " remaining work.",
        }
    )
    traits = Traits(needs_estimates=True)
    also_reads = frozenset({Private.DEADLINES})
    options_type = HydraOptions

    def rule(self, snapshot: Snapshot) -> QueueRule:
        options = parse_options(HydraOptions, snapshot.options)
        at_us = snapshot.at_us
        with_deadline = steps_left(snapshot.deadlines, at_us)

        def order(one: QueuedJob) -> tuple[Any, ...]:
            left = left_us(one.job, one.sums, at_us, options.unknown_s)
            return (one.job.id not in with_deadline, left, *by_arrival(one))

        return QueueRule(
            order=order,
            spread=options.spread,
            note=lambda one: SLO if one.job.id in with_deadline else BEST_EFFORT,
        )


POLICY = Hydra()
