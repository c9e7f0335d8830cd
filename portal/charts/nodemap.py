"""The GPU map: a node is a block of its GPUs, and a box in it is a lease.

Slots fill columns of two, top first: a buddy-aligned gang of 2, 4 or 8 is one block. Each node is
an SVG in a CSS grid, so that the map wraps on a phone instead of shrinking. Above `COMPACT_FROM`
nodes the cells shrink and have no initials; `<title>` still names them. GPUs that are held back for
a promised start are dotted, with a dashed frame.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from portal.charts.figures import plural
from portal.charts.svg import Markup, join, path, rect, tag, text
from portal.charts.tenants import TenantBadge

COMPACT_FROM = 200
ROWS = 2
# The minimum width of a node, so that its name fits.
LEAST_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class MapLease:
    """GPUs that one lease holds on one node. The last `borrowed` slots get the accent corner.

    `text` is the tooltip ("vision-lab, job 123, 4 GPUs"); only the viewer's own leases have `href`.
    """

    slots: tuple[int, ...]
    tenant: TenantBadge
    text: str = ""
    borrowed: int = 0
    href: str = ""


@dataclass(frozen=True, slots=True)
class MapHeldBack:
    """Free GPUs that are held back for a tenant's waiting job; `text` is the tooltip."""

    gpus: int
    tenant: TenantBadge
    text: str
    href: str = ""


@dataclass(frozen=True, slots=True)
class MapNode:
    """A node and its leases; `state` is up, drained or down. `held_back`: the last free GPUs."""

    name: str
    gpus: int
    leases: tuple[MapLease, ...] = ()
    state: str = "up"
    href: str = ""
    held_back: tuple[MapHeldBack, ...] = ()

    @property
    def free(self) -> list[int]:
        """The slots of no lease."""
        taken = {slot for lease in self.leases for slot in lease.slots}
        return [slot for slot in range(self.gpus) if slot not in taken]


@dataclass(frozen=True, slots=True)
class _Cells:
    """Geometry of a cell; `names`: initials and the node's name are printed."""

    width: float
    height: float
    names: bool

    @property
    def top(self) -> float:
        return 13 if self.names else 1

    def at(self, slot: int) -> tuple[float, float]:
        return 1 + slot // ROWS * self.width, self.top + slot % ROWS * self.height


_FULL = _Cells(20, 18, names=True)
_SMALL = _Cells(6, 6, names=False)


def node_map(nodes: Sequence[MapNode], *, label: str = "") -> Markup:
    """Draw the nodes in their given order."""
    small = len(nodes) > COMPACT_FROM
    cells = _SMALL if small else _FULL
    return tag(
        "ul",
        *(tag("li", _node(node, cells)) for node in nodes),
        class_="nodes small" if small else "nodes",
        aria_label=label or plural(len(nodes), "node"),
    )


def _node(node: MapNode, cells: _Cells) -> Markup:
    columns = max(-(-node.gpus // ROWS), LEAST_COLUMNS if cells.names else 1)
    width = columns * cells.width + 2
    height = cells.top + ROWS * cells.height + 1
    leases = sorted(node.leases, key=lambda lease: lease.tenant.you)
    parts: list[object] = [tag("title", _summary(node))]
    if cells.names:
        parts.append(_name(node))
    if node.state != "up" and not leases:
        parts.append(_blocked(node, cells, width, height))
    else:
        parts.extend(_idle(node, cells))
        parts.extend(_held_back(node, cells))
        parts.extend(_lease(lease, node.gpus, cells) for lease in leases)
    links = [*[lease.href for lease in leases], *[row.href for row in node.held_back]]
    linked = any(links) or (cells.names and bool(node.href))
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width:g} {height:g}",
        class_="node" if node.state == "up" else "node off",
        role="group" if linked else "img",
        aria_label=_summary(node),
    )


def _name(node: MapNode) -> Markup:
    name = text(1, 9, node.name, class_="nm")
    return tag("a", name, href=node.href) if node.href else name


def _summary(node: MapNode) -> str:
    if node.state != "up" and not node.leases:
        return f"{node.name}: {node.state}, {plural(node.gpus, 'GPU')}"
    held = [lease.text or f"{lease.tenant.name}, {len(lease.slots)}" for lease in node.leases]
    held += [row.text for row in node.held_back]
    idle = len(node.free) - sum(row.gpus for row in node.held_back)
    rest = [f"{idle} idle" if node.state == "up" else f"{idle} {node.state}"] if idle > 0 else []
    return f"{node.name}: " + "; ".join(held + rest)


