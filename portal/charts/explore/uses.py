"""GPUs in use and rho over time, of one claim or of all tenants of a pool."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, pgettext

from evenshare_core.fairness.rho import AT_SHARE, standing
from portal.charts.explore.chart import (
    Band,
    Label,
    PageChart,
    Series,
    apart,
    axis_range,
    distinct_names,
    through,
)
from portal.charts.explore.columns import ChartColumn, column
from portal.charts.explore.looks import LENT, OWN, QUOTA, Look, tenant_area, tenant_line
from portal.charts.figures import plural, ratio, thousands
from portal.charts.tenants import OTHERS, TenantBadge, hidden_badge
from scheduling.selectors.rounds.histories import ClaimHistoryPoint, PoolHistory, TenantCourse

# Minimum height of the rho axis. With it, the line of a rho of 0.99 lies on the fair share.
LEAST_RHO = 0.5
NAME_MOST = 12
FAIR = Band(1 - AT_SHARE, 1 + AT_SHARE, "var(--ok-wash)")
OTHERS_KEY = "others"


def use_chart(
    points: Sequence[ClaimHistoryPoint], now: datetime, *, key: str, title: str, file: str
) -> PageChart:
    """Draw GPUs within the quota, borrowed GPUs above them, and the quota as a dashed line."""
    rows = [*points, points[-1]]
    keys = through((row.at for row in points), now)
    highest = max(max(row.use, row.quota) for row in rows)
    last = points[-1]
    return PageChart(
        key=key,
        title=title,
        text=_("Hatched: borrowed. Dashed: the quota."),
        series=(
            Series(_("within quota"), column(gettext_noop("GPUs in use within the quota")), keys,
                   [min(row.use, row.quota) for row in rows], OWN, kind="area"),
            Series(_("borrowed"), column(gettext_noop("GPUs borrowed")), keys,
                   [max(0, row.use - row.quota) for row in rows], LENT, kind="area"),
            Series(pgettext("chart", "quota"), column(gettext_noop("quota, GPUs")), keys,
                   [row.quota for row in rows], QUOTA),
        ),
        y=(0.0, max(highest, 2) * 1.2),
        unit=_("GPUs"),
        file=file,
        labels=(
            Label(_("quota {count}").format(count=thousands(last.quota)), last.quota, inside=True),
            Label(_("{value} now").format(value=thousands(last.use)), last.use),
        ),
    )  # fmt: skip # rows of what belongs together


def rho_chart(
    points: Sequence[ClaimHistoryPoint], now: datetime, *, key: str, title: str, file: str
) -> PageChart:
    """Draw rho with the band around the fair share."""
    rows = [*points, points[-1]]
    keys = through((row.at for row in points), now)
    known = [row.rho for row in rows if row.rho is not None]
    y = axis_range(known, least=LEAST_RHO, around=1.0)
    return PageChart(
        key=key,
        title=title,
        text=_("rho = GPU-time received ÷ fair share. Green: at fair share, within 2 %."),
        series=(
            Series("rho", column(gettext_noop("rho, received over fair share")), keys,
                   [row.rho for row in rows],
                   Look("var(--accent)"), steps=False, places=4),
        ),
        y=y,
        unit="rho",
        file=file,
        bands=(FAIR,),
        labels=_rho_labels(known, y),
    )  # fmt: skip # rows of what belongs together


def _rho_labels(known: Sequence[float], y: tuple[float, float]) -> tuple[Label, ...]:
    """Return a label at the last value and a label at the band; one label if they overlap."""
    fair = Label(_("fair share"), 1.0, "var(--ok)")
    if not known or standing(known[-1]) == "at":
        return (fair,)
    return apart(
        [Label(_("{value} now").format(value=ratio(known[-1])), known[-1], "var(--accent)"), fair],
        y,
    )


def pool_use_chart(
    history: PoolHistory,
    badges: Mapping[int, TenantBadge],
    now: datetime,
    *,
    pool: str,
    gpus: int,
    gpu_type: str = "",
) -> PageChart:
    """Draw GPUs in use by tenant, stacked; tenants with the grey badge are one area.

    `gpu_type`: the GPU type of `history` and `gpus`; empty for all types.
    """
    keys = through(history.at, now)
    uses = _by_badge(history.tenants, badges, [one.use for one in history.tenants])

    series = tuple(
        Series(badge.name, _use_head(badge.name, gpu_type), keys, use, tenant_area(badge),
               kind="area", key=key)
        for key, badge, use in uses
    )  # fmt: skip # rows of what belongs together
    totals = [sum(column) for column in zip(*(use for _key, _badge, use in uses), strict=True)]
    return PageChart(
        key="chart-use",
        title=_("{gpus} in use, by tenant").format(gpus=_gpus_text(totals[-1], gpu_type)),
        text=_("Of {gpus}. Click a tenant to hide it.").format(gpus=_gpus_text(gpus, gpu_type)),
        series=series,
        y=(0.0, max([*totals, gpus, 2]) * 1.1),
        unit=_("GPUs"),
        file=f"use-{pool}-{gpu_type}" if gpu_type else f"use-{pool}",
    )


def pool_quota_chart(
    history: PoolHistory,
    badges: Mapping[int, TenantBadge],
    now: datetime,
    *,
    pool: str,
    gpu_type: str,
) -> PageChart:
    """Draw each tenant's quota of a GPU type, after trades, as a stepped line."""
    keys = through(history.at, now)
    quotas = _by_badge(history.tenants, badges, [one.quota for one in history.tenants])
    y = (0.0, max([2, *(quota for _key, _badge, row in quotas for quota in row)]) * 1.1)
    head = gettext_noop("quota of {tenant} after trades, {type} GPUs")
    names = [Label(_cut(one.name), row[-1], f"var(--{one.css}-str)") for _key, one, row in quotas]
    return PageChart(
        key="chart-quota",
        title=_quota_title(history.tenants, gpu_type),
        text=_("The quota of each tenant, after trades. Equal lines cover each other."),
        series=tuple(
            Series(badge.name, column(head, tenant=badge.name, type=gpu_type), keys, row,
                   tenant_line(badge), key=key)
            for key, badge, row in quotas
        ),
        y=y,
        unit=_("GPUs"),
        file=f"quota-{pool}-{gpu_type}",
        labels=apart(names, y),
    )  # fmt: skip # rows of what belongs together


