"""Texts about a simulation's result: compared figures, charts, assumptions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from portal.charts.explore.chart import PageChart
from portal.charts.explore.whatif import Course, Wait, course_chart, wait_chart
from portal.charts.figures import DAY_S, HOUR_S, MINUS, duration, percent, plural, thousands
from portal.charts.tenants import TenantBadge
from scheduling.models import Simulation

NOT_APPLICABLE = gettext_noop("not applicable")


def _count(value: float) -> str:
    return thousands(round(value))


def _ratio(value: float) -> str:
    return thousands(value, 2)


def _share(value: float) -> str:
    return percent(value, 1)


def _time(value: float) -> str:
    """Return a time to the second below a day, else to the minute, so that printed times add up."""
    seconds = abs(round(value))
    if seconds >= DAY_S:
        seconds = round(seconds / 60) * 60
    minutes, rest = divmod(seconds, 60)
    if seconds < HOUR_S:
        return duration(seconds)
    days, minutes = divmod(minutes, 24 * 60)
    units = [(days, "d"), (minutes // 60, "h"), (minutes % 60, "min")]
    units += [(rest, "s")] if not days else []
    return " ".join(f"{count} {unit}" for count, unit in units if count)


@dataclass(frozen=True, slots=True)
class SimulationMetric:
    """A figure: its name in `manage.py simulate`, its label, and which direction is better.

    `step`: printed values and differences are multiples of it.
    """

    name: str
    label: str
    write: Callable[[float], str]
    better: int = 0  # 1: more is better, -1: less is better, 0: neither
    step: float = 1

    @property
    def text(self) -> str:
        """Return the label in the page's language."""
        return _(self.label)

    def change(self, values: Sequence[float]) -> float:
        """Return the second value minus the first, both rounded as printed."""
        step = 60 if self.write is _time and max(values) >= DAY_S else self.step
        return (round(values[1] / step) - round(values[0] / step)) * step

    def write_change(self, value: float) -> str:
        """Return a difference; differences of shares are in percentage points."""
        if self.write is _share:
            return _("{count} points").format(count=thousands(value * 100, 1))
        return self.write(value)


METRICS = (
    SimulationMetric("finished", gettext_noop("Jobs completed at the end"), _count, 1),
    SimulationMetric("running", gettext_noop("Jobs running at the end"), _count),
    SimulationMetric("waiting", gettext_noop("Jobs queued at the end"), _count, -1),
    SimulationMetric(
        "avg_jct_s", gettext_noop("Average time from submission to end (JCT)"), _time, -1
    ),
    SimulationMetric("avg_queue_s", gettext_noop("Average queue time"), _time, -1),
    SimulationMetric(
        "avg_slowdown", gettext_noop("Average slowdown: JCT over run time"), _ratio, -1, 0.01
    ),
    SimulationMetric(
        "sharing_loss_jobs", gettext_noop("Jobs below 95 % of their fair share"), _share, -1, 0.001
    ),
    SimulationMetric(
        "tenant_unfair_intervals",
        gettext_noop("Tenant-hours below 99 % of fair share"),
        _share,
        -1,
        0.001,
    ),
    SimulationMetric(
        "tenant_deficit",
        gettext_noop("Fair share not received in its hour"),
        _share,
        -1,
        0.001,
    ),
    SimulationMetric(
        "tenant_daily_deficit",
        gettext_noop("Fair share not received on its day"),
        _share,
        -1,
        0.001,
    ),
    SimulationMetric(
        "late_vs_fair_reference",
        gettext_noop("Jobs later than on their own quota only"),
        _share,
        -1,
        0.001,
    ),
    # Neither is better: without new jobs, a policy that ends the queue early leaves GPUs idle.
    SimulationMetric("gpu_utilisation", gettext_noop("GPUs at useful work"), _share, 0, 0.001),
    SimulationMetric(
        "waste",
        gettext_noop("GPUs wasted: idle while jobs were queued, or overhead"),
        _share,
        -1,
        0.001,
    ),
    SimulationMetric("preemptions", gettext_noop("Leases not renewed"), _count, -1),
    SimulationMetric("deadline_miss_rate", gettext_noop("Deadlines missed"), _share, -1, 0.001),
    SimulationMetric("rounds", gettext_noop("Rounds decided"), _count),
)


@dataclass(frozen=True, slots=True)
class MetricRow:
    """A figure of both policies; `change` is empty if there is one policy or no comparison."""

    metric: SimulationMetric
    values: tuple[str, ...]
    change: str = ""
    verdict: str = ""

    @property
    def name(self) -> str:
        """Return the name in `manage.py simulate`."""
        return self.metric.name


@dataclass(frozen=True, slots=True)
class SimulatedTenant:
    """A tenant under both policies."""

    badge: TenantBadge
    jobs: int
    over: tuple[int, ...]
    waits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SimulationView:
    """The data of a result's page."""

    headline: str
    names: tuple[str, ...]
    rows: tuple[MetricRow, ...]
    charts: tuple[PageChart, ...]
    tenants: tuple[SimulatedTenant, ...]
    tenants_sum: SimulatedTenant
    options: tuple[tuple[str, str, str], ...]
    assumptions: tuple[str, ...]
    hashes: tuple[tuple[str, str], ...]
    gpus: int


