"""The GPU map: a node is a block of its GPUs, and a box in it is a lease.

Slots fill columns of two, top first: a buddy-aligned gang of 2, 4 or 8 is one block. Its initials
are in the largest block, and thin lines separate its GPUs. Each node is an SVG in a CSS grid, so
that the map wraps on a phone instead of shrinking. The `<title>` of a node names its leases. Above
`COMPACT_FROM` nodes the cells shrink and have no initials. GPUs that are held back for a promised
start are dotted, with a dashed frame.

The page holds each common block once (`map_shapes`), and leases refer to it: this halves the map.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.charts.figures import plural
from portal.charts.svg import Markup, join, path, rect, tag, text
from portal.charts.tenants import TenantBadge

COMPACT_FROM = 200
ROWS = 2
SHAPED = 4  # the widest block that is drawn by reference, in columns
# The minimum width of a node, so that its name fits.
LEAST_COLUMNS = 3
STATE_NAMES = {"drained": gettext_noop("drained"), "down": gettext_noop("down")}


@dataclass(frozen=True, slots=True)
class MapLease:
    """GPUs that one lease holds on one node. The last `borrowed` slots get the accent corner.

    `text` names it ("vision-lab, job 123, 4 GPUs"); only the viewer's own leases have `href`.
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
    def state_name(self) -> str:
        """Return the state in the page's language."""
        return _(STATE_NAMES.get(self.state, self.state))

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
    top: float
    left: float = 1

    def at(self, slot: int) -> tuple[float, float]:
        return self.left + slot // ROWS * self.width, self.top + slot % ROWS * self.height

    def box(self, block: "_Block") -> tuple[float, float, float, float]:
        """Return x, y, width and height of a block."""
        x, y = self.at(block.column * ROWS + block.row)
        return x, y, block.columns * self.width, block.rows * self.height


@dataclass(frozen=True, slots=True)
class _Block:
    """A rectangle of cells, from its top left one."""

    column: int
    row: int
    columns: int
    rows: int

    @property
    def cells(self) -> int:
        return self.columns * self.rows


_FULL = _Cells(20, 18, names=True, top=13)
_SMALL = _Cells(6, 6, names=False, top=1)


def node_map(nodes: Sequence[MapNode], *, label: str = "") -> Markup:
    small = len(nodes) > COMPACT_FROM
    cells = _SMALL if small else _FULL
    return tag(
        "ul",
        *(tag("li", _node(node, cells)) for node in nodes),
        class_="nodes small" if small else "nodes",
        aria_label=label or plural(len(nodes), "node"),
    )


def map_shapes() -> Markup:
    """Return the blocks that the maps of a page refer to: b42 has 4 x 2 GPUs, in c42 all borrowed.

    The lease sets fill and frame.
    """
    blocks = [_Block(0, 0, columns + 1, rows + 1) for columns in range(SHAPED) for rows in range(2)]
    shapes = [_shape(block, borrowed=borrowed) for block in blocks for borrowed in (False, True)]
    return tag("svg", tag("defs", *shapes), class_="defs", width=0, height=0, aria_hidden="true")


def _shape(block: _Block, *, borrowed: bool) -> Markup:
    cells = replace(_FULL, left=0, top=0)
    slots = [column * ROWS + row for column in range(block.columns) for row in range(block.rows)]
    parts: list[object] = [rect(*cells.box(block)), *_separators([block], cells)]
    if borrowed:
        parts.extend(_corners(slots, len(slots), cells))
    return tag("g", *parts, id=_shape_id(block, borrowed=borrowed))


def _shape_id(block: _Block, *, borrowed: bool) -> str:
    return f"{'c' if borrowed else 'b'}{block.columns}{block.rows}"


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
        class_=None if node.state == "up" else "off",
        role="group" if linked else "img",
    )


def _name(node: MapNode) -> Markup:
    name = text(1, 9, node.name)
    return tag("a", name, href=node.href) if node.href else name


