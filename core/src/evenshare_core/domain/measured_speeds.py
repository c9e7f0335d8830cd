"""Speeds by GPU type from times per iteration, and their comparison with declared speeds.

Times per iteration are compared between GPU types at the same number of GPUs and the same shape
(one node or several). Each average needs `LEAST_REPORTS` reports since it started, and a spread of
at most `MOST_SPREAD_MILLI`. A ratio of speeds needs two types. A type without a ratio keeps its
declared speed, in proportion to the slowest declared speed of the measured types.

Source: OEF 4.2 (its profiling agent), docs/adr/0183-virtual-truth.md.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from evenshare_core.domain.averages import Average
from evenshare_core.domain.ids import ProfileId
from evenshare_core.domain.profiles import speedups_normal
from evenshare_core.domain.values import Value
from evenshare_core.units import ONE_MILLI

LEAST_REPORTS = 5
MOST_SPREAD_MILLI = 100
# Policies keep the old speeds while a newer measurement differs by no more than this.
STILL_MILLI = 20
# No GPU is this many times as fast as another, so a larger ratio comes from a wrong report.
MOST_RATIO = 1000
# The tolerated excess of a declared speed over a measured one, whatever the spread is.
TOLERANCE_MILLI = 50


class IterationTime(NamedTuple):
    """Time per iteration of a job type on `gpus` GPUs of a type; all rows in one unit of time."""

    gpu_type: str
    gpus: int
    several_nodes: bool
    average: Average


class MeasuredSpeed(NamedTuple):
    """A speed in thousandths of the slowest measured type's, with its spread and report count."""

    speed_milli: int
    spread_milli: int
    reports: int


class MeasuredProfile(Value, frozen=True, array_like=True):
    """The declared and the measured speeds of a job type; `id` is that of its profile.

    `declared` has (GPU type, thousandths of the slowest declared speed), `measured` a speed by GPU
    type; both are sorted by type. Certificates compare them; policies read `Profile.speedups`.
    """

    id: ProfileId
    declared: tuple[tuple[str, int], ...]
    measured: tuple[tuple[str, MeasuredSpeed], ...]


class Comparison(NamedTuple):
    """The declared and the measured speed on one GPU type, in thousandths of the same reference.

    `excess_milli` is how far the declared speed is above the measured one; negative if it is below.
    `tolerance_milli` is the part that the spreads of both types explain. The reference type has the
    excess 0.
    """

    gpu_type: str
    declared_milli: int
    measured_milli: int
    excess_milli: int
    tolerance_milli: int

    @property
    def is_overclaim(self) -> bool:
        """Whether the declared speed exceeds the measured one beyond the tolerance."""
        return self.excess_milli > self.tolerance_milli


def is_settled(average: Average) -> bool:
    """Return whether an average has enough and close enough reports to derive speeds from it."""
    return average.reports >= LEAST_REPORTS and average.spread_milli <= MOST_SPREAD_MILLI


def measured_speeds(
    times: Iterable[IterationTime], before: Mapping[str, MeasuredSpeed]
) -> dict[str, MeasuredSpeed]:
    """Return the measured speeds by GPU type, or `before` if no new speed can be derived.

    The shape with the most settled types comes first. Other shapes, and then `before`, add the
    types that it lacks, in proportion to a type that both have.
    """
    shapes = _shapes(times)
    if not shapes:
        return dict(before)
    sources: dict[str, Average] = dict(shapes[0])
    speeds = {kind: Fraction(1, average.mean) for kind, average in shapes[0].items()}
    for shape in shapes[1:]:
        _add(speeds, {kind: Fraction(1, average.mean) for kind, average in shape.items()})
        sources = {kind: one for kind, one in shape.items() if kind in speeds} | sources
    _add(speeds, {kind: Fraction(one.speed_milli) for kind, one in before.items()})
    new = {
        kind: MeasuredSpeed(milli, sources[kind].spread_milli, sources[kind].reports)
        if kind in sources
        else before[kind]._replace(speed_milli=milli)
        for kind, milli in speedups_normal(speeds).items()
    }
    is_nonsense = max(one.speed_milli for one in new.values()) > MOST_RATIO * ONE_MILLI
    return dict(before) if is_nonsense or _is_still(before, new) else new