def _blocked(node: MapNode, cells: _Cells, width: float, height: float) -> Markup:
    box = rect(1, cells.top, width - 2, height - cells.top - 1, class_="blk", fill="url(#p-blk)")
    if not cells.names:
        return box
    middle = cells.top + cells.height + 4
    return join((box, text(width / 2, middle, node.state, class_="ini off", anchor="middle")))


def _idle(node: MapNode, cells: _Cells) -> Iterable[Markup]:
    off = node.state != "up"
    idle = len(node.free) - sum(row.gpus for row in node.held_back)
    for slot in node.free[: max(0, idle)]:
        yield _cell(slot, cells, "blk" if off else "idle", "url(#p-blk)" if off else None)


def _held_back(node: MapNode, cells: _Cells) -> Iterable[Markup]:
    """Draw the GPUs held back, from the last slot on: the tenant's initials on a dotted ground."""
    slots = node.free
    for row in reversed(node.held_back):
        parts: list[object] = [tag("title", row.text)]
        for slot in [slots.pop() for _ in range(min(row.gpus, len(slots)))]:
            fill = "url(#p-wait)" if cells.names else None
            parts.append(_cell(slot, cells, "kept", fill))
            if cells.names:
                parts.append(_initials(slot, cells, row.tenant))
        css = row.tenant.css
        group = tag("g", *parts, class_=f"kept-box {css}", data_t=css)
        yield tag("a", group, href=row.href) if row.href else group


def _cell(slot: int, cells: _Cells, css: str, fill: str | None) -> Markup:
    x, y = cells.at(slot)
    size = (cells.width - 1.5, cells.height - 1.5)
    return rect(x + 0.75, y + 0.75, *size, class_=css, fill=fill)


def _initials(slot: int, cells: _Cells, tenant: TenantBadge) -> Markup:
    x, y = cells.at(slot)
    at = (x + cells.width / 2, y + cells.height / 2 + 3.6)
    return text(*at, tenant.initials, class_="ini", anchor="middle")


def _lease(lease: MapLease, gpus: int, cells: _Cells) -> Markup:
    slots = sorted(slot for slot in set(lease.slots) if 0 <= slot < gpus)
    # Patterns are unreadable at 6 px: the small map uses the plain tint.
    fill = lease.tenant.fill if cells.names else None
    parts: list[object] = [tag("title", lease.text or lease.tenant.name)]
    for slot in slots:
        x, y = cells.at(slot)
        parts.append(rect(x, y, cells.width, cells.height, fill=fill, class_="gpu"))
        if cells.names:
            parts.append(_initials(slot, cells, lease.tenant))
    corners = min(lease.borrowed, len(slots)) if cells.names else 0
    for slot in slots[len(slots) - corners :]:
        x, y = cells.at(slot)
        size = cells.width * 0.3
        parts.append(path(f"M{x + 1:g} {y + 1:g}h{size:g}l{-size:g} {size:g}z", class_="corner"))
    parts.append(path(_outline(slots, cells), class_="box me" if lease.tenant.you else "box"))
    group = tag("g", *parts, class_=f"lease-box {lease.tenant.css}", data_t=lease.tenant.css)
    return tag("a", group, href=lease.href) if lease.href else group


def _outline(slots: Sequence[int], cells: _Cells) -> str:
    """Return the path around the lease's cells, whatever their shape."""
    held = {divmod(slot, ROWS) for slot in slots}
    edges: list[str] = []
    for column, row in sorted(held):
        x, y = 1 + column * cells.width, cells.top + row * cells.height
        if (column, row - 1) not in held:
            edges.append(f"M{x:g} {y:g}h{cells.width:g}")
        if (column, row + 1) not in held:
            edges.append(f"M{x:g} {y + cells.height:g}h{cells.width:g}")
        if (column - 1, row) not in held:
            edges.append(f"M{x:g} {y:g}v{cells.height:g}")
        if (column + 1, row) not in held:
            edges.append(f"M{x + cells.width:g} {y:g}v{cells.height:g}")
    return "".join(edges)
