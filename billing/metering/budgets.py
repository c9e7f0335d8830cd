"""Budget reservations: rounds reserve, charges replace them, settlements release them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime

from django.db import connection

from billing.models import Book
from evenshare_core.domain.instants import to_us
from evenshare_core.money.fixed_point import to_credits, to_micro, worst_case_micro
from evenshare_core.money.revenue.records import ClosedTerm
from scheduling.models import LeaseTerm

Charge = tuple[int, datetime, int]  # borrower, hour, micro-credits


def replace_reserved(book: Book, closed: Sequence[ClosedTerm]) -> None:
    """Replace the amount that a round reserved for each term with the cost of the term."""
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


def release_reserved(book: Book, charges: Iterable[Charge]) -> None:
    """Release settled charges: the ledger has deducted them from `spendable`."""
    change: dict[int, int] = defaultdict(int)
    for tenant, _, micro in charges:
        change[tenant] -= micro
    _change_reserved(book, change)


def add_unsettled(book: Book, charged: Iterable[Charge]) -> None:
    """Add charges to the unsettled credits of their days of pool time."""
    change: dict[tuple[int, date], int] = defaultdict(int)
    for tenant, hour, micro in charged:
        change[tenant, _day(hour)] += micro
    _change_days(book, {key: (0, micro) for key, micro in change.items()})


def add_spend(book: Book, charges: Iterable[Charge]) -> None:
    """Move each borrower's settled charges from unsettled to spent, by day of pool time."""
    spent: dict[tuple[int, date], int] = defaultdict(int)
    for tenant, hour, micro in charges:
        spent[tenant, _day(hour)] += micro
    _change_days(book, {key: (micro, -micro) for key, micro in spent.items()})


def _day(hour: datetime) -> date:
    return hour.astimezone(UTC).date()


def _change_days(book: Book, change: dict[tuple[int, date], tuple[int, int]]) -> None:
    """Add micro-credits to the settled and unsettled sums, by tenant and day."""
    rows = sorted(
        (*key, to_credits(settled), to_credits(unsettled))
        for key, (settled, unsettled) in change.items()
        if settled or unsettled
    )
    if not rows:
        return
    columns = [list(column) for column in zip(*rows, strict=True)]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO tenants_dailyspend (tenant_id, book, day, amount)
            SELECT new.tenant_id, %s, new.day, 0
            FROM unnest(%s::bigint[], %s::date[]) AS new (tenant_id, day)
            ORDER BY new.tenant_id, new.day
            ON CONFLICT (tenant_id, book, day) DO NOTHING
            """,
            [book.slug, *columns[:2]],
        )
        cursor.execute(
            # Sorted by tenant and day, so that the transactions of two pools cannot deadlock.
            """
            WITH locked AS (
                SELECT spend.id, change.settled, change.unsettled
                FROM tenants_dailyspend spend
                JOIN unnest(%s::bigint[], %s::date[], %s::numeric[], %s::numeric[])
                    AS change (tenant_id, day, settled, unsettled) USING (tenant_id, day)
                WHERE spend.book = %s
                ORDER BY spend.tenant_id, spend.day FOR UPDATE OF spend
            )
            UPDATE tenants_dailyspend spend
            SET amount = spend.amount + locked.settled,
                -- A worker of an older version has metered lines without adding them here.
                unsettled = greatest(0, spend.unsettled + locked.unsettled)
            FROM locked WHERE spend.id = locked.id
            """,
            [*columns, book.slug],
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
