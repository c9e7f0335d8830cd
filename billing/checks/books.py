"""Invariants of transfers, entries, balances, settlements and budgets."""

import json
from datetime import date

from billing.checks.base import CheckReport, count, report_of
from billing.ledger import late_start_id
from billing.models import Book, MeterCursor
from billing.selectors.corrections import corrected_charges
from billing.selectors.late_starts import late_credits
from evenshare_core.money.fixed_point import sum_to_credits, sum_to_micro
from tenants.sql import fetch_rows


def transfers_sum_to_zero() -> CheckReport:
    """Check that every transfer has two or more entries, in its own book, that sum to zero."""
    wrong = fetch_rows(
        """
        SELECT t.id, count(e.id), coalesce(sum(e.amount), 0),
               count(*) FILTER (WHERE a.book_id <> t.book_id)
        FROM billing_transfer t
        LEFT JOIN billing_entry e ON e.transfer_id = t.id
        LEFT JOIN billing_account a ON a.id = e.account_id
        GROUP BY t.id
        HAVING count(e.id) < 2 OR coalesce(sum(e.amount), 0) <> 0
            OR count(*) FILTER (WHERE a.book_id <> t.book_id) > 0
        """
    )
    return report_of(
        count("billing_transfer"),
        [
            f"transfer {id_}: {n} entries, sum {total}, {foreign} in another book"
            for id_, n, total, foreign in wrong
        ],
    )


def books_sum_to_zero() -> CheckReport:
    """Check that the entries of each book sum to zero: credits are moved, never created."""
    sums = fetch_rows(
        """
        SELECT b.slug, coalesce(sum(e.amount), 0)
        FROM billing_book b
        LEFT JOIN billing_account a ON a.book_id = b.id
        LEFT JOIN billing_entry e ON e.account_id = a.id
        GROUP BY b.slug
        """
    )
    return report_of(
        count("billing_entry"), [f"book {slug}: sum {total}" for slug, total in sums if total]
    )


def balances_equal_entries() -> CheckReport:
    """Check that every balance is the sum of its account's entries."""
    wrong = fetch_rows(
        """
        SELECT a.id, a.balance, coalesce(sum(e.amount), 0)
        FROM billing_account a LEFT JOIN billing_entry e ON e.account_id = a.id
        GROUP BY a.id HAVING a.balance <> coalesce(sum(e.amount), 0)
        """
    )
    return report_of(
        count("billing_account"),
        [f"account {id_}: balance {balance}, entries {total}" for id_, balance, total in wrong],
    )


def settled_hours_equal_lines() -> CheckReport:
    """Check that the transfers of settled hours equal their usage lines, by account."""
    compared = fetch_rows(
        """
        WITH settled AS (
            SELECT line.*
            FROM billing_usageline line
            JOIN billing_metercursor cursor USING (pool_id)
            WHERE line.amount + line.borne > 0 AND line.hour < cursor.settled_until
        ), expected AS (
            SELECT s.pool_id, s.tenant_id, s.hour, a.id AS account_id, -1 AS side,
                   -sum(s.amount) AS amount
            FROM settled s
            JOIN billing_account a ON a.book_id = s.book_id AND a.tenant_id = s.tenant_id
            GROUP BY 1, 2, 3, 4
            HAVING sum(s.amount) > 0
            UNION ALL
            SELECT s.pool_id, s.tenant_id, s.hour, a.id, -1, -sum(s.borne)
            FROM settled s
            JOIN billing_account a ON a.book_id = s.book_id AND a.kind = 'operator'
            GROUP BY 1, 2, 3, 4
            HAVING sum(s.borne) > 0
            UNION ALL
            SELECT s.pool_id, s.tenant_id, s.hour, share.account_id, 1, sum(share.amount)
            FROM settled s JOIN billing_usageshare share ON share.line_id = s.id
            WHERE share.amount > 0
            GROUP BY 1, 2, 3, 4
        ), posted AS (
            SELECT t.pool_id, t.tenant_id, t.hour, e.account_id, sign(e.amount)::int AS side,
                   sum(e.amount) AS amount
            FROM billing_transfer t JOIN billing_entry e ON e.transfer_id = t.id
            WHERE t.code = 'usage'
            GROUP BY 1, 2, 3, 4, 5
        )
        SELECT pool_id, tenant_id, hour, account_id, expected.amount, posted.amount
        FROM expected FULL JOIN posted USING (pool_id, tenant_id, hour, account_id, side)
        """
    )
    return report_of(
        len(compared),
        [
            f"pool {pool}, borrower {tenant}, hour {hour:%Y-%m-%d %H}h, account {account}:"
            f" lines say {expected}, posted {posted}"
            for pool, tenant, hour, account, expected, posted in compared
            if expected != posted
        ],
    )