def _summary(node: MapNode) -> str:
    if node.state != "up" and not node.leases:
        return f"{node.name}: {node.state_name}, {plural(node.gpus, 'GPU')}"
    texts = Counter(lease.text or lease.tenant.name for lease in node.leases)
    held = [
        f"{count} \N{MULTIPLICATION SIGN} {text}" if count > 1 else text
        for text, count in texts.items()
    ]
    held += [row.text for row in node.held_back]
    idle = len(node.free) - sum(row.gpus for row in node.held_back)
    rest = []
    if idle > 0 and node.state == "up":
        rest = [_("{idle} idle").format(idle=idle)]
    elif idle > 0:
        rest = [f"{idle} {node.state_name}"]

    return f"{node.name}: " + "; ".join(held + rest)


def _blocked(node: MapNode, cells: _Cells, width: float, height: float) -> Markup:
    box = rect(1, cells.top, width - 2, height - cells.top - 1, class_="blk", fill="url(#p-blk)")
    if not cells.names:
        return box
    middle = cells.top + cells.height + 4
    return join((box, text(width / 2, middle, node.state_name, class_="off")))


def _idle(node: MapNode, cells: _Cells) -> Iterable[Markup]:
    off = node.state != "up"
    idle = len(node.free) - sum(row.gpus for row in node.held_back)
    slots = node.free[: max(0, idle)]
    if slots:
        shape = "".join(_inset(slot, cells) for slot in slots)
        yield path(shape, class_="blk" if off else "idle", fill="url(#p-blk)" if off else None)


def _inset(slot: int, cells: _Cells) -> str:
    x, y = cells.at(slot)
    width, height = cells.width - 1.5, cells.height - 1.5
    return f"M{x + 0.75:g} {y + 0.75:g}h{width:g}v{height:g}h{-width:g}z"


def _held_back(node: MapNode, cells: _Cells) -> Iterable[Markup]:
    """Draw the GPUs held back, from the last slot on: the tenant's initials on a dotted ground."""
    slots = node.free
    for row in reversed(node.held_back):
        parts: list[object] = [tag("title", row.text)]
        for slot in [slots.pop() for _slot in range(min(row.gpus, len(slots)))]:
            fill = "url(#p-wait)" if cells.names else None
            parts.append(path(_inset(slot, cells), class_="kept", fill=fill))
            if cells.names:
                block = _Block(*divmod(slot, ROWS), 1, 1)
                parts.append(_initials(block, cells, row.tenant))
        group = tag("g", *parts, class_=row.tenant.css)
        yield tag("a", group, href=row.href) if row.href else group


def _initials(block: _Block, cells: _Cells, tenant: TenantBadge) -> Markup:
    x, y, width, height = cells.box(block)
    at = (x + width / 2, y + height / 2 + 4)
    return text(*at, tenant.initials)


def _lease(lease: MapLease, gpus: int, cells: _Cells) -> Markup:
    slots = sorted(slot for slot in set(lease.slots) if 0 <= slot < gpus)
    parts: list[object] = []
    if lease.href:
        parts.append(tag("title", lease.text or lease.tenant.name))
    blocks = _blocks(slots)
    borrowed = min(lease.borrowed, len(slots))
    shaped = cells.names and len(blocks) == 1 and blocks[0].columns <= SHAPED
    if shaped:
        whole = borrowed == len(slots)
        x, y = cells.at(slots[0])
        parts.append(tag("use", href=f"#{_shape_id(blocks[0], borrowed=whole)}", x=x, y=y))
        borrowed = 0 if whole else borrowed
    elif len(blocks) == 1:
        parts.append(rect(*cells.box(blocks[0])))
    else:
        parts.append(path(_outline(slots, cells)))
    if cells.names and slots:
        if not shaped:
            parts.extend(_separators(blocks, cells))
        parts.extend(_corners(slots, borrowed, cells))
        largest = max(blocks, key=lambda block: block.cells)
        parts.append(_initials(largest, cells, lease.tenant))
    frame = " me" if lease.tenant.you else ""
    group = tag("g", *parts, class_=f"{lease.tenant.css}{frame}")
    return tag("a", group, href=lease.href) if lease.href else group


