"""Counts the GPU-time that a lease holds without using it, from the samples of its nodes. Pure.

Each sample of a GPU covers the time since the previous one. It is idle if its mean utilisation is
below `IDLE_PERMILLE`. Time without a sample of a GPU is unknown, and never counted as idle.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import NamedTuple

from evenshare_core.domain.instants import from_us, to_us
from scheduling.engine.executors.local_usage import NodeUsage, SampledRow

# Utilisation in per mille.
IDLE_PERMILLE = 10
START = SampledRow(0, 0, None, None, (), ())


class GpuTime(NamedTuple):
    """GPU-microseconds of pool time: how many were sampled, and how many of these were idle."""

    known_us: int = 0
    idle_us: int = 0


class IdleSpan(NamedTuple):
    """The last samples of a lease in which all its GPUs were idle, in pool time (us)."""

    since_us: int
    until_us: int


@dataclass(frozen=True, slots=True)
class LeaseSamples:
    """The samples of a lease on each of its nodes.

    Samples count from the start of the lease at `begin_us`; samples after `end_us` are ignored.
    Pool time is `scale` times wall time.
    """

    lease: int
    begin_us: int
    end_us: int
    scale: int
    nodes: tuple[NodeUsage, ...]

    @property
    def until_ms(self) -> int:
        """The length of the lease, in ms of wall time."""
        return (self.end_us - self.begin_us) // (1000 * self.scale)

    def at_us(self, ms: int) -> int:
        """Return the pool time of a moment of the samples."""
        return self.begin_us + ms * 1000 * self.scale


@dataclass(frozen=True, slots=True)
class HeldSamples(LeaseSamples):
    """The samples of a lease that holds GPUs. `gpus`: how many each of the nodes must report."""

    gpus: tuple[int, ...]


def sampled_until(samples: HeldSamples) -> int:
    """Return until when (ms) the samples of a running lease are complete.

    GPUs report later than processes, so the last sample of each node may still change.
    """
    ends = [node.rows[-2].end_ms if len(node.rows) > 1 else 0 for node in samples.nodes]
    return min(*ends, samples.until_ms) if ends else 0


def count_days(samples: HeldSamples, after_ms: int, until_ms: int) -> Mapping[date, GpuTime]:
    """Return the sampled GPU-time between two moments, by day of pool time (UTC).

    The counts of successive intervals add up to the count of the whole, to the microsecond.
    """
    known: Counter[date] = Counter()
    idle: Counter[date] = Counter()
    until_ms = min(until_ms, samples.until_ms)
    for node, gpus in zip(samples.nodes, samples.gpus, strict=True):
        for before, row in pairwise((START, *node.rows)):
            begin_ms, end_ms = max(before.end_ms, after_ms), min(row.end_ms, until_ms)
            levels = [one for one in row.busy[:gpus] if one is not None]
            if begin_ms >= end_ms or not levels:
                continue
            idle_gpus = sum(level < IDLE_PERMILLE for level in levels)
            for day, length_us in _by_day(samples.at_us(begin_ms), samples.at_us(end_ms)):
                known[day] += len(levels) * length_us
                idle[day] += idle_gpus * length_us
    return {day: GpuTime(known[day], idle[day]) for day in sorted(known)}


def idle_span(samples: HeldSamples) -> IdleSpan | None:
    """Return the idle span at the end of the samples; None if a GPU is used or not sampled.

    A node's last sample is ignored if it has no figures of GPUs yet.
    """
    if not samples.nodes or not all(samples.gpus):
        return None
    since_ms, until_ms = 0, samples.until_ms
    for node, gpus in zip(samples.nodes, samples.gpus, strict=True):
        rows = node.rows[:-1] if node.rows and not _is_known(node.rows[-1], gpus) else node.rows
        if not rows:
            return None
        begin_ms = _idle_from(rows, gpus)
        since_ms, until_ms = max(since_ms, begin_ms), min(until_ms, rows[-1].end_ms)
    if since_ms >= until_ms:
        return None
    return IdleSpan(samples.at_us(since_ms), samples.at_us(until_ms))


def _idle_from(rows: Sequence[SampledRow], gpus: int) -> int:
    """Return since when (ms) all GPUs of a node were idle; the end of the rows if they are not."""
    begin_ms = rows[-1].end_ms
    for before, row in reversed(list(pairwise((START, *rows)))):
        if not _is_known(row, gpus) or any((one or 0) >= IDLE_PERMILLE for one in row.busy[:gpus]):
            break
        begin_ms = before.end_ms
    return begin_ms


def _is_known(row: SampledRow, gpus: int) -> bool:
    return len(row.busy) >= gpus and None not in row.busy[:gpus]


def _by_day(begin_us: int, end_us: int) -> Iterator[tuple[date, int]]:
    while begin_us < end_us:
        day = from_us(begin_us).astimezone(UTC).date()
        midnight = datetime.combine(day + timedelta(days=1), time.min, UTC)
        until_us = min(end_us, to_us(midnight))
        yield day, until_us - begin_us
        begin_us = until_us