def view_simulation(
    row: Simulation, badges: Mapping[int, TenantBadge], slugs: Mapping[int, str]
) -> SimulationView:
    """Return the view of a finished simulation; badges and slugs are of all tenants, by id."""
    result = row.result or {}
    runs = result["runs"]
    names = _names([run["row"] for run in runs])
    tenants = _tenants(runs, badges)
    return SimulationView(
        headline=_headline([run["row"] for run in runs], row.hours),
        names=names,
        rows=tuple(_row(metric, [run["row"] for run in runs]) for metric in METRICS),
        charts=_charts(row, names, _waits(runs, badges, slugs)),
        tenants=tenants,
        tenants_sum=_sum(runs),
        options=_options([run["row"] for run in runs]),
        assumptions=tuple(_assumptions(row, result)),
        hashes=tuple((name, run["row"]["sha256"]) for name, run in zip(names, runs, strict=True)),
        gpus=result["gpus"],
    )


def _names(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the column titles; the same policy with other options is marked."""
    first = rows[0]["policy"]
    if len(rows) == 1:
        return (first,)
    other = rows[1]["policy"]
    return (
        _("{policy}, as now").format(policy=first),
        _("{policy}, changed").format(policy=other) if other == first else other,
    )


def _headline(rows: Sequence[Mapping[str, Any]], hours: int) -> str:
    """Return the largest difference in waiting times as a sentence."""
    own = rows[0]
    if len(rows) == 1:
        return _("{finished} of {jobs} would be completed in the next {hours} h.").format(
            finished=_count(own["finished"]), jobs=plural(own["jobs"], "job"), hours=hours
        )
    other = rows[1]
    name = other["policy"]
    if name == own["policy"]:
        name = _("{policy} with these options").format(policy=name)
    if own["sha256"] == other["sha256"]:
        return _("The result in the next {hours} h would be the same under {policy}.").format(
            policy=name, hours=hours
        )
    over = other["finished"] - own["finished"]
    metric = next(metric for metric in METRICS if metric.name == "avg_queue_s")
    longer = metric.change([own["avg_queue_s"], other["avg_queue_s"]])
    waits = _waits_text(longer).format(policy=name, time=_time(longer))
    return f"{waits} {_completed_text(over, hours)}"


def _waits_text(longer: float) -> str:
    """Return a text about a policy under which jobs wait longer, by a negative time if less."""
    if not longer:
        return _("Under {policy} jobs would wait as long.")
    if longer > 0:
        return _("Under {policy} jobs would wait {time} longer.")
    return _("Under {policy} jobs would wait {time} less.")


def _completed_text(over: int, hours: int) -> str:
    """Return how many more jobs would be completed; `over` is negative if fewer."""
    if not over:
        text = _("As many would be completed in the next {hours} h.")
    elif over > 0:
        text = ngettext(
            "{count} job more would be completed in the next {hours} h.",
            "{count} jobs more would be completed in the next {hours} h.",
            over,
        )
    else:
        text = ngettext(
            "{count} job fewer would be completed in the next {hours} h.",
            "{count} jobs fewer would be completed in the next {hours} h.",
            -over,
        )
    return text.format(count=_count(abs(over)), hours=hours)


def _row(metric: SimulationMetric, rows: Sequence[Mapping[str, Any]]) -> MetricRow:
    raw = [row[metric.name] for row in rows]
    values = tuple(_(NOT_APPLICABLE) if value is None else metric.write(value) for value in raw)
    if len(raw) < 2 or None in raw:
        return MetricRow(metric, values)
    change = metric.change(raw)
    if not change:
        return MetricRow(metric, values, _("the same"))
    shown = metric.write_change(abs(change))
    verdict = ""
    if metric.better:
        verdict = "better" if change * metric.better > 0 else "worse"
    return MetricRow(metric, values, ("+" if change > 0 else MINUS) + shown, verdict)


def _charts(row: Simulation, names: Sequence[str], waits: Sequence[Wait]) -> tuple[PageChart, ...]:
    result = row.result or {}
    runs = result["runs"]
    file = f"what-if-{row.pk}"

    def lines(key: str) -> list[Course]:
        return [
            Course(name, [(at["after_s"] / HOUR_S, at[key]) for at in run["course"]])
            for name, run in zip(names, runs, strict=True)
        ]

    gpus = plural(result["gpus"], "GPU")
    return (
        course_chart(
            lines("gpus"),
            key="chart-gpus",
            title=_("GPUs held"),
            text=_("Average of each step, over {hours} h. Dashed: all GPUs.").format(
                hours=row.hours
            ),
            unit=_("GPUs held"),
            file=f"{file}-gpus",
            top=(result["gpus"], gpus),
            places=1,
        ),
        course_chart(
            lines("finished"),
            key="chart-completed",
            title=_("Jobs completed"),
            text=_("Since the start, within {hours} h.").format(hours=row.hours),
            unit=_("jobs completed"),
            file=f"{file}-completed",
        ),
        wait_chart(waits, names, key="chart-waits", file=f"{file}-waits"),
    )


def _waits(
    runs: Sequence[Mapping[str, Any]], badges: Mapping[int, TenantBadge], slugs: Mapping[int, str]
) -> list[Wait]:
    after = {row["tenant"]: row["avg_queue_s"] / HOUR_S for row in runs[-1]["tenants"]}
    both = len(runs) > 1
    return [
        Wait(
            _badge(badges, row["tenant"]).name,
            row["avg_queue_s"] / HOUR_S,
            after.get(row["tenant"]) if both else None,
            slugs.get(row["tenant"], ""),
        )
        for row in runs[0]["tenants"]
    ]


def _badge(badges: Mapping[int, TenantBadge], tenant: int) -> TenantBadge:
    return badges.get(tenant) or TenantBadge(_("tenant {number}").format(number=tenant), 0, "??")


def _tenants(
    runs: Sequence[Mapping[str, Any]], badges: Mapping[int, TenantBadge]
) -> tuple[SimulatedTenant, ...]:
    by_run = [{row["tenant"]: row for row in run["tenants"]} for run in runs]
    return tuple(
        SimulatedTenant(
            _badge(badges, row["tenant"]),
            row["jobs"],
            tuple(rows[row["tenant"]]["finished"] for rows in by_run),
            tuple(_time(rows[row["tenant"]]["avg_queue_s"]) for rows in by_run),
        )
        for row in runs[0]["tenants"]
    )


def _sum(runs: Sequence[Mapping[str, Any]]) -> SimulatedTenant:
    rows = [run["row"] for run in runs]
    waits = [row["avg_queue_s"] for row in rows]
    return SimulatedTenant(
        TenantBadge(_("Pool"), 0, ""),
        rows[0]["jobs"],
        tuple(row["finished"] for row in rows),
        tuple(_(NOT_APPLICABLE) if value is None else _time(value) for value in waits),
    )


def _options(rows: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str, str], ...]:
    """Return the differing options of the other policy: name, present value, other value.

    If the policies differ, all options are returned, and the present value is empty.
    """
    if len(rows) == 1:
        return ()
    own, other = rows
    same = own["policy"] == other["policy"]
    return tuple(
        (name, _shown(own["options"].get(name, _("its default"))) if same else "", _shown(value))
        for name, value in other["options"].items()
        if not same or own["options"].get(name) != value
    )


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return str(value)


def _assumptions(row: Simulation, result: Mapping[str, Any]) -> list[str]:
    """Return the assumptions of the simulation, with numbers if known."""
    known = result["assumed"]
    jobs = result["runs"][0]["row"]["jobs"]
    return [
        _("No submissions and no cancellations: only the {jobs} open at the start.").format(
            jobs=plural(jobs, "job")
        ),
        _work_text(known),
        _(
            "A job that is open after {hours} h counts until then, so true times are at least as"
            " long. Times start at the submission; shares, leases and GPUs cover only the simulated"
            " hours."
        ).format(hours=row.hours),
        _(
            "Nodes, quotas, price settings and credit limits do not change. Planned changes,"
            " maintenance, and the time for starting and stopping jobs are ignored."
        ),
    ]


def _work_text(known: Mapping[str, Any]) -> str:
    text = _("Remaining work is an estimate: {jobs}; less the work of its leases so far.").format(
        jobs=", ".join(_assumed(known))
    )
    if known["past"]:
        past = ngettext(
            "{count} job exceeded the estimate and goes on for the same time again.",
            "{count} jobs exceeded the estimate and go on for the same time again.",
            known["past"],
        ).format(count=_count(known["past"]))
        text = f"{text} {past}"
    return text


def _assumed(known: Mapping[str, Any]) -> list[str]:
    """Return the numbers of jobs with the source of their estimated work."""
    parts = []
    if known["estimate"]:
        text = ngettext(
            "{count} job with its own estimate",
            "{count} jobs with their own estimates",
            known["estimate"],
        )
        parts.append(text.format(count=_count(known["estimate"])))
    # The other jobs have no estimate.
    if known["tenant"]:
        parts.append(
            _("{jobs} without one counted with the median ended job of its tenant").format(
                jobs=plural(known["tenant"], "job")
            )
        )
    if known["pool"]:
        parts.append(
            _("{jobs} without one counted with the median ended job of the pool ({time})").format(
                jobs=plural(known["pool"], "job"), time=duration(known["pool_s"])
            )
        )
    if known["unknown"]:
        parts.append(
            _("{jobs} without one counted with {time}, because no job has ended yet").format(
                jobs=plural(known["unknown"], "job"), time=duration(known["unknown_s"])
            )
        )
    return parts
