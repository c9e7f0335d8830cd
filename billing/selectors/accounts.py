"""Read-only queries of a tenant's money for its pages."""

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

from django.db.models import QuerySet, Sum

from billing.models import Account, Entry, Transfer, UsageShare
from billing.selectors.events import hour_of
from evenshare_core.money.fixed_point import PLACES
from evenshare_core.units import HOUR_US
from tenants.models import Budget
from tenants.scopes import site_reading
from tenants.sql import fetch_rows

ZERO = Decimal("0.000000")


class Earnings:
    """An amount earned and an amount paid."""

    __slots__ = ()
    earned: Decimal
    paid: Decimal

    @property
    def net(self) -> Decimal:
        """Return earned less paid."""
        return self.earned - self.paid


@dataclass(frozen=True, slots=True)
class AccountSummary(Earnings):
    """A tenant's money in a book over a period of pool time, in whole hours.

    `earned` and `paid` are all usage of the period, settled or not. `open_earned` and `open_paid`
    are all usage that is not settled yet, also from before the period. `reserved` includes the
    worst case of running terms and `open_paid`. GPU-time is in GPU-hours.
    """

    balance: Decimal
    reserved: Decimal
    credit_limit: Decimal | None
    lent_gpu_h: Decimal
    earned: Decimal
    borrowed_gpu_h: Decimal
    own_gpu_h: Decimal
    paid: Decimal
    open_earned: Decimal
    open_paid: Decimal

    @property
    def reserved_for_open_terms(self) -> Decimal:
        """Return the worst case of the running terms, without the charges of closed terms."""
        return max(ZERO, self.reserved - self.open_paid)

    @property
    def open_net(self) -> Decimal:
        """Return the net amount of the next settlements."""
        return self.open_earned - self.open_paid


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A side of a transfer: the tenant's id and slug; for the operator None and `operator`."""

    tenant_id: int | None
    tenant: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class AccountMove(Earnings):
    """A transfer as one account sees it: its payment and its income.

    `borrowed_gpu_h` is the GPU-time that the account's tenant borrowed, `lent_gpu_h` the GPU-time
    that it lent; None if it did not.
    """

    effective_at: datetime
    transfer: uuid.UUID
    code: str
    pool: str
    hour: datetime | None
    borrower_id: int | None
    earned: Decimal
    paid: Decimal
    borrowed_gpu_h: Decimal | None
    lent_gpu_h: Decimal | None


@dataclass(frozen=True, slots=True)
class LedgerRow(AccountMove):
    """A transfer of an account's ledger, with all its sides."""

    borrower: str
    posted_at: datetime
    late_lines: int
    entries: tuple[LedgerEntry, ...]


def account_summary(tenant_id: int, book: str, *, since: datetime) -> AccountSummary:
    """Return a tenant's money in a book since the hour of an instant of pool time.

    Four queries: account, budget, usage, shares.
    """
    account = account_of(tenant_id, book)
    budget = Budget.objects.filter(book=book, tenant_id=tenant_id).first()
    hour = hour_of(since)
    own_us, borrowed_us, paid, open_paid = _sums(
        _USED, {"tenant": tenant_id, "book": book, "hour": hour}
    )
    # A lender's shares belong to other tenants' lines.
    with site_reading():
        lent_us, earned, open_earned = (
            _sums(_LENT, [hour, hour, account.pk, hour, book]) if account else (0, ZERO, ZERO)
        )
    return AccountSummary(
        balance=account.balance if account else ZERO,
        reserved=budget.reserved if budget else ZERO,
        credit_limit=budget.credit_limit if budget else None,
        lent_gpu_h=gpu_hours(lent_us),
        earned=earned,
        borrowed_gpu_h=gpu_hours(borrowed_us),
        own_gpu_h=gpu_hours(own_us),
        paid=paid,
        open_earned=open_earned,
        open_paid=open_paid,
    )


def gpu_hours(gpu_us: int | Decimal) -> Decimal:
    """Return GPU-microseconds as GPU-hours with six places, for display."""
    return (Decimal(gpu_us) / HOUR_US).quantize(PLACES)


