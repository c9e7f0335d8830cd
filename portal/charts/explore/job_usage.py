"""A job's use of GPUs, CPUs and memory over time, with the limits of its leases."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from evenshare_core.domain.instants import from_us
from evenshare_core.units import SECOND_US
from portal.charts.explore.chart import Label, PageChart, Rule, Series, apart, axis_range
from portal.charts.explore.columns import ChartColumn
from portal.charts.explore.looks import QUOTA, Look
from portal.charts.figures import percent, thousands
from scheduling.services.usage import JobUsage
from scheduling.services.usage_points import UsagePoint, mean_of

GIB, MIB = 2**30, 2**20
MEAN = Look("var(--ink)")
EDGE = Look("var(--accent)", "dot", width=1.6)
# Only the last RULES leases get a line. Names closer than this part of the axis are left out.
RULES, RULES_APART = 24, 0.1
# Draw a limit only if the usage is still readable on the longer axis.
ROOM = 4
PERCENT = (0.0, 105.0)
PART_OF_TIME = gettext_noop("% of time")


Figure = Callable[[UsagePoint], float | None]


@dataclass(frozen=True, slots=True)
class _Course:
    """A figure over all leases: mean, lowest or highest value (`edge`), and the limit by lease.

    `unit` and the names are texts of the catalogue. `edge_text` and `limit_text` explain the dotted
    line and the dashed line, `high_text` a limit far above the usage.
    """

    key: str
    unit: str
    mean: Figure
    edge: Figure
    edge_name: str
    edge_text: str
    places: int = 2
    limits: Mapping[int, float] = field(default_factory=dict)
    limit_name: str = ""
    limit_text: str = ""
    high_text: Callable[[float], str] = thousands


def usage_charts(usage: JobUsage, *, gpus: int, file: str) -> list[PageChart]:
    """Return charts of the known figures: GPUs and GPU memory first, then CPUs and memory."""
    points = usage.points
    charts = []
    if any(point.busy is not None for point in points):
        charts.append(_busy_chart(usage, gpus, file))
    if any(point.gpu_bytes is not None for point in points):
        charts.append(_gpu_memory_chart(usage, gpus, file))
    if points:
        charts.append(_cpu_chart(usage, file))
    if any(point.memory_bytes is not None for point in points):
        charts.append(_memory_chart(usage, file))
    return charts


def _busy_chart(usage: JobUsage, gpus: int, file: str) -> PageChart:
    course = _Course(
        "gpu",
        PART_OF_TIME,
        lambda one: None if one.busy is None else one.busy / 10,
        lambda one: None if one.busy_low is None else one.busy_low / 10,
        gettext_noop("lowest GPU") if gpus > 1 else gettext_noop("lowest"),
        _("Dotted: the lowest GPU.") if gpus > 1 else _("Dotted: the lowest samples."),
        places=0,
    )
    mean = mean_of(usage.points, "busy") or 0.0
    title = _("GPU utilisation {part} on average").format(part=percent(mean / 1000))
    known = max(point.gpus_known for point in usage.points)
    if gpus == 1:
        text = _("The share of time in which a kernel ran on the GPU.")
    elif known < gpus:
        text = _(
            "Mean over {known} of the job's {gpus} GPUs: the share of time in which a kernel ran"
            " on a GPU."
        )
    else:
        text = _(
            "Mean over the job's {gpus} GPUs: the share of time in which a kernel ran on a GPU."
        )
    text = text.format(known=thousands(known), gpus=thousands(gpus))
    return _chart(usage, course, title, text, file)


def _gpu_memory_chart(usage: JobUsage, gpus: int, file: str) -> PageChart:
    most = max(point.gpu_peak_bytes or 0 for point in usage.points)
    unit, size, places = _axis_unit(most)
    course = _Course(
        "gpu-memory",
        unit,
        lambda one: _in(one.gpu_bytes, size),
        lambda one: _in(one.gpu_peak_bytes, size),
        gettext_noop("highest GPU") if gpus > 1 else gettext_noop("highest"),
        _("Dotted: the highest GPU.") if gpus > 1 else _("Dotted: the highest samples."),
        places=places,
        limits={one.number: one.gpu_bytes / size for one in usage.leases if one.gpu_bytes},
        limit_name=gettext_noop("memory of a GPU"),
        high_text=lambda highest: _("The memory of a GPU: {size} GiB.").format(
            size=thousands(highest * size / GIB, 0)
        ),
        limit_text=_("Dashed: memory of one GPU."),
    )
    text = (
        _("Memory used on one GPU: the mean over the job's GPUs.")
        if gpus > 1
        else _("Memory used on the job's GPU.")
    )
    title = _("GPU memory: at most {size}").format(size=size_text(most))
    return _chart(usage, course, title, text, file)


def _cpu_chart(usage: JobUsage, file: str) -> PageChart:
    course = _Course(
        "cpu",
        gettext_noop("cores"),
        lambda one: one.cores,
        lambda one: one.cores_peak,
        gettext_noop("peak"),
        _("Dotted: the highest samples."),
        limits={one.number: float(one.cpus) for one in usage.leases if one.cpus},
        limit_name=gettext_noop("CPUs that the job may use"),
        limit_text=_("Dashed: the CPUs that the job may use."),
        high_text=lambda highest: _("CPUs that the job may use: {count}.").format(
            count=thousands(highest, 0)
        ),
    )
    mean = mean_of(usage.points, "cores") or 0.0
    text = _("CPU seconds per second of all processes of the job.")
    title = _("{cores} cores in use on average").format(cores=thousands(mean, 2))
    return _chart(usage, course, title, text, file)


def _memory_chart(usage: JobUsage, file: str) -> PageChart:
    most = max(point.memory_peak_bytes or 0 for point in usage.points)
    unit, size, places = _axis_unit(most)
    course = _Course(
        "memory",
        unit,
        lambda one: _in(one.memory_bytes, size),
        lambda one: _in(one.memory_peak_bytes, size),
        gettext_noop("peak"),
        _("Dotted: the highest samples."),
        places=places,
    )
    text = _("Resident memory of all processes of the job; shared pages count once per process.")
    title = _("Memory: at most {size}").format(size=size_text(most))
    return _chart(usage, course, title, text, file)


def _chart(usage: JobUsage, course: _Course, title: str, text: str, file: str) -> PageChart:
    keys, places = _steps(usage.points)

    def series(name: str, values: list[float | None], look: Look) -> Series:
        column = ChartColumn(f"{_(name)}, {_(course.unit)}", f"{name}, {course.unit}")
        return Series(_(name), column, keys, values, look, places=course.places)

    means = _closed(places, course.mean)
    edges = _closed(places, course.edge)
    drawn = [series(gettext_noop("mean"), means, MEAN)]
    known = [value for value in (*means, *edges) if value is not None]
    if edges != means:
        drawn.append(series(course.edge_name, edges, EDGE))
        text = f"{text} {course.edge_text}"
    highest = max(course.limits.values(), default=0.0)
    if highest > ROOM * max(known):
        text = f"{text} {course.high_text(highest)}"
    elif highest:
        held = [None if point is None else course.limits.get(point.lease) for point in places]
        drawn.append(series(course.limit_name, held, QUOTA))
        known.append(highest)
        text = f"{text} {course.limit_text}"
    last = next(value for value in reversed(means) if value is not None)
    y = PERCENT if course.unit == PART_OF_TIME else axis_range([0.0, *known], least=0.1)
    return PageChart(
        key=f"usage-{course.key}",
        title=title,
        text=text,
        series=tuple(drawn),
        y=y,
        unit=_(course.unit),
        file=f"{file}-{course.key}",
        key_column=gettext_noop("from, UTC on the pool's clock"),
        labels=apart([Label(thousands(last, course.places), last)], y),
        rules=_rules(usage),
    )


def _steps(points: Sequence[UsagePoint]) -> tuple[list[datetime], list[UsagePoint | None]]:
    """Return the instants, each with the point that is valid from then on.

    A lease's last point is repeated at its end. Between leases, the point is None.
    """
    keys: list[int] = []
    places: list[UsagePoint | None] = []
    for place, point in enumerate(points):
        keys.append(point.begin_us)
        places.append(point)
        following = points[place + 1] if place + 1 < len(points) else None
        if following is None or following.begin_us > point.end_us:
            keys.append(point.end_us)
            places.append(point)
        if following is not None and following.begin_us > point.end_us + 1:
            keys.append((point.end_us + following.begin_us) // 2)
            places.append(None)
    return [from_us(key) for key in keys], places


def _closed(places: Sequence[UsagePoint | None], figure: Figure) -> list[float | None]:
    """Return the figure at each instant; an unknown figure repeats the value before it.

    The last sample of a program may have no memory figure: the value before it was valid until
    then.
    """
    said = [None if point is None else figure(point) for point in places]
    return [
        before if value is None and point is not None else value
        for point, value, before in zip(places, said, [None, *said], strict=False)
    ]


def _rules(usage: JobUsage) -> tuple[Rule, ...]:
    """Return a vertical line at each lease's start; a line close to a labelled one has no label."""
    starts = [(one.number, one.started_at) for one in usage.leases if one.mean is not None]
    if len(starts) < 2:
        return ()
    span_s = (usage.points[-1].end_us - usage.points[0].begin_us) / SECOND_US
    rules: list[Rule] = []
    named_at: datetime | None = None
    for number, at in starts[-RULES:]:
        is_apart = named_at is None or (at - named_at).total_seconds() >= RULES_APART * span_s
        rules.append(
            Rule(at, _("lease {number}").format(number=thousands(number)) if is_apart else "")
        )
        named_at = at if is_apart else named_at
    return tuple(rules)


def size_text(value: float) -> str:
    """Return bytes as GiB with two places, or as MiB."""
    if value < GIB:
        return f"{thousands(value / MIB, 0)} MiB"
    return f"{thousands(value / GIB, 2)} GiB"


def _axis_unit(most: float) -> tuple[str, int, int]:
    """Return the unit of an axis up to `most` bytes, its size and its places (see `size_text`)."""
    return ("MiB", MIB, 0) if most < GIB else ("GiB", GIB, 2)


def _in(value: float | None, size: int) -> float | None:
    return None if value is None else value / size
