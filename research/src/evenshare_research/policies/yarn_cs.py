"""YARN-CS: a static quota per tenant, FIFO within the quota, no borrowing.

Source: the capacity scheduler as Astraea-LTGF compares with it, section 6.1.5. A tenant's first job
that does not fit its quota or the free GPUs blocks the tenant's other jobs. Idle quota is not lent,
and nothing is preempted.

Departure, with its test in tests/papers/test_baselines.py: a gang larger than its tenant's whole
quota would wait forever. With `oversized`, it may run when its tenant holds nothing else. Until
then, or without `oversized`, it waits and blocks no other job.
"""

from typing import Annotated, Any, Protocol

from msgspec import Meta

from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.options import SPREAD_TEXT, Options, WholeNodes, parse_options
from evenshare_core.policies.orders.base import OrderedPolicy
from evenshare_core.policies.quota_promise import QuotaPromiseKind
from evenshare_core.policies.shared.admission import Refusal
from evenshare_core.policies.shared.ordered import QueuedJob, QueueRule, by_arrival
from evenshare_core.policies.shared.ordered_session import OrderedSession
from evenshare_core.policies.shared.session import Session


class YarnCsOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    oversized: Annotated[
        bool,
        Meta(
            description="A job larger than its tenant's whole quota may run while the tenant holds"
            " nothing else; off: it never runs."
        ),
    ] = True
    whole_nodes: WholeNodes = False
    spread: Annotated[bool, Meta(description=SPREAD_TEXT)] = False


class YarnCs(OrderedPolicy):
    name = "yarn_cs"
    version = "2"
    title = "Capacity scheduler"
    promise = "Each tenant has its quota to itself, without borrowing."
    suits = "Strict partitions: nothing is lent, nothing is taken back."
    order_text = "In the order of submission, within the quota of its tenant."
    quota_text = (
        "A quota is a fixed part: no other tenant uses these GPUs, and a tenant never holds"
        " more. A gang may still have to wait until nodes fit."
    )
    quota_kind = QuotaPromiseKind.RESERVED
    options_type = YarnCsOptions

    def rule(self, snapshot: Snapshot) -> QueueRule:
        options = parse_options(YarnCsOptions, snapshot.options)
        return _rule(options, _SnapshotUse(snapshot))

    def session(self, options: dict[str, Any]) -> Session:
        chosen = parse_options(YarnCsOptions, options)
        return OrderedSession(lambda view: _rule(chosen, view), borrows=False)


class Use(Protocol):
    """The tenants' quotas and the GPUs in their leases, expired leases included, by GPU type."""

    def held(self, tenant: int, gpu_type: str) -> int: ...
    def quota(self, tenant: int, gpu_type: str) -> int: ...


class _SnapshotUse:
    """The use in a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._quotas = {(row.tenant, row.gpu_type): row.gpus for row in snapshot.entitlements}
        self._held: dict[tuple[int, str], int] = {}
        for lease in snapshot.leases:
            key = (lease.tenant, lease.gpu_type)
            self._held[key] = self._held.get(key, 0) + lease.gpus

    def held(self, tenant: int, gpu_type: str) -> int:
        return self._held.get((tenant, gpu_type), 0)

    def quota(self, tenant: int, gpu_type: str) -> int:
        return self._quotas.get((tenant, gpu_type), 0)


def _rule(options: YarnCsOptions, use: Use) -> QueueRule:
    held = _TenantGpus(use, oversized=options.oversized)
    return QueueRule(
        order=by_arrival,
        queue=lambda one: (one.job.tenant, one.gpu_type),
        strict=True,
        whole_nodes=options.whole_nodes,
        spread=options.spread,
        admits=held.admits,
        limit=held.limit,
        given=held.give,
    )


class _TenantGpus:
    """The GPUs of each tenant and type: those held in this round, and the quota."""

    def __init__(self, use: Use, *, oversized: bool) -> None:
        self._oversized, self._use = oversized, use
        self._given: dict[tuple[int, str], int] = {}

    def limit(self, one: QueuedJob) -> Refusal | None:
        """Refuse a gang that is larger than the whole quota, unless `oversized`."""
        quota = self._use.quota(one.job.tenant, one.gpu_type)
        if one.lease is not None or one.job.gpus <= quota or self._oversized:
            return None
        return Refusal(Reason.QUOTA_LIMIT, quota=quota, needed=one.job.gpus)

    def admits(self, one: QueuedJob) -> bool:
        """Return whether the job has a lease or stays within the quota.

        An oversized job is also admitted while its tenant holds nothing.
        """
        key = (one.job.tenant, one.gpu_type)
        held = self._use.held(*key) + self._given.get(key, 0)
        return (
            one.lease is not None
            or held + one.job.gpus <= self._use.quota(*key)
            or (self._oversized and not held)
        )

    def give(self, one: QueuedJob) -> None:
        """Count the GPUs of a job that starts."""
        key = (one.job.tenant, one.gpu_type)
        self._given[key] = self._given.get(key, 0) + one.job.gpus


POLICY = YarnCs()