def charged_equals_earned() -> CheckReport:
    """Check per book that charges, plus the operator's part, equal the lenders' shares."""
    totals = fetch_rows(
        """
        SELECT b.slug,
               (SELECT coalesce(sum(l.amount + l.borne), 0)
                FROM billing_usageline l WHERE l.book_id = b.id),
               (SELECT coalesce(sum(s.amount), 0) FROM billing_usageshare s
                JOIN billing_account a ON a.id = s.account_id WHERE a.book_id = b.id),
               (SELECT count(*) FROM billing_usageline l WHERE l.book_id = b.id)
        FROM billing_book b
        """
    )
    return report_of(
        sum(lines for *_, lines in totals),
        [
            f"book {slug}: charged {charged}, earned {earned}"
            for slug, charged, earned, _ in totals
            if charged != earned
        ],
    )


def budgets_follow_balances() -> CheckReport:
    """Check that a budget's spendable credits equal the balance of the tenant's account."""
    wrong = fetch_rows(
        """
        SELECT budget.tenant_id, budget.book, budget.spendable, coalesce(a.balance, 0)
        FROM tenants_budget budget
        LEFT JOIN billing_book b ON b.slug = budget.book
        LEFT JOIN billing_account a ON a.book_id = b.id AND a.tenant_id = budget.tenant_id
        WHERE budget.spendable <> coalesce(a.balance, 0)
        """
    )
    return report_of(
        count("tenants_budget"),
        [
            f"tenant {tenant} in {book}: spendable {spendable}, balance {balance}"
            for tenant, book, spendable, balance in wrong
        ],
    )


def limits_are_one() -> CheckReport:
    """Check that an account and its budget have the same limit and the same overrun."""
    wrong = fetch_rows(
        """
        SELECT a.tenant_id, b.slug, a.credit_limit, budget.credit_limit, a.overrun, budget.overrun
        FROM billing_account a
        JOIN billing_book b ON b.id = a.book_id
        LEFT JOIN tenants_budget budget
             ON budget.tenant_id = a.tenant_id AND budget.book = b.slug
        WHERE a.tenant_id IS NOT NULL AND (
            budget.id IS NULL
            OR a.credit_limit IS DISTINCT FROM budget.credit_limit
            OR a.overrun <> greatest(0, -(a.balance + a.credit_limit))
            OR budget.overrun
               <> greatest(0, budget.reserved - budget.spendable - budget.credit_limit))
        """
    )
    return report_of(
        count("tenants_budget"),
        [
            f"tenant {tenant} in {book}: limits {limit} and {other}, overruns {over} and {short}"
            for tenant, book, limit, other, over, short in wrong
        ],
    )


def daily_spend_equals_lines() -> CheckReport:
    """Check that spent credits equal the charges of settled hours by day, with corrections.

    The charges of the day's unsettled hours must equal its unsettled credits.
    """
    charged: dict[tuple[int, str, date], list[int]] = {
        (tenant, book, day): [sum_to_micro(settled), sum_to_micro(unsettled)]
        for tenant, book, day, settled, unsettled in fetch_rows(
            """
            SELECT line.tenant_id, b.slug, (line.hour AT TIME ZONE 'UTC')::date,
                   coalesce(
                       sum(line.amount) FILTER (WHERE line.hour < cursor.settled_until), 0),
                   coalesce(
                       sum(line.amount) FILTER (WHERE line.hour >= cursor.settled_until), 0)
            FROM billing_usageline line
            JOIN billing_book b ON b.id = line.book_id
            JOIN billing_metercursor cursor ON cursor.pool_id = line.pool_id
            WHERE line.amount > 0
            GROUP BY 1, 2, 3
            """
        )
    }
    for charge in corrected_charges():
        due = charged.setdefault((charge.tenant_id, charge.book, charge.day), [0, 0])
        due[0] += charge.spent_change_micro
    kept = {
        (tenant, book, day): [sum_to_micro(amount), sum_to_micro(unsettled)]
        for tenant, book, day, amount, unsettled in fetch_rows(
            "SELECT tenant_id, book, day, amount, unsettled FROM tenants_dailyspend"
        )
    }
    return report_of(
        len(kept),
        [
            f"tenant {tenant} in {book}, {day}, {what}: lines and corrections say"
            f" {sum_to_credits(due)}, kept {sum_to_credits(has)}"
            for tenant, book, day in sorted(charged.keys() | kept.keys())
            for what, due, has in zip(
                ("settled", "not settled"),
                charged.get((tenant, book, day), [0, 0]),
                kept.get((tenant, book, day), [0, 0]),
                strict=True,
            )
            if due != has
        ],
    )


