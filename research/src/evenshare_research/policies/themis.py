"""Themis: finish-time fairness. The job that would finish most unfairly late goes first.

Source: Themis (NSDI 2020), as Astraea-LTGF states it in 4.1.2 and compares with it in 6.1.5. The
largest rho_i(t) = T_i(t) / (T_i*(t) N) goes first.

| paper | here | unit |
|---|---|---|
| T_i, time to finish in the current state | age + remaining time on the whole gang from now | us |
| T_i*, time to finish with the whole cluster | the job's whole estimate: a gang uses no more | us |
| N | waiting and running jobs of the pool: the same for all jobs, so without effect | |
| estimation error | `estimate_error`, drawn for each job | |

While a job waits, its rho grows, and faster if the job is short. A job with an expired lease queues
with the waiting jobs. Jobs that do not fit block no other job.

The error of a job's estimate is a factor in [1 - e, 1 + e], drawn by a hash of its submission, GPUs
and estimate. The factor is the same in each round, on each machine and for any id (ADR 0195). It is
meant for comparisons. Real estimates have their own errors, so e is 0 by default.

Departures, each with its test in tests/papers/test_baseline_orders.py:

- There is no auction. Themis offers GPUs to a fraction of the jobs, those with the largest rho, and
  takes the bids with the best product. With all-or-nothing gangs, this becomes the largest rho
  first, as Astraea-LTGF states it.
- A job without an estimate is assumed to need `unknown_s`.

All orders end in (submitted, id).
"""

import hashlib
from fractions import Fraction
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.options import SPREAD_TEXT, Options, parse_options
from evenshare_core.policies.orders.base import OrderedPolicy
from evenshare_core.policies.policy import Traits
from evenshare_core.policies.shared.estimates import (
    UNKNOWN_S,
    UnknownSeconds,
    remaining_us,
    whole_us,
)
from evenshare_core.policies.shared.ordered import QueuedJob, QueueRule, by_arrival
from evenshare_core.units import SECOND_US

FINISH_TIME = "finish_time"
DRAWS = 2**32


class ThemisOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    estimate_error: Annotated[
        float,
        Meta(
            ge=0,
            le=0.9,
            description="Maximum artificial error of estimates, as a fraction of each; for"
            " comparisons.",
        ),
    ] = 0.0
    unknown_s: UnknownSeconds = UNKNOWN_S
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False

    def error_factor(self, job: Job) -> Fraction:
        """Return the factor by which a job's estimate is multiplied."""
        said = f"{job.submitted_us} {job.gpus} {job.estimate_us}"
        digest = hashlib.sha256(said.encode()).digest()
        drawn = Fraction(2 * int.from_bytes(digest[:4]), DRAWS - 1) - 1  # uniform from -1 to 1
        return 1 + Fraction(self.estimate_error) * drawn


class Themis(OrderedPolicy):
    name = "themis"
    version = "2"  # version 2: errors do not depend on ids (ADR 0195)
    title = "Finish-time fairness"
    promise = "The job with the worst finish-time fairness goes first."
    suits = "Fairness between jobs rather than tenants; jobs need estimates."
    order_text = (
        "The job with the largest finish-time ratio goes first: age plus remaining time, over"
        " its run time alone."
    )
    note_texts = MappingProxyType(
        {FINISH_TIME: "Of the jobs that fit, it had the largest finish-time ratio."}
    )
    traits = Traits(needs_estimates=True, preempts=True)
    options_type = ThemisOptions

    def rule(self, snapshot: Snapshot) -> QueueRule:
        options = parse_options(ThemisOptions, snapshot.options)
        at_us = snapshot.at_us

        def alone_us(job: Job) -> int:
            whole = whole_us(job, options.unknown_s * SECOND_US)
            if not options.estimate_error:
                return whole
            return max(1, int(whole * options.error_factor(job)))

        def rho(one: QueuedJob) -> Fraction:
            alone = alone_us(one.job)
            left = remaining_us(one.job, one.sums, at_us, alone)
            return Fraction(at_us - one.job.submitted_us + left, alone)

        return QueueRule(
            order=lambda one: (-rho(one), *by_arrival(one)),
            preempts=True,
            spread=options.spread,
            note=lambda _: FINISH_TIME,
        )


POLICY = Themis()