def used_speedups(
    declared: Mapping[str, int], measured: Mapping[str, MeasuredSpeed]
) -> dict[str, int]:
    """Return the speedups for policies: measured if there is a ratio, else declared.

    They are in thousandths of the slowest declared type's speed, at most `MOST_RATIO` times that
    speed. Declared and measured ratios are each bounded, but a mixture of them is not.
    """
    speeds = {kind: Fraction(milli) for kind, milli in declared.items()}
    speeds |= _in_declared_unit(declared, measured)
    most = MOST_RATIO * min(speeds.values(), default=Fraction(0))
    return speedups_normal({kind: min(speed, most) for kind, speed in speeds.items()})


def compare(
    declared: Mapping[str, int], measured: Mapping[str, MeasuredSpeed]
) -> tuple[Comparison, ...]:
    """Return the comparison by GPU type; empty without a measured ratio."""
    speeds = _in_declared_unit(declared, measured)
    if not speeds:
        return ()
    anchor = _anchor(declared, speeds)
    return tuple(
        Comparison(
            kind,
            declared[kind],
            round(speed),
            round((Fraction(declared[kind]) / speed - 1) * ONE_MILLI),
            0 if kind == anchor else _tolerance(measured[kind], measured[anchor]),
        )
        for kind, speed in sorted(speeds.items())
    )


def _tolerance(one: MeasuredSpeed, other: MeasuredSpeed) -> int:
    return max(TOLERANCE_MILLI, one.spread_milli + other.spread_milli)


def _shapes(times: Iterable[IterationTime]) -> list[dict[str, Average]]:
    """Return settled averages by type for each shape: most types first, then fewest GPUs.

    Shapes with only one type are left out, because they give no ratio.
    """
    shapes: dict[tuple[int, bool], dict[str, Average]] = {}
    for row in sorted(times):
        if is_settled(row.average):
            shapes.setdefault((row.gpus, row.several_nodes), {})[row.gpu_type] = row.average
    order = sorted(shapes, key=lambda key: (-len(shapes[key]), key))
    return [shapes[key] for key in order if len(shapes[key]) > 1]


def _add(speeds: dict[str, Fraction], others: Mapping[str, Fraction]) -> None:
    """Add the missing types, in proportion to the first common type."""
    common = sorted(speeds.keys() & others.keys())
    if common:
        factor = speeds[common[0]] / others[common[0]]
        for kind in sorted(others.keys() - speeds.keys()):
            speeds[kind] = others[kind] * factor


def _is_still(before: Mapping[str, MeasuredSpeed], new: Mapping[str, MeasuredSpeed]) -> bool:
    if before.keys() != new.keys():
        return False
    return all(
        abs(new[kind].speed_milli - old.speed_milli) * ONE_MILLI <= STILL_MILLI * old.speed_milli
        for kind, old in before.items()
    )


def _in_declared_unit(
    declared: Mapping[str, int], measured: Mapping[str, MeasuredSpeed]
) -> dict[str, Fraction]:
    """Return measured speeds in the unit of the declared ones; empty for fewer than two types."""
    kinds = sorted(declared.keys() & measured.keys())
    if len(kinds) < 2:
        return {}
    anchor = _anchor(declared, kinds)
    factor = Fraction(declared[anchor], measured[anchor].speed_milli)
    return {kind: measured[kind].speed_milli * factor for kind in kinds}


def _anchor(declared: Mapping[str, int], kinds: Iterable[str]) -> str:
    """Return the reference type, which is the slowest declared type."""
    return min(kinds, key=lambda kind: (declared[kind], kind))
