"""FIFO: waiting jobs in the order of their arrival, the default of most clusters.

Source: none. FIFO never preempts: a lease is renewed until its job ends. The first job that does
not fit blocks all later jobs of its pool or of its tenant (`scope`). With `backfill`, later jobs
that fit start anyway.

Departures, with their tests in tests/papers/test_baselines.py: a job that can never run (larger
than the pool, refused by a limit) blocks no job.

All orders end in (submitted, id).
"""

from typing import Annotated, Any, Literal

from msgspec import Meta

from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.options import SPREAD_TEXT, Options, WholeNodes, parse_options
from evenshare_core.policies.orders.base import OrderedPolicy
from evenshare_core.policies.shared.ordered import QueueRule
from evenshare_core.policies.shared.ordered_session import OrderedSession
from evenshare_core.policies.shared.session import Queued, Session, StaticQueue


class QueueOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of FIFO, and of policies that differ from FIFO only in their order."""

    scope: Annotated[
        Literal["pool", "tenant"],
        Meta(
            description="Which jobs a job that does not fit blocks: all behind it, or only its"
            " tenant's."
        ),
    ] = "pool"
    backfill: Annotated[bool, Meta(description="A job that does not fit blocks no other job.")] = (
        False
    )
    whole_nodes: WholeNodes = True
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False


class Fifo(OrderedPolicy):
    """The policy FIFO: jobs in the order of arrival, without preemption."""

    name = "fifo"
    version = "2"
    title = "First in, first out"
    promise = "No later job starts first if both could run."
    suits = "One team, few jobs, no surprises."
    order_text = "In the order of submission."
    options_type = QueueOptions

    def rule(self, snapshot: Snapshot) -> QueueRule:
        return self._rule(snapshot.options)

    def session(self, options: dict[str, Any]) -> Session:
        rule = self._rule(options)
        return OrderedSession(lambda _: rule)

    def static_queue(self, options: dict[str, Any]) -> StaticQueue | None:
        """Return the queue of a single tenant, whose waiting jobs keep their order."""
        chosen = parse_options(QueueOptions, options)
        return (
            None
            if chosen.backfill or chosen.spread
            else StaticQueue(self.order, chosen.whole_nodes)
        )

    def _rule(self, options: dict[str, Any]) -> QueueRule:
        chosen = parse_options(QueueOptions, options)
        by_tenant = chosen.scope == "tenant"
        return QueueRule(
            order=lambda one: self.order(one.job),
            queue=lambda one: (one.job.tenant if by_tenant else 0, one.gpu_type),
            strict=not chosen.backfill,
            whole_nodes=chosen.whole_nodes,
            spread=chosen.spread,
        )

    def order(self, job: Queued) -> tuple[Any, ...]:
        """Return the sort key of the queue."""
        return (job.submitted_us, job.id)


POLICY = Fifo()
