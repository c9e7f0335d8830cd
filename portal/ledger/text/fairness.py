"""Texts and charts of revenue fairness, of one tenant and of all tenants of a pool."""

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.selectors.revenue import AlphaItem, FairnessStep, RevenueHistory, alpha_item
from evenshare_core.money.fixed_point import sum_to_credits
from portal.charts.explore.chart import PageChart, distinct_names
from portal.charts.explore.columns import column
from portal.charts.explore.looks import LENT, OWN, tenant_line
from portal.charts.explore.revenue import FULL_TEXT, INCOME_TEXT, AlphaCourse, alpha_chart
from portal.charts.figures import ratio
from portal.charts.tenants import OTHERS, TenantBadge
from portal.ledger.text.statement import OPERATOR

STEP_NAMES = {
    FairnessStep.HOUR: gettext_noop("hour"),
    FairnessStep.DAY: gettext_noop("day"),
    FairnessStep.WEEK: gettext_noop("week"),
    FairnessStep.MONTH: gettext_noop("month"),
}


def operator_badge() -> TenantBadge:
    return TenantBadge(_(OPERATOR), OTHERS, "OP")


def alpha_rows(
    history: RevenueHistory, badges: Mapping[int, TenantBadge]
) -> list[tuple[TenantBadge, AlphaItem]]:
    """Return all tenants, highest alpha first."""
    rows = [
        (badge, alpha_item(history.whole, tenant, badge.name))
        for tenant in history.whole.parts
        for badge in (badges.get(tenant) or operator_badge(),)
    ]
    return sorted(rows, key=lambda row: (-(row[1].alpha or 0), row[0].name))


def own_alpha_chart(history: RevenueHistory, tenant: int, *, file: str) -> PageChart:
    """Draw alpha of a tenant over time: by income, and with utilities if jobs declare them."""
    periods = history.periods
    courses = [
        AlphaCourse(
            _("income only"),
            column(gettext_noop("alpha, income only")),
            "income",
            OWN,
            [_number(period.alpha.get(tenant)) for period in periods],
            [sum_to_credits(period.income.get(tenant, 0)) for period in periods],
        )
    ]
    if history.whole.utility:
        full = [_number(period.full_alpha.get(tenant)) for period in periods]
        head = column(gettext_noop("alpha with utilities"))
        courses.append(AlphaCourse(_("with utilities"), head, "full", LENT, full))
    alpha = _number(history.whole.alpha.get(tenant))
    value = _("not defined") if alpha is None else ratio(alpha)

    return alpha_chart(
        _keys(history),
        courses,
        key="chart-alpha",
        title=_("alpha {value} over the period, by {step}").format(
            value=value, step=_step(history)
        ),
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
            title=_("alpha of every tenant, by {step}").format(step=_step(history)),
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
                title=_("alpha with utilities, by {step}").format(step=_step(history)),
                file=f"alpha-utilities-{pool}",
                text=FULL_TEXT,
            )
        )
    return charts


def _courses(
    history: RevenueHistory, badges: Mapping[int, TenantBadge], *, is_full: bool
) -> list[AlphaCourse]:
    tenants = list(history.whole.parts)
    shown = [badges.get(tenant) or operator_badge() for tenant in tenants]
    names = distinct_names([(badge.name, badge.initials) for badge in shown])
    return [
        AlphaCourse(
            name,
            column(gettext_noop("alpha of {tenant}"), tenant=name),
            f"tenant-{tenant}",
            tenant_line(badge),
            [
                _number((period.full_alpha if is_full else period.alpha).get(tenant))
                for period in history.periods
            ],
        )
        for tenant, badge, name in zip(tenants, shown, names, strict=True)
    ]


def _step(history: RevenueHistory) -> str:
    return _(STEP_NAMES[history.step])


def _keys(history: RevenueHistory) -> list[datetime]:
    return [period.begins_at for period in history.periods]


def _number(alpha: Fraction | None) -> float | None:
    return None if alpha is None else float(alpha)
