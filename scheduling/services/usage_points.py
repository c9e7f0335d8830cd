"""What the nodes of a job's leases used, as one course that a chart can show. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from scheduling.engine.executors.local_usage import NodeUsage, SampledRow

MIB = 2**20
# GPUs that do less than this, in per mille, for so long, in wall time, are said to be idle.
IDLE_PERMILLE, IDLE_MS = 10, 600_000


@dataclass(frozen=True, slots=True)
class LeaseSamples:
    """What the nodes of a lease sampled, node by node. `begin_us` and `end_us` are pool time, which
    is `scale` times the wall's; nothing is believed to have happened outside of them."""

    lease: int
    begin_us: int
    end_us: int
    scale: int
    nodes: tuple[NodeUsage, ...]


@dataclass(frozen=True, slots=True)
class UsagePoint:
    """What a job used from `begin_us` to `end_us` of pool time; None: nobody says.

    `cores` is CPU seconds a second, and `memory_bytes` resident, both of all its nodes together, as
    a mean and at the most. `busy` is the mean utilisation in per mille of the `gpus_known` GPUs
    that say it, `busy_low` and `busy_high` that of those that do least and most; `gpu_bytes` their
    mean use of memory, `gpu_peak_bytes` the most on one of them.
    """

    lease: int
    begin_us: int
    end_us: int
    cores: float
    cores_peak: float
    memory_bytes: float | None = None
    memory_peak_bytes: float | None = None
    busy: float | None = None
    busy_low: float | None = None
    busy_high: float | None = None
    gpus_known: int = 0
    gpu_bytes: float | None = None
    gpu_peak_bytes: float | None = None


