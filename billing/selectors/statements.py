"""An account over a range of pool time: by period, by counterparty, and by transfer.

All three have the same sum, that of the account's entries in the range. Read-only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from billing.models import Transfer
from billing.selectors.accounts import (
    ZERO,
    AccountMove,
    Earnings,
    LedgerRow,
    account_of,
    gpu_hours,
    rows_of_transfers,
)
from billing.selectors.late import LATE_SHARES
from tenants.scopes import site_reading
from tenants.sql import fetch_rows

HOUR = timedelta(hours=1)


class StatementPeriod(StrEnum):
    """The period of a statement's sums; UTC days of pool time, weeks start on Monday."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class PeriodTotal(Earnings):
    """A period with transfers: its income and payments in credits, and their number."""

    begins_at: datetime
    transfers: int
    earned: Decimal
    paid: Decimal


@dataclass(frozen=True, slots=True)
class CounterpartyTotal(Earnings):
    """An account's income from and payments to a counterparty, in credits.

    `tenant_id` is None for the operator, which owns unallocated GPUs. `code`: why the credits
    moved. `name`: the counterparty's slug, or its name on a page. `key` is its name in a query.
    """

    code: str
    tenant_id: int | None
    name: str
    transfers: int
    earned: Decimal
    paid: Decimal
    key: str = ""


@dataclass(frozen=True, slots=True)
class Counterparty:
    """Credits moved by a code; by usage, those of some tenants, or of all except them.

    The operator is the tenant None.
    """

    code: str
    tenant_ids: frozenset[int | None] = frozenset()
    is_except: bool = False

    def includes(self, total: CounterpartyTotal) -> bool:
        if total.code != self.code:
            return False
        is_tenant = total.tenant_id in self.tenant_ids
        return self.code != Transfer.Code.USAGE or is_tenant != self.is_except


@dataclass(frozen=True, slots=True)
class Statement:
    """An account in [since, until) of pool time; `opening` is its balance at `since`."""

    opening: Decimal
    periods: tuple[PeriodTotal, ...]
    counterparties: tuple[CounterpartyTotal, ...]

    @property
    def earned(self) -> Decimal:
        """Return the total income."""
        return sum((row.earned for row in self.periods), ZERO)

    @property
    def paid(self) -> Decimal:
        """Return the total payments."""
        return sum((row.paid for row in self.periods), ZERO)

    @property
    def closing(self) -> Decimal:
        return self.opening + self.earned - self.paid


@dataclass(frozen=True, slots=True)
class StatementLine(AccountMove):
    """A transfer of a statement."""

    not_charged_gpu_h: Decimal | None  # the borrowed part that is free because rounds were late
    # the part of `earned` that the operator paid because rounds were late
    earned_borne: Decimal | None


# The code of a counterparty's row for the operator's payments because of late rounds.
LATE = "late"
NO_STATEMENT = Statement(ZERO, (), ())

