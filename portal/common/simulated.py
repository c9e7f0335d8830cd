"""Figures of simulated policies, side by side: their names, texts and differences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from evenshare_core.money.fixed_point import to_credits
from evenshare_core.units import HOUR_US, SECOND_US
from portal.charts.figures import (
    DAY_S,
    HOUR_S,
    MINUS,
    credits_text,
    duration,
    gpu_hours,
    percent,
    thousands,
)

NOT_APPLICABLE = gettext_noop("not applicable")


def write_count(value: float) -> str:
    return thousands(round(value))


def write_ratio(value: float) -> str:
    return thousands(value, 2)


def write_share(value: float) -> str:
    return percent(value, 1)


def write_time(value: float) -> str:
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


def _gpu_hours(value: float) -> str:
    return gpu_hours(value / SECOND_US)


def _credits(value: float) -> str:
    return credits_text(to_credits(int(value)))


@dataclass(frozen=True, slots=True)
class SimulationMetric:
    """A figure: its name in `manage.py simulate`, its label, and which direction is better.

    `step`: printed values and differences are multiples of it. `of`: the name of the total of which
    the figure is a part.
    """

    name: str
    label: str
    write: Callable[[float], str]
    better: int = 0  # 1: more is better, -1: less is better, 0: neither
    step: float = 1
    of: str = ""

    @property
    def text(self) -> str:
        """Return the label in the page's language."""
        return _(self.label)

    def change(self, values: Sequence[float]) -> float:
        """Return the second value minus the first, both rounded as printed."""
        step = 60 if self.write is write_time and max(values) >= DAY_S else self.step
        return (_steps(values[1], step) - _steps(values[0], step)) * step

    def text_of(self, row: Mapping[str, Any]) -> str:
        """Return the figure of a run as text."""
        value = row[self.name]
        if value is None or (self.of and not row[self.of]):
            return _(NOT_APPLICABLE)
        if not self.of:
            return self.write(value)
        total = self.write(row[self.of])
        return _("{part} of {total}").format(part=self.write(value), total=total)

    def write_change(self, value: float) -> str:
        """Return a difference; differences of shares are in percentage points."""
        if self.write is write_share:
            return _("{count} points").format(count=thousands(value * 100, 1))
        return self.write(value)


@dataclass(frozen=True, slots=True)
class MetricRow:
    """A figure of each policy; `change` is empty unless two policies are compared."""

    metric: SimulationMetric
    values: tuple[str, ...]
    change: str = ""
    verdict: str = ""

    @property
    def name(self) -> str:
        """Return the name in `manage.py simulate`."""
        return self.metric.name


def metric_rows(
    metrics: Sequence[SimulationMetric], runs: Sequence[Mapping[str, Any]]
) -> tuple[MetricRow, ...]:
    """Return the rows of a table of figures; `runs` are the figures of each policy by name."""
    return tuple(_row(metric, runs) for metric in metrics)


def _row(metric: SimulationMetric, runs: Sequence[Mapping[str, Any]]) -> MetricRow:
    values = tuple(metric.text_of(run) for run in runs)
    raw = [run[metric.name] for run in runs]
    if len(raw) != 2 or None in raw or _(NOT_APPLICABLE) in values:
        return MetricRow(metric, values)
    change = metric.change(raw)
    if not change:
        return MetricRow(metric, values, _("the same"))
    shown = metric.write_change(abs(change))
    verdict = ""
    if metric.better:
        verdict = "better" if change * metric.better > 0 else "worse"
    return MetricRow(metric, values, ("+" if change > 0 else MINUS) + shown, verdict)


def _steps(value: float, step: float) -> int:
    """Return how many steps a value has, rounded; exactly for amounts, which are whole numbers."""
    if isinstance(value, int) and isinstance(step, int):
        return round(Fraction(value, step))
    return round(value / step)


_BELOW_FAIR = SimulationMetric(
    "sharing_loss_jobs", gettext_noop("Jobs below 95 % of their fair share"), write_share, -1, 0.001
)
_UNFAIR_HOURS = SimulationMetric(
    "tenant_unfair_intervals",
    gettext_noop("Tenant-hours below 99 % of fair share"),
    write_share,
    -1,
    0.001,
)
_DEFICIT = SimulationMetric(
    "tenant_deficit",
    gettext_noop("Fair share not received within the hour"),
    write_share,
    -1,
    0.001,
)
QUEUE_TIME = SimulationMetric("avg_queue_s", gettext_noop("Average queue time"), write_time, -1)
JCT = SimulationMetric(
    "avg_jct_s", gettext_noop("Average time from submission to end (JCT)"), write_time, -1
)
EARNED = SimulationMetric(
    "earned_micro", gettext_noop("Income from lending in credits"), _credits, step=10_000
)
FAIRNESS = (_BELOW_FAIR, _UNFAIR_HOURS, _DEFICIT)
# Figures of a replay, of a pool or a tenant: `evenshare_core.simulation.policy_runs.RunFigures`.
REPLAY_METRICS = (
    SimulationMetric("ended", gettext_noop("Jobs ended"), write_count, 1, of="jobs"),
    SimulationMetric("never_ending", gettext_noop("Jobs that never end"), write_count, -1),
    QUEUE_TIME,
    SimulationMetric("p95_queue_s", gettext_noop("95th percentile of queue times"), write_time, -1),
    JCT,
    SimulationMetric(
        "deadlines_met", gettext_noop("Deadlines met"), write_count, 1, of="deadlines"
    ),
    *FAIRNESS,
    SimulationMetric("preemptions", gettext_noop("Leases not renewed"), write_count, -1),
    SimulationMetric("gpu_us", gettext_noop("GPU-hours"), _gpu_hours, step=HOUR_US // 10),
    SimulationMetric("charged_micro", gettext_noop("Charges in credits"), _credits, step=10_000),
    EARNED,
)


def policy_names(policies: Sequence[str], own: str) -> tuple[str, ...]:
    """Return the titles of a replay's columns; the pool's own policy is marked."""
    return tuple(
        _("{policy}, the pool's own").format(policy=one) if one == own else one for one in policies
    )
