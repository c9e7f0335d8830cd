"""Texts about a job type's measurements: declared and measured speeds, times, and events."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evenshare_core.domain.measured_speeds import Comparison, is_settled
from evenshare_core.units import MICROSECOND_NS, MILLISECOND_NS, ONE_MILLI, SECOND_US
from portal.charts.figures import thousands
from portal.charts.speeds import value_text
from scheduling.models import Measurement, MeasurementNote
from scheduling.selectors.speeds.measurements import Measurements

Kind = MeasurementNote.Kind
OF = {
    Measurement.Kind.ITERATION.value: "time per iteration",
    Measurement.Kind.RESUME.value: "time to resume",
    Measurement.Kind.SUSPEND.value: "time to suspend",
}


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """Declared and measured speed on a GPU type."""

    gpu_type: str
    declared: str
    measured: str
    verdict: str
    is_overclaim: bool


@dataclass(frozen=True, slots=True)
class TimeRow:
    """A table row with an average; `use`: whether speeds are computed from the average."""

    name: str
    time: str
    spread: str
    reports: int
    iterations: int
    memory: str
    changes: int
    seen_at: datetime
    use: str


def headline_of(seen: Measurements) -> str:
    """Return the headline of a job type's page."""
    name = seen.profile.name
    if seen.overclaims:
        kinds = ", ".join(one.gpu_type for one in seen.overclaims)
        return f"{name} was declared faster on {kinds} than measured."
    if seen.speeds:
        return f"{name} runs as fast as declared, or faster."
    if seen.times:
        return f"{name} is being measured; rounds use the declared speeds."
    return f"{name} is not measured yet; rounds use the declared speeds."


def speed_rows(seen: Measurements) -> list[ComparedRow]:
    """Return a row per GPU type, by name, on which the job type can run."""
    measured = {one.gpu_type: one for one in seen.speeds}
    return [
        _speed_row(kind, milli, measured.get(kind))
        for kind, milli in sorted(seen.profile.as_declared.items())
    ]


def _speed_row(kind: str, declared: int, one: Comparison | None) -> ComparedRow:
    if one is None:
        return ComparedRow(kind, value_text(declared, 3), "", "not measured", is_overclaim=False)
    if one.is_overclaim:
        verdict = f"declared {_percent(one.excess_milli)} faster than measured"
    elif one.excess_milli < -one.tolerance_milli:
        verdict = f"measured faster: {_percent(-one.excess_milli)} less was declared"
    else:
        verdict = "as declared"
    shown = value_text(one.measured_milli, 3)
    return ComparedRow(kind, value_text(declared, 3), shown, verdict, one.is_overclaim)


def time_rows(seen: Measurements) -> list[TimeRow]:
    """Return the averages: times per iteration first, then times to resume and suspend."""
    rows = [_iteration_row(one) for one in seen.times]
    costs = (("to resume", seen.resume), ("to suspend", seen.suspend))
    return rows + [_row(name, one, MICROSECOND_NS, "") for name, one in costs if one is not None]


def _iteration_row(row: Measurement) -> TimeRow:
    where = "several nodes" if row.several_nodes else "one node"
    name = f"{row.gpus} {row.gpu_type}, {where}"
    return _row(name, row, 1, "yes" if is_settled(row.average) else "not yet")


def _row(name: str, row: Measurement, unit_ns: int, use: str) -> TimeRow:
    memory = f"{row.memory_bytes / 2**30:.2f} GiB" if row.memory_bytes else ""
    spread = _percent(row.average.spread_milli)
    return TimeRow(
        name, _time(row.mean * unit_ns), spread, row.reports, row.iterations,
        memory, row.restarts, row.seen_at, use,
    )  # fmt: skip # rows of what belongs together


def note_lines(seen: Measurements) -> list[tuple[MeasurementNote, str]]:
    """Return the events with their texts, newest first."""
    return [(note, _note(note)) for note in seen.notes]


def _note(note: MeasurementNote) -> str:
    data = note.data
    if note.kind == Kind.REFUSED:
        return f"A report of lease {data.get('lease')} was ignored: it {data.get('why')}."
    if note.kind == Kind.CHANGED:
        unit_ns = 1 if data.get("of") == Measurement.Kind.ITERATION else MICROSECOND_NS
        before, after = (_time(int(data.get(key, 0)) * unit_ns) for key in ("before", "after"))
        where = f" on {data['gpus']} {data['gpu_type']}" if data.get("gpu_type") else ""
        what = OF.get(str(data.get("of")), "average")
        return f"The {what}{where} changed from {before} to {after}: its average was reset."
    return f"Rounds use {_speeds(data.get('after'))} instead of {_speeds(data.get('before'))}."


def _speeds(speeds: Any) -> str:
    if not isinstance(speeds, dict):
        return "no speeds"
    return ", ".join(f"{kind} {value_text(milli, 3)}" for kind, milli in sorted(speeds.items()))


def _percent(milli: int) -> str:
    return f"{thousands(milli * 100 / ONE_MILLI, 1)} %"


def _time(nanoseconds: int) -> str:
    for unit, name in (
        (SECOND_US * MICROSECOND_NS, "s"),
        (MILLISECOND_NS, "ms"),
        (MICROSECOND_NS, "µs"),
    ):
        if nanoseconds >= unit:
            return f"{thousands(nanoseconds / unit, 3)} {name}"
    return f"{nanoseconds} ns"
