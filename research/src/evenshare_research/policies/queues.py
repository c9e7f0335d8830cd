"""SJF and SRTF: orders of waiting jobs by estimate.

Source: none. SJF has the least average waiting without preemption. LTGF and UniSched compare
average JCT with SRTF as the bound.

- SJF is FIFO (`evenshare_core.policies.orders.fifo`) in a different order. Jobs without an estimate
  come after all that have one, by arrival.
- With SRTF, a job with an expired lease queues with the waiting jobs. Remaining time = estimate -
  GPU-time received / gang. For a job that ran longer than its estimate, it is 5 % of the estimate.
  Jobs that do not fit block no other job. Without estimates the order is by arrival.

All orders end in (submitted, id).
"""

from math import inf
from typing import Annotated, Any

from msgspec import Meta

from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.gpu_time import job_received
from evenshare_core.policies.options import SPREAD_TEXT, Options, parse_options
from evenshare_core.policies.orders.base import OrderedPolicy
from evenshare_core.policies.orders.fifo import Fifo
from evenshare_core.policies.policy import Traits
from evenshare_core.policies.shared.ordered import QueuedJob, QueueRule, by_arrival
from evenshare_core.policies.shared.ordered_session import OrderedSession
from evenshare_core.policies.shared.session import Queued, Session

LEAST = 0.05  # the assumed remaining part of the estimate of a job that exceeded its estimate


class SrtfOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False


class Sjf(Fifo):
    """The policy SJF: shortest job first by estimate, without preemption.

    It is FIFO in a different order.
    """

    name = "sjf"
    version = "3"
    title = "Shortest job first"
    promise = "Jobs with the least estimated work start first."
    suits = "Short queues without preemption; jobs need estimates."
    order_text = "The job with the least estimated work goes first."
    traits = Traits(needs_estimates=True)

    def order(self, job: Queued) -> tuple[Any, ...]:
        """Return the sort key of the queue."""
        known = inf if job.estimate_us is None else job.estimate_us
        return (known, job.submitted_us, job.id)


class Srtf(OrderedPolicy):
    """The policy SRTF: shortest remaining time first by estimate, preemptive when leases expire."""

    name = "srtf"
    version = "3"
    title = "Shortest remaining time first"
    promise = "Jobs with the least estimated remaining work run first, as leases end."
    suits = "The shortest mean wait; jobs need estimates, and long jobs starve."
    order_text = "The job with the least estimated remaining work goes first."
    traits = Traits(needs_estimates=True, preempts=True)
    options_type = SrtfOptions

    def rule(self, snapshot: Snapshot) -> QueueRule:
        options = parse_options(SrtfOptions, snapshot.options)
        return _preemptive(snapshot.at_us, spread=options.spread)

    def session(self, options: dict[str, Any]) -> Session:
        chosen = parse_options(SrtfOptions, options)
        return OrderedSession(lambda view: _preemptive(view.at_us, spread=chosen.spread))


def _preemptive(at_us: int, *, spread: bool) -> QueueRule:
    def remaining(one: QueuedJob) -> tuple[Any, ...]:
        estimate = one.job.estimate_us
        left = inf
        if estimate is not None:
            ran_us = job_received(one.sums, at_us) / one.job.gpus
            left = max(estimate - ran_us, LEAST * estimate)
        return (left, *by_arrival(one))

    return QueueRule(
        order=remaining,
        preempts=True,
        spread=spread,
    )


SJF, SRTF = Sjf(), Srtf()