_OPENING = """
    SELECT coalesce(sum(entry.amount), 0.000000)
    FROM billing_entry entry JOIN billing_transfer transfer ON transfer.id = entry.transfer_id
    WHERE entry.account_id = %(account)s AND transfer.effective_at < %(since)s
"""
_PERIODS = """
    SELECT date_trunc(%(period)s, transfer.effective_at, 'UTC') AS begins_at,
           count(DISTINCT transfer.id),
           coalesce(sum(entry.amount) FILTER (WHERE entry.amount > 0), 0.000000),
           coalesce(-sum(entry.amount) FILTER (WHERE entry.amount < 0), 0.000000)
    FROM billing_entry entry JOIN billing_transfer transfer ON transfer.id = entry.transfer_id
    WHERE entry.account_id = %(account)s
      AND transfer.effective_at >= %(since)s AND transfer.effective_at < %(until)s
    GROUP BY 1 ORDER BY 1
"""
# A borrower pays usage to its lenders. So an account's income came from the borrower, and a
# borrower's payment went to each lender, possibly to itself. The operator's payments for late
# rounds are separate (`LATE`): income of a lender, or an uncharged part of a borrower. Other
# transfers are not split.
_PARTS = f"""
    WITH {LATE_SHARES}, mine AS (
        SELECT transfer.id, transfer.code, transfer.tenant_id AS borrower, transfer.pool_id,
               transfer.hour, min(entry.id) AS key,
               coalesce(sum(entry.amount) FILTER (WHERE entry.amount > 0), 0.000000) AS earned,
               coalesce(-sum(entry.amount) FILTER (WHERE entry.amount < 0), 0.000000) AS paid
        FROM billing_entry entry JOIN billing_transfer transfer ON transfer.id = entry.transfer_id
        WHERE entry.account_id = %(account)s
          AND transfer.effective_at >= %(since)s AND transfer.effective_at < %(until)s
        GROUP BY transfer.id
    ), parts AS (
        SELECT mine.id, code, mine.borrower AS tenant,
               earned - CASE WHEN mine.borrower IS NOT DISTINCT FROM %(tenant)s THEN 0.000000
                             ELSE coalesce(late.borne, 0.000000) END AS earned,
               0.000000 AS paid
        FROM mine LEFT JOIN late_hour late USING (pool_id, borrower, hour)
        WHERE code = 'usage' AND earned > 0
        UNION ALL
        SELECT mine.id, 'late', NULL, late.borne, 0.000000
        FROM mine JOIN late_hour late USING (pool_id, borrower, hour)
        WHERE code = 'usage' AND mine.borrower IS DISTINCT FROM %(tenant)s AND late.borne > 0
        UNION ALL
        SELECT mine.id, mine.code, account.tenant_id, 0.000000, entry.amount
        FROM mine
        JOIN billing_entry entry ON entry.transfer_id = mine.id AND entry.amount > 0
        JOIN billing_account account ON account.id = entry.account_id
        WHERE mine.code = 'usage' AND mine.borrower IS NOT DISTINCT FROM %(tenant)s
        UNION ALL
        SELECT mine.id, 'late', NULL, 0.000000, entry.amount
        FROM mine
        JOIN billing_entry entry ON entry.transfer_id = mine.id AND entry.amount < 0
        JOIN billing_account account ON account.id = entry.account_id
        WHERE mine.code = 'usage' AND mine.borrower IS NOT DISTINCT FROM %(tenant)s
          AND account.tenant_id IS NULL
        UNION ALL
        SELECT id, 'late', NULL, 0.000000, paid
        FROM mine
        WHERE code = 'usage' AND paid > 0 AND borrower IS DISTINCT FROM %(tenant)s
        UNION ALL
        SELECT id, code, NULL, earned, paid FROM mine WHERE code <> 'usage'
    )
"""  # noqa: S608 - made of a constant of ours
_COUNTERPARTIES = f"""
    {_PARTS}
    SELECT parts.code, parts.tenant, coalesce(tenant.slug, ''), count(DISTINCT parts.id),
           sum(parts.earned), sum(parts.paid)
    FROM parts LEFT JOIN tenants_tenant tenant ON tenant.id = parts.tenant
    GROUP BY parts.code, parts.tenant, tenant.slug
    ORDER BY parts.code IN ('usage', 'late') DESC, sum(parts.earned) + sum(parts.paid) DESC,
             tenant.slug
"""  # noqa: S608 - made of a constant of ours
# The id 0 is the operator's, because no tenant has it.
_OF_COUNTERPARTY = f"""
    {_PARTS}
    SELECT mine.id, mine.key, sum(parts.earned), sum(parts.paid)
    FROM parts JOIN mine ON mine.id = parts.id
    WHERE parts.code = %(code)s
      AND (parts.code <> 'usage'
           OR (coalesce(parts.tenant, 0) = ANY(%(tenants)s)) <> %(except)s)
      AND (%(before)s::bigint IS NULL OR mine.key < %(before)s)
    GROUP BY mine.id, mine.key
    HAVING sum(parts.earned) + sum(parts.paid) > 0
    ORDER BY mine.key DESC
    LIMIT %(limit)s
"""  # noqa: S608 - made of a constant of ours

_LINES = f"""
    WITH {LATE_SHARES}, mine AS (
        SELECT transfer.id, transfer.effective_at, transfer.code, transfer.pool_id, transfer.hour,
               transfer.tenant_id, transfer.data,
               coalesce(sum(entry.amount) FILTER (WHERE entry.amount > 0), 0.000000) AS earned,
               coalesce(-sum(entry.amount) FILTER (WHERE entry.amount < 0), 0.000000) AS paid
        FROM billing_entry entry JOIN billing_transfer transfer ON transfer.id = entry.transfer_id
        WHERE entry.account_id = %(account)s
          AND transfer.effective_at >= %(since)s AND transfer.effective_at < %(until)s
        GROUP BY transfer.id
        ORDER BY transfer.effective_at, transfer.id
        LIMIT %(limit)s
    ), lent AS (
        SELECT line.pool_id, line.tenant_id, share.hour, sum(share.lent_gpu_us) AS gpu_us
        FROM billing_usageshare share JOIN billing_usageline line ON line.id = share.line_id
        WHERE share.account_id = %(account)s
          AND share.hour >= (SELECT min(hour) FROM mine)
          AND share.hour <= (SELECT max(hour) FROM mine)
        GROUP BY line.pool_id, line.tenant_id, share.hour
    )
    SELECT ({_OPENING}), mine.effective_at, mine.id, mine.code, coalesce(pool.name, ''), mine.hour,
           mine.tenant_id, mine.earned, mine.paid,
           CASE WHEN mine.hour IS NOT NULL AND mine.tenant_id IS NOT DISTINCT FROM %(tenant)s
                THEN coalesce((mine.data->>'borrowed_gpu_us')::numeric, 0) END,
           lent.gpu_us,
           CASE WHEN mine.tenant_id IS NOT DISTINCT FROM %(tenant)s
                THEN (mine.data->>'borne_gpu_us')::numeric END,
           late.borne
    FROM mine
    LEFT JOIN late_hour late ON mine.code = 'usage'
        AND (late.pool_id, late.borrower, late.hour)
            = (mine.pool_id, mine.tenant_id, mine.hour)
    LEFT JOIN scheduling_pool pool ON pool.id = mine.pool_id
    LEFT JOIN lent ON (lent.pool_id, lent.tenant_id, lent.hour)
        = (mine.pool_id, mine.tenant_id, mine.hour)
    ORDER BY mine.effective_at, mine.id
"""  # noqa: S608 - made of a constant of ours