def exact_hours(us: int | Fraction) -> Decimal:
    """Return microseconds, or GPU-microseconds, as hours, rounded once to six places."""
    return Decimal(round(Fraction(us) * 10**6 / HOUR_US)) / 10**6


# Few lines are open: those of the present hour of each pool. Open lines before the period are read
# apart, and only if there may be some: no index has them, because their bound differs by pool.
_LINES = """
        SELECT line.hour, line.meter, line.amount,
               line.gpus * extract(epoch FROM line.ends_at - line.starts_at) * 1000000 AS gpu_us,
               line.hour >= cursor.settled_until AS is_open
        FROM billing_usageline line
        JOIN scheduling_pool pool ON pool.id = line.pool_id
        JOIN billing_metercursor cursor ON cursor.pool_id = line.pool_id
        WHERE line.tenant_id = %(tenant)s AND pool.book = %(book)s
"""
_USED = f"""
    SELECT coalesce(sum(gpu_us) FILTER (WHERE hour >= %(hour)s AND meter = 'own'), 0),
           coalesce(sum(gpu_us) FILTER (WHERE hour >= %(hour)s AND meter = 'borrowed'), 0),
           coalesce(sum(amount) FILTER (WHERE hour >= %(hour)s), 0.000000),
           coalesce(sum(amount) FILTER (WHERE is_open), 0.000000)
    FROM (
        {_LINES} AND line.hour >= %(hour)s
        UNION ALL
        {_LINES} AND line.hour >= cursor.settled_until AND line.hour < %(hour)s
            AND EXISTS (SELECT FROM billing_metercursor late WHERE late.settled_until < %(hour)s)
    ) used
"""  # noqa: S608 - a constant of this file
_LENT = """
    SELECT coalesce(sum(lent_gpu_us) FILTER (WHERE hour >= %s), 0),
           coalesce(sum(amount) FILTER (WHERE hour >= %s), 0.000000),
           coalesce(sum(amount) FILTER (WHERE is_open), 0.000000)
    FROM (
        SELECT share.hour, share.lent_gpu_us, share.amount,
               share.hour >= cursor.settled_until AS is_open
        FROM billing_usageshare share
        JOIN billing_usageline line ON line.id = share.line_id
        JOIN billing_metercursor cursor ON cursor.pool_id = line.pool_id
        WHERE share.account_id = %s
          AND share.hour >= least(%s, (
                  SELECT min(cursor.settled_until)
                  FROM billing_metercursor cursor
                  JOIN scheduling_pool pool ON pool.id = cursor.pool_id
                  WHERE pool.book = %s))
    ) lent
"""


def _sums(
    sql: str, params: Sequence[int | str | datetime] | Mapping[str, int | str | datetime]
) -> tuple[Decimal, ...]:
    (row,) = fetch_rows(sql, params)
    return row


def ledger_page(
    tenant_id: int | None,
    book: str,
    *,
    before: int | None = None,
    limit: int = 50,
    period: tuple[datetime, datetime] | None = None,
) -> tuple[list[LedgerRow], int | None]:
    """Return a page of transfers of a tenant's account, or the operator's if `tenant_id` is None.

    The transfers are newest first. The key is where the next page starts; None on the last page.
    `period`: only the transfers of [since, until) of pool time.

    Five queries: account, its entries, all entries of their transfers, the transfers, its lending.
    """
    account = account_of(tenant_id, book)
    if account is None:
        return [], None
    mine = Entry.objects.filter(account=account).order_by("-pk")
    if before is not None:
        mine = mine.filter(pk__lt=before)
    if period is not None:
        since, until = period
        mine = mine.filter(transfer__effective_at__gte=since, transfer__effective_at__lt=until)
    # An account has at most two entries in a transfer, with adjacent keys.
    newest = mine.values_list("transfer_id", "pk")[: 2 * limit + 2]
    keys: dict[uuid.UUID, int] = dict(newest)
    shown = list(keys.items())[:limit]
    more = len(keys) > limit
    rows = rows_of_transfers([transfer for transfer, _ in shown], account)
    return [rows[transfer] for transfer, _ in shown], shown[-1][1] if more else None