def _quota_title(courses: Sequence[TenantCourse], gpu_type: str) -> str:
    """Return how many GPUs of quota trades have moved by now.

    Trades among hidden tenants are unknown, because only the sum of those tenants is visible.
    """
    is_known = all(one.tenant is not None for one in courses)
    if not is_known or not any(gpus for one in courses for gpus in one.swapped):
        return _("Quota of {type}, by tenant").format(type=gpu_type)
    moved = sum(max(0, one.swapped[-1]) for one in courses)
    if not moved:
        return _("Trades move no quota of {type} now").format(type=gpu_type)
    return _("Trades move {gpus} of quota now").format(gpus=_gpus_text(moved, gpu_type))


def _use_head(tenant: str, gpu_type: str) -> ChartColumn:
    if gpu_type:
        text = gettext_noop("{type} GPUs in use by {tenant}")
        return column(text, type=gpu_type, tenant=tenant)
    return column(gettext_noop("GPUs in use by {tenant}"), tenant=tenant)


def _gpus_text(gpus: int, gpu_type: str) -> str:
    return f"{thousands(gpus)} {gpu_type}" if gpu_type else plural(gpus, "GPU")


def _by_badge(
    courses: Sequence[TenantCourse],
    badges: Mapping[int, TenantBadge],
    values: Sequence[Sequence[int]],
) -> list[tuple[str, TenantBadge, list[int]]]:
    """Return (key, badge, values) per tenant; the last value is repeated for now.

    Tenants with the grey badge are one sum, in last place.
    """
    sums: dict[str, tuple[TenantBadge, list[int]]] = {}
    for course, badge, row in zip(courses, _badges(courses, badges), values, strict=True):
        key, look = (OTHERS_KEY, hidden_badge()) if badge.index == OTHERS else (_key(course), badge)
        _badge, summed = sums.setdefault(key, (look, [0] * (len(row) + 1)))
        for place, value in enumerate([*row, row[-1]]):
            summed[place] += value
    ordered = sorted(sums.items(), key=lambda item: item[0] == OTHERS_KEY)
    return [(key, badge, summed) for key, (badge, summed) in ordered]