def _blocks(slots: Sequence[int]) -> list[_Block]:
    """Return the rectangles of these slots: neighbouring columns with the same rows."""
    rows_of: dict[int, list[int]] = {}
    for slot in slots:
        column, row = divmod(slot, ROWS)
        rows_of.setdefault(column, []).append(row)
    blocks: list[_Block] = []
    for column, rows in rows_of.items():
        here = _Block(column, rows[0], 1, len(rows))
        last = blocks[-1] if blocks else None
        if (
            last is not None
            and last.column + last.columns == column
            and (last.row, last.rows) == (here.row, here.rows)
        ):
            blocks[-1] = replace(last, columns=last.columns + 1)
        else:
            blocks.append(here)
    return blocks


def _separators(blocks: Sequence[_Block], cells: _Cells) -> Iterable[Markup]:
    lines = []
    for block in blocks:
        x, y, width, height = cells.box(block)
        lines += [f"M{x + cells.width * n:g} {y:g}v{height:g}" for n in range(1, block.columns)]
        lines += [f"M{x:g} {y + cells.height * n:g}h{width:g}" for n in range(1, block.rows)]
    if lines:
        yield path("".join(lines), class_="joint")


def _corners(slots: Sequence[int], borrowed: int, cells: _Cells) -> Iterable[Markup]:
    """Draw the corner of each borrowed GPU, from the last slot on."""
    size = cells.width * 0.3
    corners = []
    for slot in slots[len(slots) - min(borrowed, len(slots)) :]:
        x, y = cells.at(slot)
        corners.append(f"M{x + 1:g} {y + 1:g}h{size:g}l{-size:g} {size:g}z")
    if corners:
        yield path("".join(corners), class_="corner")


def _outline(slots: Sequence[int], cells: _Cells) -> str:
    """Return the path around the cells of a lease of any shape; they are on its right."""
    held = {divmod(slot, ROWS) for slot in slots}
    edges: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for column, row in sorted(held):
        corners = [(column, row), (column + 1, row), (column + 1, row + 1), (column, row + 1)]
        beside = [(column, row - 1), (column + 1, row), (column, row + 1), (column - 1, row)]
        for place, other in enumerate(beside):
            if other not in held:
                edges.setdefault(corners[place], []).append(corners[(place + 1) % 4])
    loops = []
    while edges:
        loops.append(_loop(edges, min(edges)))
    return "".join(_loop_path(loop, cells) for loop in loops)


def _loop(
    edges: dict[tuple[int, int], list[tuple[int, int]]], start: tuple[int, int]
) -> list[tuple[int, int]]:
    """Take a loop out of the edges: its points, from `start` until before it again."""
    points, at = [start], start
    while True:
        nexts = edges[at]
        at = nexts.pop()
        if not nexts:
            del edges[points[-1]]
        if at == start:
            return points
        points.append(at)


def _loop_path(points: Sequence[tuple[int, int]], cells: _Cells) -> str:
    """Return the closed path through the points, without those in the middle of a line."""
    size = len(points)
    bends = [
        point
        for place, point in enumerate(points)
        if (points[place - 1][0] == point[0]) != (point[0] == points[(place + 1) % size][0])
    ]
    x, y = bends[0]
    parts = [f"M{cells.left + x * cells.width:g} {cells.top + y * cells.height:g}"]
    for (x, y), (to_x, to_y) in pairwise(bends):
        across, down = (to_x - x) * cells.width, (to_y - y) * cells.height
        parts.append(f"h{across:g}" if across else f"v{down:g}")
    return "".join(parts) + "z"