def gifts_were_approved() -> CheckReport:
    """Check that allowances come from the operator, and that another user approved transfers."""
    wrong = fetch_rows(
        """
        WITH sides AS (
            SELECT t.id, t.code, t.book_id, payer.tenant_id AS giver, gainer.tenant_id AS receiver,
                   gain.amount, t.entry_count
            FROM billing_transfer t
            JOIN billing_entry pay ON pay.transfer_id = t.id AND pay.amount < 0
            JOIN billing_account payer ON payer.id = pay.account_id
            JOIN billing_entry gain ON gain.transfer_id = t.id AND gain.amount > 0
            JOIN billing_account gainer ON gainer.id = gain.account_id
            WHERE t.code IN ('allowance', 'transfer')
        )
        SELECT s.id, s.code, 'the sides are not of this kind' FROM sides s
        WHERE s.entry_count <> 2 OR (s.code = 'allowance' AND s.giver IS NOT NULL
                                     AND s.receiver IS NOT NULL)
        UNION ALL
        SELECT s.id, s.code, 'nobody approved it' FROM sides s
        WHERE s.code = 'transfer' AND NOT EXISTS (
            SELECT FROM billing_transferrequest r
            WHERE r.transfer_id = s.id AND r.state = 'approved' AND r.book_id = s.book_id
              AND r.tenant_id = s.giver AND r.receiver_id = s.receiver AND r.amount = s.amount)
        UNION ALL
        SELECT r.transfer_id, 'transfer', 'approved twice, or its transfer is another'
        FROM billing_transferrequest r
        WHERE r.state = 'approved' AND NOT EXISTS (
            SELECT FROM sides s WHERE s.id = r.transfer_id AND s.code = 'transfer')
        """
    )
    checked = fetch_rows(
        "SELECT count(*) FROM billing_transfer WHERE code IN ('allowance', 'transfer')"
    )
    return report_of(checked[0][0], [f"{code} {id_}: {what}" for id_, code, what in wrong])


def late_starts_are_credited() -> CheckReport:
    """Check that the operator credited each late start of a settled hour, with its facts, once."""
    due = {}
    books = {book.slug: book for book in Book.objects.all()}
    for cursor in MeterCursor.objects.select_related("pool"):
        if cursor.settled_until is None:
            continue
        for row in late_credits(cursor.pool_id, since=None, until=cursor.settled_until):
            key = late_start_id(books[cursor.pool.book], cursor.pool_id, row.subject)
            due[key] = (row.tenant_id, row.tenant_id, row.amount_micro, row.facts)
    posted = {
        key: (tenant, receiver, sum_to_micro(amount), json.loads(data))
        for key, tenant, receiver, amount, data in fetch_rows(
            """
            SELECT t.id, t.tenant_id, a.tenant_id, e.amount, t.data::text
            FROM billing_transfer t
            JOIN billing_entry e ON e.transfer_id = t.id AND e.amount > 0
            JOIN billing_account a ON a.id = e.account_id
            WHERE t.code = 'late_start'
            """
        )
    }
    keys = sorted(due.keys() | posted.keys())
    wrong = [key for key in keys if due.get(key) != posted.get(key)]
    return report_of(
        len(keys),
        [f"transfer {key}: {posted.get(key)} is posted, {due.get(key)} is due" for key in wrong],
    )
