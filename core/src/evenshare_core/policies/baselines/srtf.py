"""SRTF: shortest remaining time first by estimate, preemptive where leases end.

Source: none; the bound that LTGF and UniSched compare average JCT with. A lease that ends
queues with the jobs that wait; remaining = estimate - GPU-time received / gang, and a job that
has outlived its estimate counts as 5 % of it. Jobs that do not fit block nobody.

Without estimates the order is by arrival.
"""

from __future__ import annotations

from math import inf
from typing import Any

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.gpu_time import job_received
from evenshare_core.policies.baselines.ordered import Candidate, Rule, decide_in_order
from evenshare_core.policies.policy import Options

LEAST = 0.05  # of the estimate: what a job that outlived it is taken to need


class SrtfOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """SRTF has no options."""


class Srtf:
    """The policy; see the module's docstring."""

    name = "srtf"
    version = "2"
    options_type = SrtfOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        """Answer one round."""

        def remaining(one: Candidate) -> tuple[Any, ...]:
            estimate = one.job.estimate_us
            left = inf
            if estimate is not None:
                ran_us = job_received(one.sums, snapshot.at_us) / one.job.gpus
                left = max(estimate - ran_us, LEAST * estimate)
            return (left, one.job.submitted_us, one.job.id)

        rule = Rule(
            order=remaining,
            queue=lambda one: (one.job.id, one.gpu_type),
            strict=False,
            preempts=True,
        )
        return decide_in_order(snapshot, rule)


POLICY = Srtf()
