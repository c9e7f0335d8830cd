"""The use of the nodes of a job's leases, merged into one series for a chart. Pure."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Annotated, NamedTuple

from evenshare_core.domain.instants import from_us
from scheduling.engine.executors.local_usage import NodeUsage, SampledRow
from scheduling.engine.idle_samples import IDLE_PERMILLE, START, LeaseSamples
from tenants.answers import Answer, Hidden, formatted_as

MIB = 2**20
# GPUs below `IDLE_PERMILLE` for this wall time (ms) are reported as idle.
IDLE_MS = 600_000
# If a node ran for at least this fraction of a stretch, it counts as running for all of it.
NEARLY_ALL = 0.9
# At the end of a lease, a step shorter than this fraction of the usual step is merged.
MOMENT = 1 / 8


def _figure(value: float) -> float:
    return round(value, 3)


def _percent(permille: float) -> float:
    return round(permille / 10, 1)


PoolInstant = Annotated[int, formatted_as(from_us, format="date-time")]
_NAMES = {
    "begin_us": "starts_at",
    "end_us": "ends_at",
    "busy": "gpu_percent",
    "busy_low": "gpu_lowest_percent",
    "gpu_bytes": "gpu_memory_bytes",
    "gpu_peak_bytes": "gpu_memory_peak_bytes",
}


class UsagePoint(Answer, frozen=True, rename=_NAMES):
    """The use of all nodes together over a period; a figure is null if unknown."""

    COMPONENT = "UsageFigures"

    lease: int
    begin_us: PoolInstant
    end_us: PoolInstant
    cores: Annotated[
        float, formatted_as(_figure, description="CPU seconds per second of wall time.")
    ]
    cores_peak: Annotated[float, formatted_as(_figure)]
    memory_bytes: Annotated[
        float | None,
        formatted_as(round, type="integer", description="Resident memory of all processes."),
    ] = None
    memory_peak_bytes: Annotated[float | None, formatted_as(round, type="integer")] = None
    # Utilisation in per mille, over the `gpus_known` GPUs that report it.
    busy: Annotated[
        float | None, formatted_as(_percent, description="Mean utilisation of the GPUs.")
    ] = None
    busy_low: Annotated[
        float | None, formatted_as(_percent, description="Utilisation of the least used GPU.")
    ] = None
    gpu_bytes: Annotated[
        float | None,
        formatted_as(round, type="integer", description="Memory per GPU, mean of all its GPUs."),
    ] = None
    gpu_peak_bytes: Annotated[
        float | None, formatted_as(round, type="integer", description="Maximum on one GPU.")
    ] = None
    busy_high: Hidden[float | None] = None
    gpus_known: Hidden[int] = 0


def usage_points(leases: Sequence[Sequence[UsagePoint]], most: int) -> list[UsagePoint]:
    """Return the series of a job over its leases (see `lease_points`), in at most `most` points.

    If there are more, neighbours within a lease are joined in equal groups. Means are taken over
    time, and peaks are the highest of a group, so no peak is lost. No point spans two leases.

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
    """Return a lease's series, with a point for each sample of the node that was sampled last.

    Other nodes may have ended long before. A very short last step is joined with the previous step.
    """
    nodes = [node for node in samples.nodes if node.rows]
    if not nodes:
        return []
    until_ms = samples.until_ms
    last = max(nodes, key=lambda node: (min(node.rows[-1].end_ms, until_ms), len(node.rows)))
    ends = [row.end_ms for row in last.rows]
    edges = [0, *(end for end in ends if 0 < end < until_ms)]
    if ends[-1] >= until_ms > edges[-1]:
        edges.append(until_ms)
    # The last sample comes when the program ends; a very short step would look like a spike.
    if len(edges) > 2 and edges[-1] - edges[-2] < MOMENT * median(
        end - begin for begin, end in pairwise(edges[:-1])
    ):
        del edges[-2]
    stretches = [_Stretch(begin, end) for begin, end in pairwise(edges)]
    for node in nodes:
        _share_out(node, stretches)
    return [one.point(samples) for one in stretches]


def join_points(points: Sequence[UsagePoint]) -> UsagePoint:
    """Join neighbouring points of a lease into one."""
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
    """Return the mean of a figure over the time for which it is known."""
    return _level([(one.end_us - one.begin_us, getattr(one, name)) for one in points])


def idle_since_us(points: Sequence[UsagePoint], scale: int, gpus: int) -> int | None:
    """Return since when (pool time, us) all GPUs of a lease have been idle.

    Return None if a GPU was busy within the last `IDLE_MS` of wall time, or does not report. Pool
    time is `scale` times wall time.
    """
    # GPUs report later than processes.
    known = points[:-1] if points and points[-1].gpus_known < gpus else points
    since = None
    for point in reversed(known):
        if point.gpus_known < gpus or point.busy_high is None or point.busy_high >= IDLE_PERMILLE:
            break
        since = point.begin_us
    is_long = since is not None and known[-1].end_us - since >= IDLE_MS * 1000 * scale
    return since if is_long else None


