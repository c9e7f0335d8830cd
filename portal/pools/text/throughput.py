"""Texts and charts of a mixed pool's throughput: now, over time, and by policy."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from portal.charts.explore.throughputs import throughput_chart
from portal.charts.figures import plural
from portal.charts.notes import Note
from portal.charts.speeds import value_text
from portal.charts.tenants import HIDDEN, TenantBadge
from scheduling.selectors.pools.throughput import PolicyPeriod, TenantSpeed, Throughput

SHOWN = 5
MEANING = gettext_noop(
    "Throughput is the sum, over all leases, of GPUs \N{MULTIPLICATION SIGN} the speed of their"
    " job on that GPU type, where 1 is its speed on its slowest type."
)


@dataclass(frozen=True, slots=True)
class ReignRow:
    """A period of one policy; `gain_percent` is relative to the one before (None if first)."""

    reign: PolicyPeriod
    mean: str
    gain_percent: float | None


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """A tenant's part of the throughput."""

    badge: TenantBadge
    speed: TenantSpeed
    value: str
    each: str


def throughput_context(
    throughput: Throughput | None, badges: dict[int, TenantBadge], name: str, now: datetime
) -> dict[str, Any]:
    """Return the data of templates/pools/_throughput.html; `throughput` None if unknown."""
    if throughput is None:
        return {"throughput": None}
    gpus = sum(row.gpus for row in throughput.tenants)
    now_text = value_text(throughput.last.milli)
    return {
        "throughput": throughput,
        "throughput_title": _("{gpus_do} the work of {value} of the slowest type").format(
            gpus_do=plural(gpus, "GPU does", "GPUs do"), value=now_text
        ),
        "throughput_note": Note(_("Throughput"), text=_(MEANING)),
        "throughput_gpus": gpus,
        "throughput_total": now_text,
        "throughput_each": value_text(throughput.last.milli // gpus, 2) if gpus else "",
        "throughput_round": reverse("round", args=[name, throughput.last.number]),
        "throughput_chart": throughput_chart(
            throughput.moments,
            now,
            key="throughput",
            title=_("By policy, now {value}").format(value=now_text),
            file=f"throughput-{name}",
        ),
        "reigns": reign_rows(throughput.policy_periods),
        "speeds": [_speed_row(row, badges) for row in throughput.tenants],
    }


def reign_rows(reigns: Sequence[PolicyPeriod]) -> list[ReignRow]:
    """Return the last policies, the present one first, each compared with the one before."""
    befores = [None, *reigns[:-1]]
    rows = [
        ReignRow(reign, value_text(reign.mean_milli), _gain(reign, before))
        for reign, before in zip(reigns, befores, strict=True)
    ]
    return rows[-SHOWN:][::-1]


def _gain(reign: PolicyPeriod, before: PolicyPeriod | None) -> float | None:
    if before is None or not before.mean_milli:
        return None
    return 100 * (reign.mean_milli - before.mean_milli) / before.mean_milli


def _speed_row(row: TenantSpeed, badges: dict[int, TenantBadge]) -> SpeedRow:
    badge = HIDDEN if row.tenant is None else badges.get(row.tenant.id, HIDDEN)
    each = row.each_milli
    return SpeedRow(badge, row, value_text(row.milli), "" if each is None else value_text(each, 2))
