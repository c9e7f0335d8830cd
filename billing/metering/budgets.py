"""What rounds reserved from budgets, replaced by charges, released by settlements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date

from django.db import connection

from billing.ledger import Posting
from billing.models import Book
from evenshare_core.domain.instants import to_us
from evenshare_core.money.fixed_point import to_credits, to_micro, worst_case_micro
from evenshare_core.money.revenue import ClosedTerm
from scheduling.models import LeaseTerm


def replace_reserved(book: Book, closed: Sequence[ClosedTerm]) -> None:
    """Replace the worst case that a round reserved for each term by what it cost."""
    priced = {
        (term.lease, term.term): (term.tenant, term.amount_micro)
        for term in closed
        if term.borrowed and term.price_micro
    }
    rows = LeaseTerm.objects.filter(lease_id__in={lease for lease, _ in priced}).values_list(
        "lease_id", "number", "borrowed", "price", "starts_at", "expires_at"
    )
    change: dict[int, int] = defaultdict(int)
    for lease, number, gpus, price, starts_at, expires_at in rows:
        if (lease, number) in priced:
            tenant, amount = priced[lease, number]
            worst = worst_case_micro(gpus, to_micro(price), to_us(expires_at) - to_us(starts_at))
            change[tenant] += amount - worst
    _change_reserved(book, change)


def release_reserved(book: Book, postings: Sequence[Posting]) -> None:
    """What is settled is no longer reserved: the ledger took it from `spendable`."""
    change: dict[int, int] = defaultdict(int)
    for posting in postings:
        if posting.tenant_id is not None:
            change[posting.tenant_id] += sum(min(micro, 0) for _, micro in posting.entries)
    _change_reserved(book, change)


def add_spend(book: Book, postings: Sequence[Posting]) -> None:
    """Add what settled hours cost each borrower to the day of pool time they belong to."""
    spent: dict[tuple[int, date], int] = defaultdict(int)
    for posting in postings:
        if posting.tenant_id is not None and posting.hour is not None:
            day = posting.hour.astimezone(UTC).date()
            spent[posting.tenant_id, day] -= sum(min(micro, 0) for _, micro in posting.entries)
    rows = sorted((*key, to_credits(micro)) for key, micro in spent.items() if micro)
    if not rows:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO tenants_dailyspend AS known (tenant_id, book, day, amount)
            SELECT added.tenant_id, %s, added.day, added.amount
            FROM unnest(%s::bigint[], %s::date[], %s::numeric[])
                AS added (tenant_id, day, amount)
            ON CONFLICT (tenant_id, book, day)
                DO UPDATE SET amount = known.amount + excluded.amount
            """,
            [book.slug, *(list(column) for column in zip(*rows, strict=True))],
        )


def _change_reserved(book: Book, change: dict[int, int]) -> None:
    rows = sorted((tenant, micro) for tenant, micro in change.items() if micro)
    if not rows:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH locked AS (
                SELECT budget.id, change.amount
                FROM tenants_budget budget
                JOIN unnest(%s::bigint[], %s::numeric[]) AS change (tenant_id, amount)
                  USING (tenant_id)
                WHERE budget.book = %s
                ORDER BY budget.tenant_id FOR UPDATE OF budget
            )
            UPDATE tenants_budget budget
            SET reserved = budget.reserved + locked.amount,
                -- What was used is owed, even beyond the limit; GREATEST leaves out what is null.
                overrun = greatest(
                    0, budget.reserved + locked.amount - budget.spendable - budget.credit_limit)
            FROM locked WHERE budget.id = locked.id
            """,
            [
                [tenant for tenant, _ in rows],
                [to_credits(micro) for _, micro in rows],
                book.slug,
            ],
        )
