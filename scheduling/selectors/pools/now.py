"""The present state of a pool: nodes, leases, last rounds, prices."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.reasons import Reason
from evenshare_core.money.fixed_point import to_credits
from scheduling.models import Job, LeaseSlot, Node, Round, RoundState
from scheduling.selectors.rounds.promised_starts import list_promised
from scheduling.selectors.sharing.quotas import kept_quotas
from scheduling.selectors.visibility import Visibility, VisibleTenant

STRIP = 60


@dataclass(frozen=True, slots=True)
class HeldGpus:
    """GPUs of one lease on one node. `tenant` is None if the viewer may not see it.

    GPUs granted to a waiting lease count as held once they are free. `gpus` is the lease's total on
    all nodes. `borrowed` counts the borrowed slots of this node: a lease's own GPUs come first, in
    the order of nodes. `job` and `name` are empty if the viewer may not see the job.
    """

    slots: tuple[int, ...]
    tenant: VisibleTenant | None
    gpus: int
    borrowed: int
    job: UUID | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class HeldBackGpus:
    """Free GPUs of a node that are held back for a waiting job, by its promised start.

    The job starts in the round at `starts_at` at the latest. `tenant` is None if the viewer may not
    see it; `job` and `name` are empty if the viewer may not see the job.
    """

    gpus: int
    starts_at: datetime
    tenant: VisibleTenant | None
    job: UUID | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class NodeUse:
    """A node and the leases on it, in slot order; `state` is up, drained or lost.

    `away`: maintenance keeps new leases off the node, by the rule of rounds. `held_back`: some of
    its free GPUs, if it takes leases; the first to be used come first.
    """

    name: str
    gpu_type: str
    gpus: int
    state: str
    holds: tuple[HeldGpus, ...]
    away: bool = False
    held_back: tuple[HeldBackGpus, ...] = ()

    @property
    def phase(self) -> str:
        """Return the state, "draining" with leases, or "in maintenance" if up but kept free."""
        if self.state == Node.State.DRAINED and self.held:
            return "draining"
        return "in maintenance" if self.state == Node.State.UP and self.away else self.state

    @property
    def takes_leases(self) -> bool:
        """Whether a round may place a lease on it."""
        return self.state == Node.State.UP and not self.away

    @property
    def held(self) -> int:
        return sum(len(hold.slots) for hold in self.holds)

    @property
    def free(self) -> int:
        """GPUs that no lease holds, whatever the node's state."""
        return self.gpus - self.held


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A tenant's GPUs of one type that it holds now, with the last round's quota and rho.

    `quota` is None if the tenant had no claim in the last round. `swapped`: GPUs that trades add to
    the quota; negative if they take some away. `kept`: idle GPUs of the quota that are not lent.
    `tenant` is None for the sum of all tenants that the viewer may not see.
    """

    tenant: VisibleTenant | None
    gpu_type: str
    own: int
    borrowed: int
    quota: int | None = None
    rho: float | None = None
    kept: int = 0
    swapped: int = 0

    @property
    def uses(self) -> int:
        return self.own + self.borrowed

    @property
    def against(self) -> int:
        """The difference between the GPUs held and the quota after trades."""
        return self.uses - (self.quota or 0) - self.swapped


@dataclass(frozen=True, slots=True)
class TypeUse:
    """All GPUs of one type. used + idle + blocked = gpus; quota + unassigned + out = gpus.

    `idle`: free on nodes that take leases; `blocked`: free on other nodes. `out`: GPUs that the
    last round did not count; `unassigned`: counted, but in no tenant's quota. Both are None before
    the first round.
    """

    name: str
    nodes: tuple[NodeUse, ...]
    claims: tuple[ClaimUse, ...]
    capacity: int | None

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    @property
    def used(self) -> int:
        return sum(node.held for node in self.nodes)

    @property
    def own(self) -> int:
        """GPUs held within own quota."""
        return sum(claim.own for claim in self.claims)

    @property
    def borrowed(self) -> int:
        """GPUs held above own quota."""
        return sum(claim.borrowed for claim in self.claims)

    @property
    def idle(self) -> int:
        """Free GPUs of nodes that take leases."""
        return sum(node.free for node in self.nodes if node.takes_leases)

    @property
    def held_back(self) -> int:
        """Idle GPUs that are held back for promised starts."""
        return sum(row.gpus for node in self.nodes for row in node.held_back)

    @property
    def blocked(self) -> int:
        """Free GPUs of nodes that are drained, lost or in maintenance."""
        return self.gpus - self.used - self.idle

    @property
    def quota(self) -> int:
        """The sum of the effective quotas of the last round."""
        return sum(claim.quota or 0 for claim in self.claims)

    @property
    def unassigned(self) -> int | None:
        """GPUs of the last round that are in no tenant's quota."""
        return None if self.capacity is None else self.capacity - self.quota

    @property
    def out(self) -> int | None:
        """GPUs that the last round did not count."""
        return None if self.capacity is None else self.gpus - self.capacity