def tells_rho(history: PoolHistory) -> bool:
    """Return whether a visible tenant has a rho, so that there is a line to draw."""
    return any(value is not None for one in history.tenants for value in one.rho)


def pool_rho_chart(
    history: PoolHistory,
    badges: Mapping[int, TenantBadge],
    now: datetime,
    *,
    pool: str,
    of_all: bool = False,
) -> PageChart:
    """Draw rho of every visible tenant around the fair share.

    `of_all`: state that rho covers all GPU types, on pages where other charts cover one type.
    """
    keys = through(history.at, now)
    visible = [one for one in history.tenants if one.tenant is not None]
    looks = _badges(visible, badges)
    series = tuple(
        Series(
            badge.name,
            column(gettext_noop("rho of {tenant}"), tenant=badge.name),
            keys,
            [*one.rho, one.rho[-1]],
            tenant_line(badge),
            steps=False,
            places=4,
            key=_key(one),
        )
        for one, badge in zip(visible, looks, strict=True)
    )
    known = [value for one in visible for value in one.rho if value is not None]
    y = axis_range(known, least=LEAST_RHO, around=1.0)
    meaning = _(
        "rho = GPU-time received ÷ fair share, since the pool started. Green: at fair share,"
        " within 2 %."
    )
    all_types = _("All GPU types together.")
    names = [
        Label(_cut(badge.name), one.rho[-1], f"var(--{badge.css}-str)")
        for one, badge in zip(visible, looks, strict=True)
        if one.rho[-1] is not None
    ]
    return PageChart(
        key="chart-rho",
        title=_rho_title(visible, hides=len(visible) < len(history.tenants)),
        text=f"{all_types} {meaning}" if of_all else meaning,
        series=series,
        y=y,
        unit="rho",
        file=f"rho-{pool}",
        bands=(FAIR,),
        labels=apart(names, y),
    )


def _cut(name: str) -> str:
    return name if len(name) <= NAME_MOST else f"{name[: NAME_MOST - 1]}…"


def _rho_title(visible: Sequence[TenantCourse], *, hides: bool) -> str:
    last = [one.rho[-1] for one in visible if one.rho[-1] is not None]
    below = sum(1 for value in last if standing(value) == "below")
    if not last:
        return _("No tenant shown has a rho now")
    # With hidden tenants, the title makes no statement about all tenants.
    if hides and all(one.tenant is not None and one.tenant.you for one in visible):
        return _own_rho_title(below, len(visible))
    if not below:
        return _("All tenants are at or above their fair share")
    return _("{below} of {tenants} below the fair share").format(
        below=below, tenants=plural(len(last), "tenant")
    )


def _own_rho_title(below: int, count: int) -> str:
    if count == 1 and below:
        return _("Your tenant is below the fair share")
    if count == 1:
        return _("Your tenant is at or above the fair share")
    if below:
        text = _("{below} of your {count} tenants below the fair share")
        return text.format(below=below, count=count)
    return _("Your tenants are at or above the fair share")


def _badges(
    courses: Sequence[TenantCourse], badges: Mapping[int, TenantBadge]
) -> list[TenantBadge]:
    """Return each tenant's badge with a unique name: duplicate names get their initials."""
    hidden = hidden_badge()
    shown = [badges.get(one.tenant.id, hidden) if one.tenant else hidden for one in courses]
    marks = [one.tenant.initials if one.tenant else "" for one in courses]
    names = distinct_names([(badge.name, mark) for badge, mark in zip(shown, marks, strict=True)])
    return [replace(badge, name=name) for badge, name in zip(shown, names, strict=True)]


def _key(course: TenantCourse) -> str:
    """Return a key by the tenant's number in the pool; it reveals no more than the pseudonym."""
    return f"tenant-{course.tenant.number}" if course.tenant else OTHERS_KEY
