"""FIFO: strict arrival order, without preemption.

Source: none; the order every cluster begins with. A job runs until it is over: its lease is
renewed whenever it ends. The first job that does not fit blocks all behind it, in its pool or
in its tenant (`scope`), unless `backfill` lets those go on that fit.

Departures, with their tests in tests/papers/test_baselines.py: a job that may never run (larger
than the pool, refused by a limit) blocks nobody.
"""

from __future__ import annotations

from typing import Any, Literal

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.baselines.ordered import Candidate, Rule, decide_in_order
from evenshare_core.policies.policy import Options, parse_options


class FifoOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of FIFO.

    `scope`: whom a job that does not fit blocks. `backfill`: it blocks nobody. `whole_nodes`: a
    gang larger than a node takes whole nodes, and one more for what is left.
    """

    scope: Literal["pool", "tenant"] = "pool"
    backfill: bool = False
    whole_nodes: bool = True


class Fifo:
    """The policy; see the module's docstring."""

    name = "fifo"
    version = "1"
    options_type = FifoOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        """Answer one round."""
        options = parse_options(FifoOptions, snapshot.options)
        by_tenant = options.scope == "tenant"
        return decide_in_order(
            snapshot,
            Rule(
                order=_arrival,
                queue=lambda one: (one.job.tenant if by_tenant else 0, one.gpu_type),
                strict=not options.backfill,
                whole_nodes=options.whole_nodes,
            ),
        )


def _arrival(candidate: Candidate) -> tuple[Any, ...]:
    return (candidate.job.submitted_us, candidate.job.id)


POLICY = Fifo()
