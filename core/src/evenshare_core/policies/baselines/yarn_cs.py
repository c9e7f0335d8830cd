"""YARN-CS: a static quota per tenant, FIFO inside it, no borrowing.

Source: the capacity scheduler as Astraea-LTGF compares with it, section 6.1.5. A tenant's first
job that does not fit its quota or the free GPUs blocks that tenant's others; nobody uses what
another tenant leaves idle; nothing is preempted.

Departure, with its test in tests/papers/test_baselines.py: a gang larger than its tenant's whole
quota would wait for ever, so it may run when its tenant holds nothing else (`oversized`; off:
it waits, and blocks nobody).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.baselines.ordered import Candidate, Rule, by_arrival, decide_in_order
from evenshare_core.policies.options import Options, parse_options
from evenshare_core.policies.policy import Policy
from evenshare_core.policies.shared.admission import Refusal


class YarnCsOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of YARN-CS."""

    oversized: Annotated[
        bool,
        Meta(
            description="A job larger than its tenant's whole quota may run while the tenant holds"
            " nothing else; off: it never runs."
        ),
    ] = True
    whole_nodes: Annotated[
        bool,
        Meta(
            description="A job larger than a node takes whole nodes, and one more for what is left."
        ),
    ] = False


class YarnCs(Policy):
    """The policy; see the module's docstring."""

    name = "yarn_cs"
    version = "1"
    title = "Capacity scheduler"
    promise = "Each tenant has its quota to itself; nobody borrows."
    order_text = "Whoever was submitted first goes first, within the quota of its tenant."
    options_type = YarnCsOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        """Answer one round."""
        options = parse_options(YarnCsOptions, snapshot.options)
        held = _Held(snapshot, oversized=options.oversized)
        rule = Rule(
            order=by_arrival,
            queue=lambda one: (one.job.tenant, one.gpu_type),
            whole_nodes=options.whole_nodes,
            admits=held.admits,
            limit=held.limit,
            given=held.give,
        )
        return decide_in_order(snapshot, rule)


class _Held:
    """GPUs per tenant and type: what it holds, those of ended leases included, and its quota."""

    def __init__(self, snapshot: Snapshot, *, oversized: bool) -> None:
        self._oversized = oversized
        self._quotas = {(row.tenant, row.gpu_type): row.gpus for row in snapshot.entitlements}
        self._held: dict[tuple[int, str], int] = {}
        for lease in snapshot.leases:
            key = (lease.tenant, lease.gpu_type)
            self._held[key] = self._held.get(key, 0) + lease.gpus

    def limit(self, one: Candidate) -> Refusal | None:
        """A gang above the whole quota may never run, unless it may run alone."""
        quota = self._quotas.get((one.job.tenant, one.gpu_type), 0)
        if one.lease is not None or one.job.gpus <= quota or self._oversized:
            return None
        return Refusal(Reason.QUOTA_LIMIT, quota=quota, needed=one.job.gpus)

    def admits(self, one: Candidate) -> bool:
        """Whether it stays within the quota, or would run alone; what runs goes on."""
        key = (one.job.tenant, one.gpu_type)
        held = self._held.get(key, 0)
        return (
            one.lease is not None
            or held + one.job.gpus <= self._quotas.get(key, 0)
            or (self._oversized and not held)
        )

    def give(self, one: Candidate) -> None:
        """A job starts."""
        key = (one.job.tenant, one.gpu_type)
        self._held[key] = self._held.get(key, 0) + one.job.gpus


POLICY = YarnCs()