def ledger_row(transfer_id: uuid.UUID, *, tenant_id: int | None) -> LedgerRow | None:
    """Return a transfer as a tenant sees it, or None if it does not touch the tenant's account."""
    account = _accounts_of(tenant_id).filter(entries__transfer_id=transfer_id).first()
    return rows_of_transfers([transfer_id], account).get(transfer_id) if account else None


def account_of(tenant_id: int | None, book: str) -> Account | None:
    """Return a tenant's account in a book if it exists; with `tenant_id` None the operator's."""
    return _accounts_of(tenant_id).filter(book__slug=book).first()


def _accounts_of(tenant_id: int | None) -> QuerySet[Account]:
    if tenant_id is None:
        return Account.objects.filter(kind=Account.Kind.OPERATOR)
    return Account.objects.filter(tenant_id=tenant_id)


def rows_of_transfers(transfers: list[uuid.UUID], account: Account) -> dict[uuid.UUID, LedgerRow]:
    """Return an account's transfers with all their sides, including other accounts' sides.

    The fifty transfers of a page may have a thousand sides, so only the shown columns are read.
    """
    sides: dict[uuid.UUID, list[LedgerEntry]] = defaultdict(list)
    entries = Entry.objects.filter(transfer_id__in=transfers).order_by("account__tenant_id", "pk")
    columns = ("transfer_id", "account__tenant_id", "account__tenant__slug", "amount")
    stored = Transfer.objects.filter(pk__in=transfers).select_related("pool", "tenant")
    with site_reading():
        for transfer_id, tenant_id, slug, amount in entries.values_list(*columns):
            sides[transfer_id].append(LedgerEntry(tenant_id, slug or "operator", amount))
        by_key = stored.in_bulk()
        lent = _lent(account, list(by_key.values()))
    return {
        key: _ledger_row(by_key[key], rows, account, lent.get(_usage(by_key[key])))
        for key, rows in sides.items()
    }


Usage = tuple[int | None, int | None, datetime | None]  # pool, borrower, hour


def _usage(transfer: Transfer) -> Usage:
    return transfer.pool_id, transfer.tenant_id, transfer.hour


def _lent(account: Account, transfers: list[Transfer]) -> dict[Usage, int]:
    """Return the GPU-microseconds that an account lent, by settlement (pool, borrower, hour).

    A single query.
    """
    hours = {transfer.hour for transfer in transfers if transfer.hour is not None}
    shares = UsageShare.objects.filter(account=account, hour__in=hours)
    sums = shares.values_list("line__pool_id", "line__tenant_id", "hour").annotate(
        lent=Sum("lent_gpu_us")
    )
    return {(pool, tenant, hour): lent for pool, tenant, hour, lent in sums}


def _ledger_row(
    transfer: Transfer, entries: list[LedgerEntry], account: Account, lent_us: int | None
) -> LedgerRow:
    mine = [entry.amount for entry in entries if entry.tenant_id == account.tenant_id]
    borrows = transfer.hour is not None and transfer.tenant_id == account.tenant_id
    return LedgerRow(
        transfer=transfer.pk,
        code=transfer.code,
        pool=transfer.pool.name if transfer.pool else "",
        borrower_id=transfer.tenant_id,
        borrower=transfer.tenant.slug if transfer.tenant else "",
        hour=transfer.hour,
        effective_at=transfer.effective_at,
        posted_at=transfer.posted_at,
        paid=-sum((amount for amount in mine if amount < 0), ZERO),
        earned=sum((amount for amount in mine if amount > 0), ZERO),
        borrowed_gpu_h=gpu_hours(transfer.data.get("borrowed_gpu_us", 0)) if borrows else None,
        lent_gpu_h=None if lent_us is None else gpu_hours(lent_us),
        late_lines=transfer.data.get("late_lines", 0),
        entries=tuple(entries),
    )
