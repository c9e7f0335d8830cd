"""An account's earnings and payments per hour."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.selectors.hours import AccountHour
from portal.charts.explore.chart import PageChart, Series, axis_range
from portal.charts.explore.columns import column
from portal.charts.explore.looks import LENT, NET, OWN
from portal.charts.figures import HOUR_S, credits_text


def account_chart(hours: Sequence[AccountHour], *, key: str, file: str) -> PageChart:
    """Draw revenue upwards, charges downwards, and the net as a dotted line.

    `hours` are the hours with transfers; in the hours between and after them the net is zero.
    """
    rows = _with_ends(hours)
    keys = [row.hour for row in rows]
    earned = sum((row.earned for row in hours), Decimal(0))
    paid = sum((row.paid for row in hours), Decimal(0))
    ends = [float(row.earned) for row in hours] + [-float(row.paid) for row in hours]
    return PageChart(
        key=key,
        title=_("{earned} credits earned, {paid} paid").format(
            earned=credits_text(earned), paid=credits_text(paid)
        ),
        text=_("By hour of pool time, including unsettled. Up: revenue from lending. Down,"
               " hatched: charges for borrowing. Dotted: the net."),
        series=(
            Series(_("earned"), column(gettext_noop("earned by lending, credits")), keys,
                   [row.earned for row in rows],
                   OWN, kind="bar", places=6, span_s=HOUR_S),
            Series(_("paid"), column(gettext_noop("paid for borrowing, credits")), keys,
                   [-row.paid for row in rows],
                   LENT, kind="bar", places=6, span_s=HOUR_S),
            Series(_("net"), column(gettext_noop("net, credits")), keys,
                   [row.net for row in rows], NET, places=6),
        ),
        y=axis_range(ends, least=0.1, floor=None, around=0.0),
        unit=_("credits"),
        file=file,
        key_column=gettext_noop("hour from, UTC on the pool's clock"),
    )  # fmt: skip # rows of what belongs together


def _with_ends(hours: Sequence[AccountHour]) -> list[AccountHour]:
    """Return the hours, and an empty hour after each unbroken series.

    There the net line drops to zero. A gap is one row of the table, whatever its length.
    """
    after = {row.hour + timedelta(hours=1) for row in hours} - {row.hour for row in hours}
    ends = [AccountHour(hour, Decimal(0), Decimal(0)) for hour in after]
    return sorted([*hours, *ends], key=lambda row: row.hour)
