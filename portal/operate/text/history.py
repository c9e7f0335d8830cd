"""Texts about a replay of a pool's last days: figures by policy and by tenant, assumptions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.charts.figures import plural, utc
from portal.charts.notes import PoolClocks
from portal.charts.sentences import local_sentence
from portal.charts.tenants import TenantBadge
from portal.common.simulated import (
    EARNED,
    QUEUE_TIME,
    REPLAY_METRICS,
    MetricRow,
    SimulationMetric,
    metric_rows,
    policy_names,
)
from portal.operate.text.simulation import badge_in, shown_option
from scheduling.models import Simulation
from scheduling.selectors.stored_texts import STORED

POOL_METRICS = (
    *REPLAY_METRICS,
    SimulationMetric(
        "operator_micro",
        gettext_noop("Income of the operator in credits"),
        EARNED.write,
        step=EARNED.step,
    ),
)


@dataclass(frozen=True, slots=True)
class ReplayedTenant:
    """A tenant, or the pool, under each policy: its name, and pairs of label and text."""

    badge: TenantBadge
    runs: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


@dataclass(frozen=True, slots=True)
class HistoryView:
    """The data of a finished replay's page.

    `policies` have a title, a version, the options as text, and the hash of the run.
    """

    headline: str
    deck: str
    names: tuple[str, ...]
    rows: tuple[MetricRow, ...]
    columns: tuple[str, ...]
    tenants: tuple[ReplayedTenant, ...]
    total: ReplayedTenant
    policies: tuple[tuple[str, str, str, str], ...]
    assumptions: tuple[str, ...]


def view_history(
    row: Simulation, badges: Mapping[int, TenantBadge], times: PoolClocks
) -> HistoryView:
    """Return the view of a finished replay; badges are of all tenants, by id."""
    result: Mapping[str, Any] = row.result or {}
    runs = result["policies"]
    policies = [run["policy"] for run in runs]
    names = policy_names(policies, row.policy)
    pool = [
        {**figures, "operator_micro": figures["charged_micro"] - figures["earned_micro"]}
        for figures in result["pool"]
    ]
    return HistoryView(
        headline=_headline(pool, names),
        deck=_("{jobs} submitted within {days} before {at}, pool time, with seed {seed}.").format(
            jobs=plural(result["jobs"], "job"),
            days=plural(row.hours // 24, "day"),
            at=local_sentence(utc(row.at), times),
            seed=result["seed"],
        ),
        names=names,
        rows=metric_rows(POOL_METRICS, pool),
        columns=tuple(metric.text for metric in REPLAY_METRICS),
        tenants=tuple(
            _tenant(badge_in(badges, int(tenant)), policies, figures)
            for tenant, figures in sorted(result["tenants"].items(), key=lambda one: int(one[0]))
        ),
        total=_tenant(TenantBadge(_("Pool"), 0, ""), policies, pool),
        policies=tuple(
            (name, run["version"], _options_text(run["options"]), run["sha256"])
            for name, run in zip(names, runs, strict=True)
        ),
        assumptions=(*_assumptions(), *map(STORED.shown, result["remarks"])),
    )


def _headline(pool: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Return the policy under which jobs would have waited least, as a sentence."""
    waits = [
        (run["avg_queue_s"], name)
        for run, name in zip(pool, names, strict=True)
        if run["avg_queue_s"] is not None
    ]
    if not waits:
        return _("No job would have ended under these policies.")
    least_s, best = min(waits, key=lambda one: one[0])
    time = QUEUE_TIME.write(least_s)
    if len({QUEUE_TIME.write(wait_s) for wait_s, _name in waits}) == 1:
        return _("Jobs would have waited {time} on average under each policy.").format(time=time)
    return _("Jobs would have waited least under {policy}: {time} on average.").format(
        policy=best, time=time
    )


def _tenant(
    badge: TenantBadge, policies: Sequence[str], runs: Sequence[Mapping[str, Any]]
) -> ReplayedTenant:
    return ReplayedTenant(
        badge,
        tuple(
            (name, tuple((metric.text, metric.text_of(run)) for metric in REPLAY_METRICS))
            for name, run in zip(policies, runs, strict=True)
        ),
    )


def _options_text(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {shown_option(value)}" for name, value in sorted(options.items()))


def _assumptions() -> tuple[str, ...]:
    return (
        _(
            "Each run starts with an empty pool. The jobs arrive as they were submitted, and run"
            " until they end."
        ),
        _("People act as they did: submissions, cancellations and price limits are the same."),
        _(
            "Nodes, quotas, prices and settings of the pool are those of the time of the replay."
            " The other policies have their default options."
        ),
        _(
            "Maintenance, crashes, credit limits, and the time for starting and stopping jobs are"
            " ignored."
        ),
    )