def account_statement(
    tenant_id: int | None,
    book: str,
    *,
    since: datetime,
    until: datetime,
    period: StatementPeriod = StatementPeriod.DAY,
) -> Statement:
    """Return a tenant's account in [since, until), or the operator's if `tenant_id` is None.

    Four queries.

    The page decides which counterparties it may show.
    """
    account = account_of(tenant_id, book)
    if account is None:
        return NO_STATEMENT
    given: Given = {
        "account": account.pk,
        "tenant": tenant_id,
        "since": since,
        "until": until,
        "period": period.value,
        **_hours(since, until),
    }
    # The payments of an account are split by the other accounts' entries in its transfers.
    with site_reading():
        ((opening,),) = fetch_rows(_OPENING, given)
        periods = tuple(PeriodTotal(*row) for row in fetch_rows(_PERIODS, given))
        others = tuple(CounterpartyTotal(*row) for row in fetch_rows(_COUNTERPARTIES, given))
    return Statement(opening, periods, others)


def statement_lines(
    tenant_id: int | None, book: str, *, since: datetime, until: datetime, limit: int
) -> tuple[Decimal, list[StatementLine]]:
    """Return an account's balance at `since`, and its transfers effective in [since, until).

    The transfers are sorted oldest first, at most `limit`. If there are none, the balance is
    returned as 0 without being read. Two queries; the second reads the balance and the transfers at
    one moment.
    """
    account = account_of(tenant_id, book)
    if account is None:
        return ZERO, []
    given: Given = {
        "account": account.pk,
        "tenant": tenant_id,
        "since": since,
        "until": until,
        "limit": limit,
        **_hours(since, until),
    }
    with site_reading():
        rows = fetch_rows(_LINES, given)
    lines = [
        StatementLine(*[*of, *(None if us is None else gpu_hours(us) for us in gpu_us), borne])
        for of, gpu_us, borne in ((row[1:9], row[9:12], row[12]) for row in rows)
    ]
    return (rows[0][0] if rows else ZERO), lines


def counterparty_page(
    tenant_id: int,
    book: str,
    counterparty: Counterparty,
    *,
    since: datetime,
    until: datetime,
    before: int | None = None,
    limit: int = 50,
) -> tuple[list[LedgerRow], int | None]:
    """Return a page of an account's transfers with a counterparty in [since, until), newest first.

    The key is where the next page starts; None on the last page. `earned` and `paid` are only the
    counterparty's part of each transfer, so they add up to its total in the statement. Five
    queries, as `billing.selectors.accounts.ledger_page`.
    """
    account = account_of(tenant_id, book)
    if account is None:
        return [], None
    given: dict[str, Any] = {
        "account": account.pk,
        "tenant": tenant_id,
        "since": since,
        "until": until,
        "code": counterparty.code,
        "tenants": [0 if one is None else one for one in counterparty.tenant_ids],
        "except": counterparty.is_except,
        "before": before,
        "limit": limit + 1,
        **_hours(since, until),
    }
    with site_reading():
        matches = fetch_rows(_OF_COUNTERPARTY, given)
    shown = matches[:limit]
    rows = rows_of_transfers([row[0] for row in shown], account)
    parts = [
        replace(rows[transfer], earned=earned, paid=paid) for transfer, _, earned, paid in shown
    ]
    return parts, shown[-1][1] if len(matches) > limit else None


Given = Mapping[str, int | str | datetime | None]


def _hours(since: datetime, until: datetime) -> dict[str, datetime]:
    """Return the hours that end, and so whose settlements take effect, in [since, until)."""
    return {"since_hour": since - HOUR, "until_hour": until - HOUR}
