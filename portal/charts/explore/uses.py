"""GPUs in use and rho over time, of one claim or of all tenants of a pool."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

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
from portal.charts.explore.looks import LENT, OWN, QUOTA, Look, tenant_area, tenant_line
from portal.charts.figures import plural, ratio, thousands
from portal.charts.tenants import HIDDEN, OTHERS, TenantBadge
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
        text="Hatched: borrowed. Dashed: the quota.",
        series=(
            Series("within quota", "GPUs in use within the quota", keys,
                   [min(row.use, row.quota) for row in rows], OWN, kind="area"),
            Series("borrowed", "GPUs borrowed", keys,
                   [max(0, row.use - row.quota) for row in rows], LENT, kind="area"),
            Series("quota", "quota, GPUs", keys, [row.quota for row in rows], QUOTA),
        ),
        y=(0.0, max(highest, 2) * 1.2),
        unit="GPUs",
        file=file,
        labels=(
            Label(f"quota {thousands(last.quota)}", last.quota, inside=True),
            Label(f"{thousands(last.use)} now", last.use),
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
        text="rho = GPU-time received ÷ fair share. Green: at fair share, within 2 %.",
        series=(
            Series("rho", "rho, received over fair share", keys, [row.rho for row in rows],
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
    fair = Label("fair share", 1.0, "var(--ok)")
    if not known or standing(known[-1]) == "at":
        return (fair,)
    return apart([Label(f"{ratio(known[-1])} now", known[-1], "var(--accent)"), fair], y)


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
    what = f"{gpu_type} GPUs" if gpu_type else "GPUs"
    series = tuple(
        Series(badge.name, f"{what} in use by {badge.name}", keys, use, tenant_area(badge),
               kind="area", key=key)
        for key, badge, use in uses
    )  # fmt: skip # rows of what belongs together
    totals = [sum(column) for column in zip(*(use for _, _, use in uses), strict=True)]
    return PageChart(
        key="chart-use",
        title=f"{_gpus_text(totals[-1], gpu_type)} in use, by tenant",
        text=f"Of {_gpus_text(gpus, gpu_type)}. Click a tenant to hide it.",
        series=series,
        y=(0.0, max([*totals, gpus, 2]) * 1.1),
        unit="GPUs",
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
    y = (0.0, max([2, *(quota for _, _, row in quotas for quota in row)]) * 1.1)
    names = [Label(_cut(one.name), row[-1], f"var(--{one.css}-str)") for _, one, row in quotas]
    return PageChart(
        key="chart-quota",
        title=_quota_title(history.tenants, gpu_type),
        text="The quota of each tenant, after trades. Equal lines cover each other.",
        series=tuple(
            Series(badge.name, f"quota of {badge.name} after trades, {gpu_type} GPUs", keys, row,
                   tenant_line(badge), key=key)
            for key, badge, row in quotas
        ),
        y=y,
        unit="GPUs",
        file=f"quota-{pool}-{gpu_type}",
        labels=apart(names, y),
    )  # fmt: skip # rows of what belongs together


def _quota_title(courses: Sequence[TenantCourse], gpu_type: str) -> str:
    """Return how many GPUs of quota trades have moved by now.

    Trades among hidden tenants are unknown, because only the sum of those tenants is visible.
    """
    is_known = all(one.tenant is not None for one in courses)
    if not is_known or not any(gpus for one in courses for gpus in one.swapped):
        return f"Quota of {gpu_type}, by tenant"
    moved = sum(max(0, one.swapped[-1]) for one in courses)
    if not moved:
        return f"Trades move no quota of {gpu_type} now"
    return f"Trades move {_gpus_text(moved, gpu_type)} of quota now"


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
        key, look = (OTHERS_KEY, HIDDEN) if badge.index == OTHERS else (_key(course), badge)
        _, summed = sums.setdefault(key, (look, [0] * (len(row) + 1)))
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
            f"rho of {badge.name}",
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
    names = [
        Label(_cut(badge.name), one.rho[-1], f"var(--{badge.css}-str)")
        for one, badge in zip(visible, looks, strict=True)
        if one.rho[-1] is not None
    ]
    return PageChart(
        key="chart-rho",
        title=_rho_title(visible, hides=len(visible) < len(history.tenants)),
        text=("All GPU types together. " if of_all else "")
        + "rho = GPU-time received ÷ fair share, since the pool started. Green: at fair share,"
        " within 2 %.",
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
        return "No tenant shown has a rho now"
    # With hidden tenants, the title makes no statement about all tenants.
    if hides and all(one.tenant is not None and one.tenant.you for one in visible):
        return _own_rho_title(below, len(visible))
    if not below:
        return "All tenants are at or above their fair share"
    return f"{below} of {plural(len(last), 'tenant')} below the fair share"


def _own_rho_title(below: int, count: int) -> str:
    where = "below the fair share" if below else "at or above the fair share"
    if count == 1:
        return f"Your tenant is {where}"
    return f"{below} of your {count} tenants {where}" if below else f"Your tenants are {where}"


def _badges(
    courses: Sequence[TenantCourse], badges: Mapping[int, TenantBadge]
) -> list[TenantBadge]:
    """Return each tenant's badge with a unique name: duplicate names get their initials."""
    shown = [badges.get(one.tenant.id, HIDDEN) if one.tenant else HIDDEN for one in courses]
    marks = [one.tenant.initials if one.tenant else "" for one in courses]
    names = distinct_names([(badge.name, mark) for badge, mark in zip(shown, marks, strict=True)])
    return [replace(badge, name=name) for badge, name in zip(shown, names, strict=True)]


def _key(course: TenantCourse) -> str:
    """Return a key by the tenant's number in the pool; it reveals no more than the pseudonym."""
    return f"tenant-{course.tenant.number}" if course.tenant else OTHERS_KEY
