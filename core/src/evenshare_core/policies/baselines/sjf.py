"""SJF: shortest job first by estimate, without preemption.

Source: none; the order of least average waiting when nothing is preempted. As FIFO, but the
queue is in the order of estimates. A job without an estimate comes after all that have one, by
arrival.
"""

from __future__ import annotations

from math import inf
from typing import Any, Literal

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.baselines.ordered import Candidate, Rule, decide_in_order
from evenshare_core.policies.policy import Options, parse_options


class SjfOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of SJF; as FIFO's."""

    scope: Literal["pool", "tenant"] = "pool"
    backfill: bool = False
    whole_nodes: bool = True


class Sjf:
    """The policy; see the module's docstring."""

    name = "sjf"
    version = "2"
    options_type = SjfOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        """Answer one round."""
        options = parse_options(SjfOptions, snapshot.options)
        by_tenant = options.scope == "tenant"

        def shortest(one: Candidate) -> tuple[Any, ...]:
            estimate_us = one.job.estimate_us
            known = inf if estimate_us is None else estimate_us
            return (known, one.job.submitted_us, one.job.id)

        return decide_in_order(
            snapshot,
            Rule(
                order=shortest,
                queue=lambda one: (one.job.tenant if by_tenant else 0, one.gpu_type),
                strict=not options.backfill,
                whole_nodes=options.whole_nodes,
            ),
        )


POLICY = Sjf()
