"""A tenant's lending income in a pool: lines, sums, and the reconciliation with the ledger.

A line is a share of a borrower's term: own idle / total idle x price x GPUs x time. It counts at
the end of its hour, like the transfer that settles it. So the settled lines of a range of pool time
sum to the ledger's income in that range. Read-only.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import Annotated, Any

from django.utils.translation import gettext as _
from msgspec.structs import replace

from billing.selectors.accounts import ZERO, gpu_hours
from billing.selectors.income import given_time
from billing.selectors.late import LATE_SHARES
from billing.selectors.statements import StatementPeriod
from tenants.answers import Answer, Hidden, about, formatted_as
from tenants.language import gettext_noop
from tenants.scopes import site_reading
from tenants.sql import fetch_rows


class IncomeSumRow(Answer, frozen=True):
    """A sum of income lines with a common key."""

    name: Annotated[
        str,
        about(
            "A day (its first instant), a GPU type, or a borrower; hidden borrowers share the"
            " row `other tenants`."
        ),
    ]
    lines: int
    lent_gpu_h: Annotated[Decimal, formatted_as("{:f}".format, type="string")]
    earned: Decimal
    borne: Annotated[
        Decimal, about("Part of `earned` paid by the operator because rounds were late.")
    ] = ZERO
    # The common key: an instant, a name, or a tenant's id; None for all lines.
    key: Hidden[Any] = None


class ReconciliationRow(Answer, frozen=True):
    """Lines compared with the ledger."""

    settled: Annotated[Decimal, about("Lines of settled hours.")] = ZERO
    ledger: Annotated[Decimal, about("Income by the transfers of these hours.")] = ZERO
    difference: Annotated[Decimal, about("Settled less ledger; must be zero.")] = ZERO
    open: Annotated[Decimal, about("Lines not settled yet.")] = ZERO
    corrections: Annotated[
        Decimal, about("Net of corrections of the pool's usage, which have no lines.")
    ] = ZERO
    transfers: Hidden[int] = 0
    corrections_count: Hidden[int] = 0


@dataclass(frozen=True, slots=True)
class Contribution:
    """A tenant's income from lending in [since, until) of a pool's time.

    The sums by period (oldest first), GPU type and borrower (largest first) each add up to `total`.
    """

    total: IncomeSumRow
    periods: tuple[IncomeSumRow, ...]
    gpu_types: tuple[IncomeSumRow, ...]
    borrowers: tuple[IncomeSumRow, ...]
    reconciliation: ReconciliationRow


OTHERS = gettext_noop("other tenants")
NOTHING = IncomeSumRow("", 0, ZERO, ZERO)
NO_CONTRIBUTION = Contribution(NOTHING, (), (), (), ReconciliationRow())

# An hour counts at its end.
_LINES_OF = """
    FROM billing_usageshare share
    JOIN billing_usageline line ON line.id = share.line_id
    JOIN scheduling_gputype type ON type.id = line.gpu_type_id
    WHERE share.account_id = %(account)s AND line.pool_id = %(pool)s
      AND share.hour >= %(since_hour)s AND share.hour < %(until_hour)s
"""
_SUMS = f"""
    WITH {LATE_SHARES}
    SELECT grouping(period), grouping(gpu_type), grouping(borrower), period, gpu_type, borrower,
           count(*), sum(lent_gpu_us), sum(amount), coalesce(sum(borne), 0.000000)
    FROM (
        SELECT date_trunc(%(period)s, share.hour + interval '1 hour', 'UTC') AS period,
               type.name AS gpu_type, line.tenant_id AS borrower, share.lent_gpu_us, share.amount,
               (SELECT late.borne FROM late_share late WHERE late.id = share.id) AS borne
        {_LINES_OF}
    ) lines
    GROUP BY GROUPING SETS ((period), (gpu_type), (borrower), ())
"""  # noqa: S608 - made of a constant of ours
_SETTLED = f"""
    SELECT coalesce(sum(share.amount) FILTER (WHERE share.hour < cursor.settled_until), 0.000000),
           coalesce(sum(share.amount), 0.000000)
    FROM (SELECT share.hour, share.amount {_LINES_OF}) share
    LEFT JOIN billing_metercursor cursor ON cursor.pool_id = %(pool)s
"""  # noqa: S608 - made of a constant of ours
_LEDGER = """
    SELECT coalesce(sum(entry.amount) FILTER (
               WHERE transfer.code = 'usage' AND entry.amount > 0), 0.000000),
           count(DISTINCT transfer.id) FILTER (
               WHERE transfer.code = 'usage' AND entry.amount > 0),
           coalesce(sum(entry.amount) FILTER (WHERE transfer.code = 'correction'), 0.000000),
           count(DISTINCT transfer.id) FILTER (WHERE transfer.code = 'correction')
    FROM billing_entry entry
    JOIN billing_transfer transfer ON transfer.id = entry.transfer_id
    WHERE entry.account_id = %(account)s AND transfer.pool_id = %(pool)s
      AND transfer.code IN ('usage', 'correction')
      AND transfer.effective_at >= %(since)s AND transfer.effective_at < %(until)s
"""


def contribution(
    tenant_id: int,
    pool_id: int,
    book: str,
    *,
    since: datetime,
    until: datetime,
    period: StatementPeriod = StatementPeriod.DAY,
) -> Contribution:
    """Return a tenant's lending income in [since, until) of a pool's time. Four queries.

    The page decides which borrowers it may show.
    """
    given = given_time(tenant_id, pool_id, book, since, until)
    if given is None:
        return NO_CONTRIBUTION
    with site_reading():
        sums = fetch_rows(_SUMS, {**given, "period": period.value})
        ((settled, every),) = fetch_rows(_SETTLED, given)
        ((ledger, transfers, corrections, count),) = fetch_rows(_LEDGER, given)
    by: dict[str, list[IncomeSumRow]] = {"period": [], "gpu_type": [], "borrower": [], "": []}
    for no_period, no_type, no_borrower, when, gpu_type, borrower, lines, *of in sums:
        name, key = next(
            (name, key)
            for name, key, is_left_out in (
                ("period", when, no_period),
                ("gpu_type", gpu_type, no_type),
                ("borrower", borrower, no_borrower),
                ("", None, False),
            )
            if not is_left_out
        )
        if lines:
            lent_us, earned, borne = of
            by[name].append(IncomeSumRow("", lines, gpu_hours(lent_us), earned, borne, key))
    return Contribution(
        total=by[""][0] if by[""] else NOTHING,
        periods=tuple(sorted(by["period"], key=attrgetter("key"))),
        gpu_types=tuple(sorted(by["gpu_type"], key=_most_first)),
        borrowers=tuple(sorted(by["borrower"], key=_most_first)),
        reconciliation=ReconciliationRow(
            settled, ledger, settled - ledger, every - settled, corrections, transfers, count
        ),
    )


def named_sums(
    rows: Iterable[IncomeSumRow], name_of: Callable[[Any], str | None]
) -> list[IncomeSumRow]:
    """Return sums with their names; sums without a name are merged into the last row."""
    named, others = [], replace(NOTHING, name=_(OTHERS))
    for row in rows:
        name = name_of(row.key)
        if name is not None:
            named.append(replace(row, name=name))
            continue
        others = IncomeSumRow(
            others.name,
            others.lines + row.lines,
            others.lent_gpu_h + row.lent_gpu_h,
            others.earned + row.earned,
            others.borne + row.borne,
        )
    return [*named, others] if others.lines else named


def _most_first(row: IncomeSumRow) -> tuple[Decimal, str]:
    return -row.earned, str(row.key)
