"""Texts about a simulation's result: compared figures, charts, assumptions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from portal.charts.explore.chart import PageChart
from portal.charts.explore.whatif import Course, Wait, course_chart, wait_chart
from portal.charts.figures import HOUR_S, duration, plural
from portal.charts.tenants import TenantBadge
from portal.common.simulated import (
    FAIRNESS,
    JCT,
    NOT_APPLICABLE,
    QUEUE_TIME,
    MetricRow,
    SimulationMetric,
    metric_rows,
    write_count,
    write_ratio,
    write_share,
    write_time,
)
from scheduling.models import Simulation

METRICS = (
    SimulationMetric("finished", gettext_noop("Jobs completed at the end"), write_count, 1),
    SimulationMetric("running", gettext_noop("Jobs running at the end"), write_count),
    SimulationMetric("waiting", gettext_noop("Jobs queued at the end"), write_count, -1),
    JCT,
    QUEUE_TIME,
    SimulationMetric(
        "avg_slowdown", gettext_noop("Average slowdown: JCT over run time"), write_ratio, -1, 0.01
    ),
    *FAIRNESS,
    SimulationMetric(
        "tenant_daily_deficit",
        gettext_noop("Fair share not received within the day"),
        write_share,
        -1,
        0.001,
    ),
    SimulationMetric(
        "late_vs_fair_reference",
        gettext_noop("Jobs later than on their own quota only"),
        write_share,
        -1,
        0.001,
    ),
    # Neither is better: without new jobs, a policy that ends the queue early leaves GPUs idle.
    SimulationMetric(
        "gpu_utilisation", gettext_noop("GPUs doing useful work"), write_share, 0, 0.001
    ),
    SimulationMetric(
        "waste",
        gettext_noop("GPUs wasted: idle while jobs were queued, or overhead"),
        write_share,
        -1,
        0.001,
    ),
    SimulationMetric("preemptions", gettext_noop("Leases not renewed"), write_count, -1),
    SimulationMetric(
        "deadline_miss_rate", gettext_noop("Deadlines missed"), write_share, -1, 0.001
    ),
    SimulationMetric("rounds", gettext_noop("Rounds decided"), write_count),
)


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
        rows=metric_rows(METRICS, [run["row"] for run in runs]),
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
            finished=write_count(own["finished"]), jobs=plural(own["jobs"], "job"), hours=hours
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
    longer = QUEUE_TIME.change([own["avg_queue_s"], other["avg_queue_s"]])
    waits = _waits_text(longer).format(policy=name, time=write_time(longer))
    return f"{waits} {_completed_text(over, hours)}"


def _waits_text(longer: float) -> str:
    """Return a text about a policy under which jobs wait longer, by a negative time if less."""
    if not longer:
        return _("Under {policy} jobs would wait the same time.")
    if longer > 0:
        return _("Under {policy} jobs would wait {time} longer.")
    return _("Under {policy} jobs would wait {time} less.")


def _completed_text(over: int, hours: int) -> str:
    """Return how many more jobs would be completed; `over` is negative if fewer."""
    if not over:
        text = _("The same number of jobs would be completed in the next {hours} h.")
    elif over > 0:
        text = ngettext(
            "{count} more job would be completed in the next {hours} h.",
            "{count} more jobs would be completed in the next {hours} h.",
            over,
        )
    else:
        text = ngettext(
            "{count} fewer job would be completed in the next {hours} h.",
            "{count} fewer jobs would be completed in the next {hours} h.",
            -over,
        )
    return text.format(count=write_count(abs(over)), hours=hours)


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
            badge_in(badges, row["tenant"]).name,
            row["avg_queue_s"] / HOUR_S,
            after.get(row["tenant"]) if both else None,
            slugs.get(row["tenant"], ""),
        )
        for row in runs[0]["tenants"]
    ]


def badge_in(badges: Mapping[int, TenantBadge], tenant: int) -> TenantBadge:
    """Return a tenant's badge, or one with its number if the tenant is gone."""
    return badges.get(tenant) or TenantBadge(_("tenant {number}").format(number=tenant), 0, "??")


def _tenants(
    runs: Sequence[Mapping[str, Any]], badges: Mapping[int, TenantBadge]
) -> tuple[SimulatedTenant, ...]:
    by_run = [{row["tenant"]: row for row in run["tenants"]} for run in runs]
    return tuple(
        SimulatedTenant(
            badge_in(badges, row["tenant"]),
            row["jobs"],
            tuple(rows[row["tenant"]]["finished"] for rows in by_run),
            tuple(write_time(rows[row["tenant"]]["avg_queue_s"]) for rows in by_run),
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
        tuple(_(NOT_APPLICABLE) if value is None else write_time(value) for value in waits),
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
        (
            name,
            shown_option(own["options"].get(name, _("default"))) if same else "",
            shown_option(value),
        )
        for name, value in other["options"].items()
        if not same or own["options"].get(name) != value
    )


def shown_option(value: object) -> str:
    """Return a policy's option as text."""
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return str(value)


def _assumptions(row: Simulation, result: Mapping[str, Any]) -> list[str]:
    """Return the assumptions of the simulation, with numbers if known."""
    known = result["assumed"]
    jobs = result["runs"][0]["row"]["jobs"]
    return [
        _(
            "No job is submitted or cancelled: only the {jobs} open at the start are simulated."
        ).format(jobs=plural(jobs, "job")),
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
        ).format(count=write_count(known["past"]))
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
        parts.append(text.format(count=write_count(known["estimate"])))
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