def usage_points(leases: Sequence[Sequence[UsagePoint]], most: int) -> list[UsagePoint]:
    """Return the course of a job over its leases, each as `lease_points` has it, in at most `most`
    points.

    Where there are more, as many neighbours of a lease become one point: a mean is that
    over time, a peak the highest of them, so none is hidden. No point spans two leases.

    Raises:
        ValueError: there are as many leases as points, or more.
    """
    if most <= len(leases):
        raise ValueError(f"{most} points are too few for {len(leases)} leases")
    joined = -(-sum(map(len, leases)) // (most - len(leases))) or 1
    return [
        join_points(points[place : place + joined])
        for points in leases
        for place in range(0, len(points), joined)
    ]


def lease_points(samples: LeaseSamples) -> list[UsagePoint]:
    """Return a lease's course, with a point for each sample of the node that was sampled last:
    others may have ended long before."""
    nodes = [node for node in samples.nodes if node.rows]
    if not nodes:
        return []
    until_ms = (samples.end_us - samples.begin_us) // (1000 * samples.scale)
    last = max(nodes, key=lambda node: (min(node.rows[-1].end_ms, until_ms), len(node.rows)))
    ends = [row.end_ms for row in last.rows]
    edges = [0, *(end for end in ends if 0 < end < until_ms)]
    if ends[-1] >= until_ms > edges[-1]:
        edges.append(until_ms)
    stretches = [_Stretch(begin, end) for begin, end in pairwise(edges)]
    for node in nodes:
        _share_out(node, stretches)
    return [one.point(samples) for one in stretches]


def join_points(points: Sequence[UsagePoint]) -> UsagePoint:
    """Make one point of neighbours of a lease."""
    return UsagePoint(
        lease=points[0].lease,
        begin_us=points[0].begin_us,
        end_us=points[-1].end_us,
        cores=mean_of(points, "cores") or 0.0,
        cores_peak=max(point.cores_peak for point in points),
        memory_bytes=mean_of(points, "memory_bytes"),
        memory_peak_bytes=_most(point.memory_peak_bytes for point in points),
        busy=mean_of(points, "busy"),
        busy_low=min((one.busy_low for one in points if one.busy_low is not None), default=None),
        busy_high=_most(point.busy_high for point in points),
        gpus_known=max(point.gpus_known for point in points),
        gpu_bytes=mean_of(points, "gpu_bytes"),
        gpu_peak_bytes=_most(point.gpu_peak_bytes for point in points),
    )


def mean_of(points: Sequence[UsagePoint], name: str) -> float | None:
    """The mean of a figure over the time for which it is known."""
    return _level([(one.end_us - one.begin_us, getattr(one, name)) for one in points])


def idle_since_us(points: Sequence[UsagePoint], scale: int, gpus: int) -> int | None:
    """Return since when each of a lease's GPUs has done next to nothing, in pool time, which is
    `scale` times the wall's; None where one has not for long, or does not say."""
    # GPUs answer after what is sampled of processes.
    known = points[:-1] if points and points[-1].gpus_known < gpus else points
    since = None
    for point in reversed(known):
        if point.gpus_known < gpus or point.busy_high is None or point.busy_high >= IDLE_PERMILLE:
            break
        since = point.begin_us
    is_long = since is not None and known[-1].end_us - since >= IDLE_MS * 1000 * scale
    return since if is_long else None


class _Stretch:
    """What all nodes together used in a stretch of a lease, while it is added up."""

    def __init__(self, begin_ms: int, end_ms: int) -> None:
        self.begin_ms, self.end_ms = begin_ms, end_ms
        self.cpu_ms = 0.0
        self.memory: list[tuple[float, int]] = []  # of each node: the mean, and the most
        self.busy: list[float] = []  # of each GPU, as the next
        self.used_mib: list[tuple[float, int]] = []

    def point(self, samples: LeaseSamples) -> UsagePoint:
        cores = self.cpu_ms / (self.end_ms - self.begin_ms)
        per_ms = 1000 * samples.scale
        used = [mean for mean, _ in self.used_mib]
        return UsagePoint(
            lease=samples.lease,
            begin_us=samples.begin_us + self.begin_ms * per_ms,
            end_us=min(samples.begin_us + self.end_ms * per_ms, samples.end_us),
            cores=cores,
            cores_peak=cores,
            memory_bytes=sum(mean for mean, _ in self.memory) if self.memory else None,
            memory_peak_bytes=sum(most for _, most in self.memory) if self.memory else None,
            busy=sum(self.busy) / len(self.busy) if self.busy else None,
            busy_low=min(self.busy, default=None),
            busy_high=max(self.busy, default=None),
            gpus_known=len(self.busy),
            gpu_bytes=MIB * sum(used) / len(used) if used else None,
            gpu_peak_bytes=MIB * max(most for _, most in self.used_mib) if used else None,
        )


def _share_out(node: NodeUsage, stretches: Sequence[_Stretch]) -> None:
    """Add to each stretch what a node used in it: rows lie across edges where nodes differ."""
    spans = list(pairwise([SampledRow(0, 0, None, None, (), ()), *node.rows]))
    first = 0
    for stretch in stretches:
        while first < len(spans) and spans[first][1].end_ms <= stretch.begin_ms:
            first += 1
        parts = []
        for before, row in spans[first:]:
            if before.end_ms >= stretch.end_ms:
                break
            begin_ms = max(before.end_ms, stretch.begin_ms)
            shared_ms = min(row.end_ms, stretch.end_ms) - begin_ms
            if shared_ms > 0:
                used_ms = row.cpu_ms - before.cpu_ms
                stretch.cpu_ms += used_ms * shared_ms / (row.end_ms - before.end_ms)
                parts.append((shared_ms, row))
        _add_levels(stretch, parts)


def _add_levels(stretch: _Stretch, parts: Sequence[tuple[int, SampledRow]]) -> None:
    if len(parts) == 1:  # so it is for a job on one node: nothing is to be weighed
        row = parts[0][1]
        if row.memory_bytes is not None and row.memory_peak_bytes is not None:
            stretch.memory.append((row.memory_bytes, row.memory_peak_bytes))
        stretch.busy += [one for one in row.busy if one is not None]
        stretch.used_mib += [(one, one) for one in row.used_mib if one is not None]
        return
    memory = _level([(ms, row.memory_bytes) for ms, row in parts])
    peak = _most(row.memory_peak_bytes for _, row in parts)
    if memory is not None and peak is not None:
        stretch.memory.append((memory, int(peak)))
    for place in range(max((len(row.busy) for _, row in parts), default=0)):
        own = [(ms, row) for ms, row in parts if place < len(row.busy)]
        busy = _level([(ms, row.busy[place]) for ms, row in own])
        used = _level([(ms, row.used_mib[place]) for ms, row in own])
        if busy is not None:
            stretch.busy.append(busy)
        if used is not None:
            most = max(row.used_mib[place] or 0 for _, row in own)
            stretch.used_mib.append((used, most))


def _level(parts: Iterable[tuple[int, float | None]]) -> float | None:
    """The mean over the time of those that say something."""
    known = [(ms, value) for ms, value in parts if value is not None]
    if not known:
        return None
    return sum(ms * value for ms, value in known) / sum(ms for ms, _ in known)


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