class _HeldLevel(NamedTuple):
    """A node's or GPU's memory level in a stretch of a lease, during which the node ran for `ms`.

    `level` is the mean over the known part, `most` the peak. `said`: the level was reported in this
    stretch, not carried over from an earlier one.
    """

    ms: int
    level: float
    most: float
    said: bool


class _Stretch:
    def __init__(self, begin_ms: int, end_ms: int) -> None:
        self.begin_ms, self.end_ms = begin_ms, end_ms
        self.cpu_ms = 0.0
        self.memory: list[_HeldLevel] = []  # by node
        # by GPU: the utilisation, and the time for which it is known (ms)
        self.busy: list[tuple[int, float]] = []
        self.used_mib: list[_HeldLevel] = []  # by GPU

    def point(self, samples: LeaseSamples) -> UsagePoint:
        length_ms = self.end_ms - self.begin_ms
        cores = self.cpu_ms / length_ms
        memory, used = _said_levels(self.memory), _said_levels(self.used_mib)
        busy = [level for _, level in self.busy]
        gpu_mib = _level((one.ms, one.level) for one in used)
        return UsagePoint(
            lease=samples.lease,
            begin_us=samples.at_us(self.begin_ms),
            end_us=min(samples.at_us(self.end_ms), samples.end_us),
            cores=cores,
            cores_peak=cores,
            memory_bytes=sum(_of_whole(one, length_ms) for one in memory) if memory else None,
            memory_peak_bytes=sum(one.most for one in memory) if memory else None,
            busy=_level(self.busy),
            busy_low=min(busy, default=None),
            busy_high=max(busy, default=None),
            gpus_known=len(busy),
            gpu_bytes=None if gpu_mib is None else MIB * gpu_mib,
            gpu_peak_bytes=MIB * max(one.most for one in used) if used else None,
        )


def _said_levels(held: Sequence[_HeldLevel]) -> Sequence[_HeldLevel]:
    """Return all levels if any of them was reported in this stretch, else none."""
    return held if any(one.said for one in held) else ()


def _of_whole(one: _HeldLevel, length_ms: int) -> float:
    """Return a node's mean level over a stretch; it is 0 while the node does not run.

    Nodes of a gang end within moments of each other. A node that ran for nearly all of the stretch
    counts as running for all of it.
    """
    return one.level if one.ms >= NEARLY_ALL * length_ms else one.level * one.ms / length_ms


def _share_out(node: NodeUsage, stretches: Sequence[_Stretch]) -> None:
    """Add a node's use to each stretch; divide a sample across an edge pro rata."""
    spans = list(pairwise([START, *node.rows]))
    memory = _LevelCourse([row.memory_bytes for row in node.rows])
    used = [
        _LevelCourse([row.used_mib[place] for row in node.rows if place < len(row.used_mib)])
        for place in range(max(len(row.used_mib) for row in node.rows))
    ]
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
        if parts:
            _add_levels(stretch, parts, memory, used)


class _LevelCourse:
    """A level of a node over successive stretches, with gaps filled.

    Samples at a program's end, or between two of its processes, contain no level. The last known
    level is used until the next one; before the first report, the first level is used.
    """

    def __init__(self, levels: Iterable[int | None]) -> None:
        self._known = next((level for level in levels if level is not None), None)

    def held(
        self, parts: Sequence[tuple[int, int | None]], peaks: Iterable[int | None]
    ) -> list[_HeldLevel]:
        """Return the node's level in a stretch, or an empty list if none is known yet."""
        ms = sum(one for one, _ in parts)
        level, most = _level(parts), _most(peaks)
        if level is not None and most is not None:
            self._known = [value for _, value in parts if value is not None][-1]
            return [_HeldLevel(ms, level, most, said=True)]
        return [] if self._known is None else [_HeldLevel(ms, self._known, self._known, said=False)]


def _add_levels(
    stretch: _Stretch,
    parts: Sequence[tuple[int, SampledRow]],
    memory: _LevelCourse,
    used: Sequence[_LevelCourse],
) -> None:
    stretch.memory += memory.held(
        [(ms, row.memory_bytes) for ms, row in parts], (row.memory_peak_bytes for _, row in parts)
    )
    for place, course in enumerate(used):
        levels = [(ms, _at(row.used_mib, place)) for ms, row in parts]
        stretch.used_mib += course.held(levels, (one for _, one in levels))
        busy = [(ms, _at(row.busy, place)) for ms, row in parts]
        level = _level(busy)
        if level is not None:
            stretch.busy.append((sum(ms for ms, one in busy if one is not None), level))


def _at(values: Sequence[int | None], place: int) -> int | None:
    return values[place] if place < len(values) else None


def _level(parts: Iterable[tuple[int, float | None]]) -> float | None:
    known = [(ms, value) for ms, value in parts if value is not None]
    if not known:
        return None
    return sum(ms * value for ms, value in known) / sum(ms for ms, _ in known)


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
