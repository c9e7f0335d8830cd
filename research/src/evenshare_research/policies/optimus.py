"""Optimus: GPUs go to the job whose remaining time they reduce most.

Source: Optimus (EuroSys 2018), 4.1, as UniSched compares with it in IV-D. GPUs are assigned one by
one, each to the job of largest marginal gain: its reduction of completion time over the resources
of the step.

| paper | here | unit |
|---|---|---|
| Q_j / f(p_j, w_j), remaining time | estimate - GPU-time received / gang | us |
| an additional worker | the whole gang: all its GPUs or none | GPUs |
| marginal gain | min(lease, remaining) / (remaining x gang) | 1 / GPU |

A gang of fixed size has one step, from nothing to all its GPUs. Its gain is the part of its
remaining time that a lease saves, per GPU. Among jobs that outlast a lease, the one with the least
GPU-time left goes first; among jobs that end within a lease, the smallest.

Jobs with an expired lease queue with the waiting jobs. Jobs that do not fit block no other job.

Departures, each with its test in tests/papers/test_baseline_orders.py:

- Sizes are fixed, so no job grows to use remaining GPUs. No speed is fitted as a
  function of the number of workers and parameter servers.
- Remaining time comes from the job's estimate, not from a fitted loss curve. A job without an
  estimate is assumed to need `unknown_s`.

All orders end in (submitted, id).
"""

from fractions import Fraction
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta

from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.options import SPREAD_TEXT, Options, parse_options
from evenshare_core.policies.orders.base import OrderedPolicy
from evenshare_core.policies.policy import Traits
from evenshare_core.policies.shared.estimates import UNKNOWN_S, UnknownSeconds, left_us
from evenshare_core.policies.shared.ordered import QueuedJob, QueueRule, by_arrival
from evenshare_core.policies.shared.ordered_session import OrderedSession
from evenshare_core.policies.shared.session import Session

GAIN = "marginal_gain"


class OptimusOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    unknown_s: UnknownSeconds = UNKNOWN_S
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False


class Optimus(OrderedPolicy):
    name = "optimus"
    version = "1"
    title = "Largest marginal gain"
    promise = "GPUs go to the job whose remaining time a lease shortens most."
    suits = "Short average times with gangs of all sizes; jobs need estimates."
    order_text = (
        "The job with the largest gain per GPU goes first: least estimated remaining GPU-time."
    )
    note_texts = MappingProxyType(
        {GAIN: "Of the jobs that fit, a lease shortens its remaining time most, per GPU."}
    )
    traits = Traits(needs_estimates=True, preempts=True)
    options_type = OptimusOptions

    def rule(self, snapshot: Snapshot) -> QueueRule:
        options = parse_options(OptimusOptions, snapshot.options)
        return _rule(options, snapshot.at_us, snapshot.lease_us)

    def session(self, options: dict[str, Any]) -> Session:
        chosen = parse_options(OptimusOptions, options)
        return OrderedSession(lambda view: _rule(chosen, view.at_us, view.lease_us))


def _rule(options: OptimusOptions, at_us: int, lease_us: int) -> QueueRule:
    def gain(one: QueuedJob) -> Fraction:
        left = left_us(one.job, one.sums, at_us, options.unknown_s)
        return Fraction(min(lease_us, left), left * one.job.gpus)

    return QueueRule(
        order=lambda one: (-gain(one), *by_arrival(one)),
        preempts=True,
        spread=options.spread,
        note=lambda _: GAIN,
    )


POLICY = Optimus()
