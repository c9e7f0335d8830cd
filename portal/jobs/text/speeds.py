"""Texts about a job type's measurements: declared and measured speeds, times, and events."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from evenshare_core.domain.measured_speeds import Comparison, is_settled
from evenshare_core.units import MICROSECOND_NS, MILLISECOND_NS, ONE_MILLI, SECOND_US
from portal.charts.figures import percent, thousands
from portal.charts.speeds import value_text
from scheduling.models import Measurement, MeasurementNote, Profile
from scheduling.selectors.speeds.measurements import Measurements, overclaims_of
from scheduling.selectors.stored_texts import STORED

Kind = MeasurementNote.Kind
# A change of an average; the last text is for other kinds.
CHANGES = {
    Measurement.Kind.ITERATION.value: gettext_noop(
        "The time per iteration on {gpus} changed from {before} to {after}: its average was reset."
    ),
    Measurement.Kind.RESUME.value: gettext_noop(
        "The time to resume changed from {before} to {after}: its average was reset."
    ),
    Measurement.Kind.SUSPEND.value: gettext_noop(
        "The time to suspend changed from {before} to {after}: its average was reset."
    ),
    "": gettext_noop("The average changed from {before} to {after}: it was reset."),
}
SOURCES = {
    Profile.Source.DECLARED.value: gettext_noop("declared by the tenant"),
    Profile.Source.MEASURED.value: gettext_noop("measured by the portal"),
    Profile.Source.PUBLISHED.value: gettext_noop("from a published measurement"),
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
        text = _("{name} was declared faster on {gpu_types} than measured.")
    elif seen.speeds:
        text = _("{name} runs as fast as declared, or faster.")
    elif seen.times:
        text = _("{name} is being measured; rounds use the declared speeds.")
    else:
        text = _("{name} is not measured yet; rounds use the declared speeds.")
    kinds = ", ".join(one.gpu_type for one in seen.overclaims)
    return text.format(name=name, gpu_types=kinds)


def source_text(profile: Profile) -> str:
    """Return the origin of a job type's speeds, and the GPU types with overclaims."""
    source = _(SOURCES[profile.source])
    kinds = ", ".join(one.gpu_type for one in overclaims_of(profile))
    if not kinds:
        return source
    text = _("{source}, declared faster on {gpu_types}")
    return text.format(source=source, gpu_types=kinds)


def speed_rows(seen: Measurements) -> list[ComparedRow]:
    """Return a row per GPU type, by name, on which the job type can run."""
    measured = {one.gpu_type: one for one in seen.speeds}
    return [
        _speed_row(kind, milli, measured.get(kind))
        for kind, milli in sorted(seen.profile.as_declared.items())
    ]


def _speed_row(kind: str, declared: int, one: Comparison | None) -> ComparedRow:
    if one is None:
        verdict = _("not measured")
        return ComparedRow(kind, value_text(declared, 3), "", verdict, is_overclaim=False)
    if one.is_overclaim:
        verdict = _("declared {percent} faster than measured")
    elif one.excess_milli < -one.tolerance_milli:
        verdict = _("measured faster: {percent} less was declared")
    else:
        verdict = _("as declared")
    verdict = verdict.format(percent=_percent(abs(one.excess_milli)))
    shown = value_text(one.measured_milli, 3)
    return ComparedRow(kind, value_text(declared, 3), shown, verdict, one.is_overclaim)


def time_rows(seen: Measurements) -> list[TimeRow]:
    """Return the averages: times per iteration first, then times to resume and suspend."""
    rows = [_iteration_row(one) for one in seen.times]
    costs = ((_("to resume"), seen.resume), (_("to suspend"), seen.suspend))
    return rows + [_row(name, one, MICROSECOND_NS, "") for name, one in costs if one is not None]


def _iteration_row(row: Measurement) -> TimeRow:
    if row.several_nodes:
        name = _("{count} {gpu_type}, several nodes")
    else:
        name = _("{count} {gpu_type}, one node")
    name = name.format(count=thousands(row.gpus), gpu_type=row.gpu_type)
    return _row(name, row, 1, _("yes") if is_settled(row.average) else _("not yet"))


def _row(name: str, row: Measurement, unit_ns: int, use: str) -> TimeRow:
    memory = f"{thousands(row.memory_bytes / 2**30, 2)} GiB" if row.memory_bytes else ""
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
        text = _("A report of lease {lease} was ignored: it {reason}.")
        return text.format(lease=data.get("lease"), reason=STORED.shown(str(data.get("why"))))
    if note.kind == Kind.CHANGED:
        unit_ns = 1 if data.get("of") == Measurement.Kind.ITERATION else MICROSECOND_NS
        before, after = (_time(int(data.get(key, 0)) * unit_ns) for key in ("before", "after"))
        gpus = f"{data.get('gpus', '')} {data.get('gpu_type', '')}"
        text = _(CHANGES.get(str(data.get("of")), CHANGES[""]))
        return text.format(gpus=gpus, before=before, after=after)
    text = _("Rounds use {new} instead of {old}.")
    return text.format(new=_speeds(data.get("after")), old=_speeds(data.get("before")))


def _speeds(speeds: Any) -> str:
    if not isinstance(speeds, dict):
        return _("no speeds")
    return ", ".join(f"{kind} {value_text(milli, 3)}" for kind, milli in sorted(speeds.items()))


def _percent(milli: int) -> str:
    return percent(milli / ONE_MILLI, 1)


def _time(nanoseconds: int) -> str:
    for unit, name in (
        (SECOND_US * MICROSECOND_NS, "s"),
        (MILLISECOND_NS, "ms"),
        (MICROSECOND_NS, "µs"),
    ):
        if nanoseconds >= unit:
            return f"{thousands(nanoseconds / unit, 3)} {name}"
    return f"{nanoseconds} ns"
