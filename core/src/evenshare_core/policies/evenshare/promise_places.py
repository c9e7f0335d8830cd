"""The place of a new promise.

Per node, GPUs become available now, at the expiry of a lease, or one lease after an older promise.
Leases and free GPUs count only as far as no promise counts them. GPUs of older promises count only
if a node has too few others. Leases of tenants that are owed as much as the job's tenant, or more,
count only if no node has enough others.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from evenshare_core.policies.evenshare.promises import PromisedPart, StartPromise

# (available from, GPUs, job of the lease or of the older promise); job 0 for free GPUs
Source = tuple[int, int, int]


class NodeSources(NamedTuple):
    """The GPUs of a node by the time from which they are available.

    `own`: free GPUs and leases. `promised`: GPUs of older promises. Both are sorted.
    """

    size: int
    own: list[Source]
    promised: list[Source]


class PromisedPlace(NamedTuple):
    """A place for a promise: its time, the GPU-us that wait for it, and its parts by node."""

    due_us: int
    waste_gpu_us: int
    parts: dict[int, PromisedPart]


def best_place(
    gpus: int, nodes: Mapping[int, NodeSources], last: Collection[int] = ()
) -> PromisedPlace | None:
    """Return the place with the least time, then the least waste, then the lowest node id.

    GPUs of older promises, and of the leases of jobs in `last`, count only if there is no other
    place. Return None if the nodes have too few GPUs.
    """
    if last:
        others = {
            node: NodeSources(row.size, [one for one in row.own if one[2] not in last], [])
            for node, row in nodes.items()
        }
        place = _best_place(gpus, others)
        if place is not None:
            return place
    return _best_place(gpus, nodes)


def _best_place(gpus: int, nodes: Mapping[int, NodeSources]) -> PromisedPlace | None:
    """Return the best place.

    A gang that is larger than every node takes whole nodes one by one, and the rest on one more.
    """
    due_us, waste, parts = 0, 0, dict[int, PromisedPart]()
    left = gpus
    while left:
        rest = {node: row for node, row in nodes.items() if row.size and node not in parts}
        enough = {node: left for node, row in rest.items() if row.size >= left}
        counts = enough or {node: row.size for node, row in rest.items()}
        tried = [_on_node(node, rest[node], count) for node, count in counts.items()]
        known = [row for row in tried if row is not None]
        if not known:
            return None
        best = min(known)
        due_us, waste = max(due_us, best.due_us), waste + best.waste_gpu_us
        parts[best.node] = _part(rest[best.node], counts[best.node], best.due_us)
        left -= counts[best.node]
    return PromisedPlace(due_us, waste, parts)


def add_promised(
    sources: Mapping[int, NodeSources], rows: Collection[StartPromise], term_us: int
) -> None:
    """Add the GPUs of promises that no other promise counts: one term after their time."""
    for row in rows:
        for node, part in row.parts.items():
            behind = [other.parts[node] for other in rows if node in other.parts]
            count = part.gpus - sum(other.after.get(row.job, 0) for other in behind)
            if count and node in sources:
                sources[node].promised.append((row.due_us + term_us, count, row.job))


class _NodePlace(NamedTuple):
    due_us: int
    waste_gpu_us: int
    node: int


def _on_node(node: int, row: NodeSources, gpus: int) -> _NodePlace | None:
    """Return when a node first has the GPUs, or None if it never has."""
    due_us, left = 0, gpus
    for source in (*row.own, *row.promised):
        due_us = max(due_us, source[0])
        left -= source[1]
        if left <= 0:
            chosen = _chosen(row, gpus, due_us)
            waste = sum(count * (due_us - at_us) for (at_us, _, _), count, _ in chosen)
            return _NodePlace(due_us, waste, node)
    return None


def _chosen(row: NodeSources, gpus: int, due_us: int) -> Iterable[tuple[Source, int, bool]]:
    """Return (source, GPUs taken, whether it is promised).

    Of what is available by `due_us`, the latest comes first, so that the fewest GPUs wait. Leases
    come before free GPUs of the same time.
    """
    chosen, left = [], gpus
    own = [source for source in row.own if source[0] <= due_us]
    own.sort(key=lambda source: (-source[0], not source[2], source[2]))
    for sources, is_promised in ((own, False), (row.promised, True)):
        for source in sources:
            taken = min(left, source[1])
            if taken:
                chosen.append((source, taken, is_promised))
                left -= taken
    return chosen


def _part(row: NodeSources, gpus: int, due_us: int) -> PromisedPart:
    part = PromisedPart()
    for (_, _, job), taken, is_promised in _chosen(row, gpus, due_us):
        if is_promised:
            part.after[job] = taken
        elif job:
            part.pins[job] = taken
        else:
            part.held += taken
    return part
