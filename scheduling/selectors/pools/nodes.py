"""Nodes of a pool with the leases on them, and maintenance windows."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from django.db.models import Aggregate, Count, Exists, Max, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from evenshare_core.units import SECOND_US
from scheduling.models import (
    Lease,
    LeaseSlot,
    MaintenanceWindow,
    Node,
)
from scheduling.selectors.jobs.reasons import resources_text
from scheduling.selectors.pools.lines import PoolFacts
from tenants.answers import Answer, Hidden, answer_of
from tenants.models import AuditRecord

# A drained node has this phase until its last lease ends.
DRAINING = "draining"


class NodeStatus(Answer, frozen=True, kw_only=True):
    """A node; `held`, `leases` and `last_expiry` (pool time) describe the leases on it now.

    `cpus` and `memory_mb` are available to jobs, 0 if unknown. `state`: up, draining (it still has
    leases), drained or lost. `reason`: why it was drained here. `engine_state`: up, drained or down
    by the pool's engine, with its reason, its start (wall time), and the operators' changes that
    the engine refuses. A node takes leases if both states are up.
    """

    COMPONENT = "OperateNodeRow"

    pool: str
    name: str
    gpu_type: str
    gpus: int
    cpus: int
    memory_mb: int
    phase: str = msgspec.field(name="state")
    reason: str
    engine_state: str
    engine_reason: str
    engine_since: datetime | None
    engine_trouble: str
    held: int
    leases: int
    last_expiry: datetime | None
    # `state` is what operators set; `effective` combines it with the engine's state.
    state: Hidden[str] = msgspec.field(name="asked_state")
    effective: Hidden[str]
    windows: Hidden[tuple[MaintenanceWindow, ...]]

    @property
    def resources(self) -> str:
        """Its CPUs and memory as text; empty if both are unknown."""
        return resources_text(self.cpus, self.memory_mb)

    @property
    def takes_leases(self) -> bool:
        """Whether both operators and the engine allow new leases."""
        return self.effective == Node.State.UP

    @property
    def empty(self) -> bool:
        """Whether no lease holds GPUs there."""
        return self.held == 0


def node_statuses(
    pool_id: int, now: datetime, *, ahead: Iterable[MaintenanceWindow] | None = None
) -> list[NodeStatus]:
    """Return a pool's nodes with their leases and the windows that are not over.

    At most three queries. `ahead`: the result of `windows_ahead`, if the caller has it.
    """
    windows: dict[int, list[MaintenanceWindow]] = {}
    for window in windows_ahead(pool_id, now) if ahead is None else ahead:
        windows.setdefault(window.node_id, []).append(window)
    nodes = Node.objects.filter(pool_id=pool_id)
    return _statuses(nodes.order_by("gpu_type__rank", "gpu_type", "name"), windows)


def unavailable_nodes() -> list[NodeStatus]:
    """Return nodes of all pools that are drained or lost, without windows. At most two queries."""
    nodes = Node.objects.filter(pool__isnull=False).exclude(effective_state=Node.State.UP)
    return _statuses(nodes.order_by("pool_id", "name"), {})


def _statuses(
    nodes: QuerySet[Node], windows: Mapping[int, Sequence[MaintenanceWindow]]
) -> list[NodeStatus]:
    rows = nodes.select_related("gpu_type", "pool").annotate(
        held=of_held_slots(Count("id"), 0),
        leases=of_held_slots(Count("lease", distinct=True), 0),
        last_expiry=of_held_slots(Max("lease__expires_at")),
    )
    reasons = drain_reasons(rows)
    return [
        answer_of(
            NodeStatus,
            node,
            pool=node.pool.name if node.pool else "",
            gpu_type=node.gpu_type.name,
            windows=tuple(windows.get(node.pk, ())),
            reason=reasons.get(node.audit_subject, ""),
            effective=node.effective_state,
            phase=_phase(node.effective_state, node.held),
        )
        for node in rows
    ]


def _phase(effective: str, held: int) -> str:
    """Return a node's effective state: "draining" until its last lease ends, then "drained"."""
    return DRAINING if effective == Node.State.DRAINED and held else effective


def of_held_slots(what: Aggregate, default: int | None = None) -> Coalesce | Subquery:
    """Return an aggregate over a node's held slots; a join would read all past slots."""
    slots = LeaseSlot.objects.filter(node=OuterRef("pk"), holding=True).order_by()
    of_node = Subquery(slots.values("node").annotate(of_node=what).values("of_node"))
    return of_node if default is None else Coalesce(of_node, default)


def drain_reasons(nodes: Iterable[Node]) -> dict[str, str]:
    """Return why each drained node was drained last, by its subject in the audit log."""
    subjects = [node.audit_subject for node in nodes if node.state == Node.State.DRAINED]
    records = AuditRecord.objects.filter(action=Node.DRAIN_ACTION, subject__in=subjects)
    last = records.order_by("subject", "-id").distinct("subject")
    return dict(last.values_list("subject", "reason"))


def windows_ahead(pool_id: int, now: datetime) -> list[MaintenanceWindow]:
    """Return the maintenance windows that are not over at `now` (pool time), the next one first."""
    rows = MaintenanceWindow.objects.filter(pool_id=pool_id, ends_at__gt=now)
    return list(rows.select_related("node").order_by("starts_at", "node__name"))


def windows_near(facts: PoolFacts, now: datetime) -> list[MaintenanceWindow]:
    """Return the windows that are current or already keep new leases away. A single query."""
    return near_of(windows_ahead(facts.id, now), facts, now)


def near_of(
    windows: Iterable[MaintenanceWindow], facts: PoolFacts, now: datetime
) -> list[MaintenanceWindow]:
    """Return the windows that a term that starts now could overlap.

    As in `scheduling.engine.snapshots`, the longest term is the longest lease
    length, or the minimum runtime if that is longer, plus one round.
    """
    options = facts.policy_options
    least_s = options.min_runtime_us // SECOND_US if options else 0
    term_s = max(facts.longest_lease_s, least_s)
    near = now + timedelta(seconds=term_s + facts.round_s * facts.clock.scale)
    return [row for row in windows if row.starts_at < near]


def leases_into(window: MaintenanceWindow) -> int:
    """Return the number of leases on the window's node that end after its start."""
    slots = LeaseSlot.objects.filter(lease=OuterRef("pk"), node=window.node_id, holding=True)
    rows = Lease.objects.filter(Exists(slots), expires_at__gt=window.starts_at)
    return rows.exclude(state=Lease.State.ENDED).count()
