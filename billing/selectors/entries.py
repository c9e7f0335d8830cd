"""Transfers on a tenant's account for a pool, one by one. Read-only."""

import json
from collections.abc import Sequence
from datetime import datetime

from billing.selectors.accounts import account_of
from billing.selectors.late import LATE_SHARES
from billing.selectors.late_starts import late_start_row
from billing.selectors.statements import HOUR, Given
from billing.selectors.usage import stated
from evenshare_core.money.rows import EntryRow
from tenants.scopes import site_reading
from tenants.sql import fetch_rows

# A tenant that lends to itself has two entries in a transfer.
_ENTRIES = f"""
    WITH {LATE_SHARES}
    SELECT transfer.id, transfer.code, (SELECT name FROM scheduling_pool WHERE id = %(pool)s),
           transfer.hour, transfer.effective_at, transfer.posted_at,
           transfer.corrects_id,
           coalesce(-sum(entry.amount) FILTER (WHERE entry.amount < 0), 0.000000),
           coalesce(sum(entry.amount) FILTER (WHERE entry.amount > 0), 0.000000),
           CASE WHEN transfer.code = 'usage' THEN coalesce(
               (SELECT late.borne FROM late_hour late
                WHERE (late.pool_id, late.borrower, late.hour)
                    = (transfer.pool_id, transfer.tenant_id, transfer.hour)), 0.000000)
           ELSE 0.000000 END,
           max(entry.id), (SELECT slug FROM tenants_tenant WHERE id = transfer.tenant_id),
           CASE WHEN transfer.code = 'late_start' THEN transfer.data::text END
    FROM billing_entry entry JOIN billing_transfer transfer ON transfer.id = entry.transfer_id
    WHERE entry.account_id = %(account)s AND transfer.pool_id = %(pool)s
      AND transfer.effective_at >= %(since)s AND transfer.effective_at < %(until)s
    GROUP BY transfer.id
    HAVING %(before)s::bigint IS NULL OR max(entry.id) < %(before)s
    ORDER BY max(entry.id) DESC LIMIT %(limit)s
"""  # noqa: S608 - made of a constant of ours


FIELDS = EntryRow.__struct_fields__[:-1]  # all but `late_start`


def account_entries(
    tenant_id: int,
    pool_id: int,
    book: str,
    *,
    since: datetime,
    until: datetime,
    before: int | None = None,
    limit: int = 50,
) -> list[tuple[int, EntryRow]]:
    """Return at most `limit` transfers effective in [since, until), newest first. Two queries.

    Each transfer has its number in the list; the page starts after the number `before`.
    """
    account = account_of(tenant_id, book)
    if account is None:
        return []
    given: Given = {
        "account": account.pk, "pool": pool_id, "since": since, "until": until,
        "before": before, "limit": limit,
        "since_hour": since - HOUR, "until_hour": until - HOUR,
    }  # fmt: skip # a table
    # The split of a line also depends on the shares of its other lenders.
    with site_reading():
        rows = fetch_rows(_ENTRIES, given)
    return [(row[-3], _entry(row[:-3], *row[-2:])) for row in rows]


def _entry(row: Sequence[object], tenant: str, data: str | None) -> EntryRow:
    facts = dict(zip(FIELDS, row, strict=True))
    late = None if data is None else late_start_row(tenant, json.loads(data))
    return stated(EntryRow, **facts, late_start=late)