@dataclass(frozen=True, slots=True)
class RoundSummary:
    """A past round: the GPUs that it left idle, and those that it could not use.

    `reasons`: the number of jobs queued after it, by reason code.
    """

    number: int
    at: datetime
    idle: int
    blocked: int
    waiting: int
    waiting_gpus: int
    reasons: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PriceNow:
    """The price of a GPU-hour in the next round's terms, and the GPU use that it is based on."""

    gpu_type: str
    price: Decimal
    used: int
    capacity: int


@dataclass(frozen=True, slots=True)
class PoolOverview:
    """The present state of a pool; `rounds` are the last ones, oldest first."""

    types: tuple[TypeUse, ...]
    rounds: tuple[RoundSummary, ...]
    prices: tuple[PriceNow, ...]

    def total(self, name: str) -> int:
        """Sum a property of `TypeUse` over all types."""
        return sum(getattr(row, name) or 0 for row in self.types)

    @property
    def off(self) -> list[NodeUse]:
        """Nodes that take no new leases."""
        return [node for row in self.types for node in row.nodes if not node.takes_leases]


def pool_overview(
    pool_id: int, visibility: Visibility, *, away: Container[int] = ()
) -> PoolOverview:
    """Return a pool's nodes, holds, claims, last rounds and prices.

    Seven queries, and two more if starts are promised. `away`: ids of nodes that get no new leases
    because of maintenance.
    """
    nodes = Node.objects.filter(pool_id=pool_id).order_by("gpu_type__rank", "gpu_type", "name")
    rows = list(nodes.select_related("gpu_type"))
    holds, uses = _holds(pool_id, visibility)
    rounds = list(
        Round.objects.filter(pool_id=pool_id)
        .order_by("-number")
        .values("number", "at", "summary")[:STRIP]
    )
    total = sum(node.gpus for node in rows)
    prices, shares, at = _last(pool_id, {node.gpu_type.name for node in rows})
    keepers = kept_quotas(pool_id, at)
    capacity = {price.gpu_type: price.capacity for price in prices}
    is_promised = bool(rounds) and Reason.PROMISED in rounds[0]["summary"].get("reasons", {})
    held_back = _held_back(pool_id, visibility) if is_promised else {}
    types = tuple(
        TypeUse(
            name=gpu_type,
            nodes=tuple(
                _with_held_back(
                    NodeUse(
                        node.name,
                        gpu_type,
                        node.gpus,
                        node.effective_state,
                        tuple(holds.get(node.pk, ())),
                        node.pk in away,
                    ),
                    held_back.get(node.pk, ()),
                )
                for node in rows
                if node.gpu_type.name == gpu_type
            ),
            claims=_claims(gpu_type, uses, shares, visibility, keepers),
            capacity=capacity.get(gpu_type),
        )
        for gpu_type in dict.fromkeys(node.gpu_type.name for node in rows)
    )
    return PoolOverview(types, tuple(round_summary(row, total) for row in reversed(rounds)), prices)


def _holds(
    pool_id: int, visibility: Visibility
) -> tuple[dict[int, list[HeldGpus]], dict[tuple[int, str], Counter[str]]]:
    """Return the leases by node, and own and borrowed GPUs by (tenant, GPU type).

    A waiting lease holds the granted GPUs that are already free: the round counts them as taken,
    and no other grant gets them. GPUs that the previous lease still holds count as that lease's.
    """
    held = LeaseSlot.objects.filter(node=OuterRef("node"), slot=OuterRef("slot"), holding=True)
    slots = (
        LeaseSlot.objects.filter(
            Q(holding=True) | Q(planned=True) & ~Exists(held), node__pool_id=pool_id
        )
        .order_by("node_id", "lease_id", "slot")
        .values_list(
            "node_id", "slot", "lease_id", "lease__tenant_id", "lease__gpu_type__name",
            "lease__own", "lease__borrowed", "lease__job__uid", "lease__job__name",
        )
    )  # fmt: skip # a table
    places: dict[tuple[int, int], list[int]] = {}
    leases: dict[int, tuple[Any, ...]] = {}
    for node, slot, lease, *facts in slots:
        places.setdefault((node, lease), []).append(slot)
        leases[lease] = tuple(facts)
    uses: dict[tuple[int, str], Counter[str]] = {}
    holds: dict[int, list[HeldGpus]] = {}
    counted: Counter[int] = Counter()
    for (node, lease), taken in sorted(places.items(), key=lambda item: (item[0][0], item[1][0])):
        tenant, gpu_type, own, borrowed, uid, name = leases[lease]
        counted[lease] += len(taken)
        here = max(0, min(len(taken), counted[lease] - own))
        use = uses.setdefault((tenant, gpu_type), Counter())
        use.update(own=len(taken) - here, borrowed=here)
        known = (uid, name) if visibility.jobs_of(tenant) else (None, "")
        hold = HeldGpus(tuple(taken), visibility.of(tenant), own + borrowed, here, *known)
        holds.setdefault(node, []).append(hold)
    return holds, uses


