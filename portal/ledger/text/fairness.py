"""Texts and charts of revenue fairness, of one tenant and of all tenants of a pool."""

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction

from billing.selectors.revenue import AlphaItem, RevenueHistory, alpha_item
from evenshare_core.money.fixed_point import sum_to_credits
from portal.charts.explore.chart import PageChart, distinct_names
from portal.charts.explore.looks import LENT, OWN, tenant_line
from portal.charts.explore.revenue import FULL_TEXT, INCOME_TEXT, AlphaCourse, alpha_chart
from portal.charts.tenants import OTHERS, TenantBadge
from portal.ledger.text.statement import OPERATOR

OPERATOR_BADGE = TenantBadge(OPERATOR, OTHERS, "OP")


def alpha_rows(
    history: RevenueHistory, badges: Mapping[int, TenantBadge]
) -> list[tuple[TenantBadge, AlphaItem]]:
    """Return all tenants, highest alpha first."""
    rows = [
        (badge, alpha_item(history.whole, tenant, badge.name))
        for tenant in history.whole.parts
        for badge in (badges.get(tenant, OPERATOR_BADGE),)
    ]
    return sorted(rows, key=lambda row: (-(row[1].alpha or 0), row[0].name))


def own_alpha_chart(history: RevenueHistory, tenant: int, *, file: str) -> PageChart:
    """Draw alpha of a tenant over time: by income, and with utilities if jobs declare them."""
    periods = history.periods
    courses = [
        AlphaCourse(
            "income only",
            "income",
            OWN,
            [_number(period.alpha.get(tenant)) for period in periods],
            [sum_to_credits(period.income.get(tenant, 0)) for period in periods],
        )
    ]
    if history.whole.utility:
        full = [_number(period.full_alpha.get(tenant)) for period in periods]
        courses.append(AlphaCourse("with utilities", "full", LENT, full))
    alpha = _number(history.whole.alpha.get(tenant))
    value = "not defined" if alpha is None else f"{alpha:.2f}"
    return alpha_chart(
        _keys(history),
        courses,
        key="chart-alpha",
        title=f"alpha {value} over the period, by {history.step}",
        file=file,
    )


def pool_alpha_charts(
    history: RevenueHistory, badges: Mapping[int, TenantBadge], *, pool: str
) -> list[PageChart]:
    """Draw alpha of every tenant over time, also with utilities if jobs declare them."""
    charts = [
        alpha_chart(
            _keys(history),
            _courses(history, badges, is_full=False),
            key="chart-alpha",
            title=f"alpha of every tenant, by {history.step}",
            file=f"alpha-{pool}",
            text=INCOME_TEXT,
        )
    ]
    if history.whole.utility:
        charts.append(
            alpha_chart(
                _keys(history),
                _courses(history, badges, is_full=True),
                key="chart-full-alpha",
                title=f"alpha with utilities, by {history.step}",
                file=f"alpha-utilities-{pool}",
                text=FULL_TEXT,
            )
        )
    return charts


def _courses(
    history: RevenueHistory, badges: Mapping[int, TenantBadge], *, is_full: bool
) -> list[AlphaCourse]:
    tenants = list(history.whole.parts)
    shown = [badges.get(tenant, OPERATOR_BADGE) for tenant in tenants]
    names = distinct_names([(badge.name, badge.initials) for badge in shown])
    return [
        AlphaCourse(
            name,
            f"tenant-{tenant}",
            tenant_line(badge),
            [
                _number((period.full_alpha if is_full else period.alpha).get(tenant))
                for period in history.periods
            ],
        )
        for tenant, badge, name in zip(tenants, shown, names, strict=True)
    ]


def _keys(history: RevenueHistory) -> list[datetime]:
    return [period.begins_at for period in history.periods]


def _number(alpha: Fraction | None) -> float | None:
    return None if alpha is None else float(alpha)