def _held_back(pool_id: int, visibility: Visibility) -> dict[int, list[HeldBackGpus]]:
    """Return the GPUs that the last round held back, by node; of jobs that still wait."""
    promised = list_promised([pool_id]).get(pool_id, [])
    waiting = Job.objects.filter(state=Job.State.PENDING).only("tenant_id", "uid", "name")
    jobs = waiting.in_bulk([row.job for row in promised])
    held: dict[int, list[HeldBackGpus]] = {}
    for row in promised:
        job = jobs.get(row.job)
        if job is None:
            continue
        tenant = visibility.of(job.tenant_id)
        uid, name = (job.uid, job.name) if visibility.jobs_of(job.tenant_id) else (None, "")
        for node, gpus in row.held.items():
            one = HeldBackGpus(gpus, row.starts_at, tenant, uid, name)
            held.setdefault(node, []).append(one)
    return held


def _with_held_back(node: NodeUse, held_back: Iterable[HeldBackGpus]) -> NodeUse:
    """Return the node with the GPUs held back, at most as many as are free now."""
    left, shown = node.free if node.takes_leases else 0, []
    for row in held_back:
        gpus = min(row.gpus, left)
        left -= gpus
        if gpus > 0:
            shown.append(replace(row, gpus=gpus))
    return replace(node, held_back=tuple(shown))


def _last(
    pool_id: int, gpu_types: Container[str]
) -> tuple[tuple[PriceNow, ...], list[dict[str, Any]], datetime]:
    states = RoundState.objects.filter(pool=pool_id).order_by("-number", "-day")
    # There is always a row, because every pool starts with a state.
    posted, number, at = states.values_list("prices", "number", "at")[0]
    prices = tuple(
        PriceNow(row["gpu_type"], to_credits(row["price_micro"]), row["used"], row["capacity"])
        for row in posted
        if row["gpu_type"] in gpu_types
    )
    shares = Round.objects.filter(pool_id=pool_id, number=number).values_list("shares", flat=True)
    return prices, shares.first() or [], at


def _claims(
    gpu_type: str,
    uses: dict[tuple[int, str], Counter[str]],
    shares: Iterable[dict[str, Any]],
    visibility: Visibility,
    keepers: Mapping[tuple[int, str], Entitlement],
) -> tuple[ClaimUse, ...]:
    """Return claims of one type in the tenants' order; hidden tenants are one row at the end."""
    rows = {row["tenant"]: row for row in shares if row["gpu_type"] == gpu_type}
    tenants = set(rows) | {tenant for tenant, type_ in uses if type_ == gpu_type}
    shown: list[ClaimUse] = []
    hidden: Counter[str] = Counter()
    for tenant in tenants:
        seen, share = visibility.of(tenant), rows.get(tenant)
        use = uses.get((tenant, gpu_type)) or Counter[str]()
        quota = share["quota"] if share else None
        own, borrowed, keeper = use["own"], use["borrowed"], keepers.get((tenant, gpu_type))
        swapped = share.get("swapped", 0) if share else 0
        idle = max(0, (quota or 0) + swapped - own)
        kept = idle - keeper.lendable(idle) if keeper else 0
        if seen is None:
            hidden.update(own=own, borrowed=borrowed, quota=quota or 0, kept=kept, rows=1)
            hidden["swapped"] += swapped
            continue
        rho = share["rho_before"] if share else None
        shown.append(ClaimUse(seen, gpu_type, own, borrowed, quota, rho, kept, swapped))
    shown.sort(key=lambda claim: claim.tenant.number if claim.tenant else 0)
    if hidden["rows"]:
        own, borrowed, quota, kept = (hidden[key] for key in ("own", "borrowed", "quota", "kept"))
        swapped = hidden["swapped"]
        shown.append(ClaimUse(None, gpu_type, own, borrowed, quota, kept=kept, swapped=swapped))
    return tuple(shown)


def round_summary(row: Mapping[str, Any], total: int) -> RoundSummary:
    """Return a round's summary from its columns.

    GPUs that it did not count were blocked, or did not exist yet.
    """
    summary = row["summary"]
    # In rounds of an earlier version that had no nodes, the value is null.
    gpus = summary.get("gpus", total) or 0
    held_away = max(0, -summary["idle"])
    return RoundSummary(
        number=row["number"],
        at=row["at"],
        idle=idle_gpus(summary),
        blocked=max(0, gpus - summary["capacity"] - held_away),
        waiting=summary["waiting"],
        waiting_gpus=summary["waiting_gpus"],
        reasons=tuple(summary.get("reasons", {}).items()),
    )


def idle_gpus(summary: Mapping[str, Any]) -> int:
    """Return the GPUs that a round left idle.

    Leases may still run on a drained node, whose GPUs are not schedulable. They count as used, so
    that the stored difference may be negative.
    """
    idle: int = summary.get("idle", 0)
    return max(0, idle)
