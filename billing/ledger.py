"""The only writer of transfers and entries.

A transfer is balanced entries over accounts of one book. Its id is derived from its subject, so a
repeated post returns the posted transfer. The same id with a different body is an error. A posted
transfer is never changed: a correction is a new transfer that names its source
(`billing.services.corrections`). The database enforces the same rules
(billing/migrations/0001_guards.sql).
"""

import hashlib
import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import connection, transaction

from billing.models import Account, Book, Transfer
from evenshare_core.money.fixed_point import to_credits, to_micro
from tenants.models import Budget
from tenants.scopes import site_scope

NAMESPACE = uuid.UUID("6f3b8a0e-6d5c-5a43-9d0b-4c1f5f0d7a11")


class LedgerError(Exception):
    """A transfer that must not be posted."""


class UnbalancedError(LedgerError):
    """The entries do not sum to zero, or there are fewer than two."""


class ConflictError(LedgerError):
    """The id belongs to a transfer with a different body."""


class CreditLimitError(LedgerError):
    """The transfer would take an account below its credit limit."""


@dataclass(frozen=True, slots=True)
class Posting:
    """A transfer to post: `entries` are (account id, micro-credits), negative for payments."""

    id: uuid.UUID
    book_id: int
    code: str
    effective_at: datetime
    entries: Sequence[tuple[int, int]]
    pool_id: int | None = None
    tenant_id: int | None = None
    hour: datetime | None = None
    corrects_id: uuid.UUID | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def body_sha256(self) -> str:
        """Return the hash over everything except the id, independent of the order of entries."""
        body = {
            "book": self.book_id,
            "code": self.code,
            "effective_at": self.effective_at.isoformat(),
            "entries": sorted(self.merged()),
            "pool": self.pool_id,
            "tenant": self.tenant_id,
            "hour": self.hour.isoformat() if self.hour else None,
            "corrects": str(self.corrects_id) if self.corrects_id else None,
            "data": self.data,
        }
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def merged(self) -> list[tuple[int, int]]:
        """Return an entry per account and side, without zeros, so paid and earned stay separate."""
        sums: dict[tuple[int, bool], int] = defaultdict(int)
        for account, micro in self.entries:
            sums[account, micro > 0] += micro
        return [(account, micro) for (account, _), micro in sorted(sums.items()) if micro]


def transfer_id(*parts: object) -> uuid.UUID:
    """Return the id for these parts (book, pool, borrower, hour, code, ...)."""
    return uuid.uuid5(NAMESPACE, "/".join(str(part) for part in parts))


def post_transfer(posting: Posting) -> Transfer:
    """Post a transfer, or return the posted one with the same id and body.

    Raises:
        UnbalancedError, ConflictError, CreditLimitError: nothing was posted.
    """
    post_transfers([posting])
    return Transfer.objects.get(pk=posting.id)


def post_transfers(postings: Sequence[Posting]) -> int:
    """Post all transfers or none; return how many were new.

    Raises:
        UnbalancedError, ConflictError, CreditLimitError: nothing was posted.
    """
    for posting in postings:
        _guard_balanced(posting)
    with transaction.atomic():
        fresh = _insert_transfers(postings)
        _guard_known(postings, fresh)
        new = [posting for posting in postings if posting.id in fresh]
        if new:
            _move(new)
    return len(new)


def allowance_id(book: Book, tenant_id: int, name: str) -> uuid.UUID:
    """Return the id of the allowance of this name, posted or not."""
    return transfer_id(book.slug, "allowance", tenant_id, name)


def late_start_id(book: Book, pool_id: int, subject: tuple[int, int]) -> uuid.UUID:
    """Return the id of the credit for a late start; `subject` has the job and the promise."""
    return transfer_id(book.slug, pool_id, *subject, Transfer.Code.LATE_START.value)


def post_allowance(
    *,
    book: Book,
    tenant_id: int,
    amount_micro: int,
    effective_at: datetime,
    name: str,
    reason: str = "",
) -> Transfer:
    """Post credits from the operator to a tenant, once per (book, tenant, name)."""
    with site_scope():
        accounts = open_accounts(book, [tenant_id])
        return post_transfer(
            Posting(
                id=allowance_id(book, tenant_id, name),
                book_id=book.pk,
                code=Transfer.Code.ALLOWANCE,
                effective_at=effective_at,
                entries=[(accounts[0], -amount_micro), (accounts[tenant_id], amount_micro)],
                tenant_id=tenant_id,
                data={"name": name} | ({"reason": reason} if reason else {}),
            )
        )


def post_gift(
    *,
    book: Book,
    giver_id: int,
    receiver_id: int,
    amount_micro: int,
    effective_at: datetime,
    request: uuid.UUID,
) -> Transfer:
    """Move credits from one tenant to another, once per request.

    Raises:
        CreditLimitError: the giver's limit and reserved credits do not allow it.
    """
    with site_scope():
        accounts = open_accounts(book, [giver_id, receiver_id])
        return post_transfer(
            Posting(
                id=transfer_id(book.slug, Transfer.Code.TRANSFER.value, request),
                book_id=book.pk,
                code=Transfer.Code.TRANSFER,
                effective_at=effective_at,
                entries=[
                    (accounts[giver_id], -amount_micro),
                    (accounts[receiver_id], amount_micro),
                ],
                tenant_id=giver_id,
                data={"request": str(request)},
            )
        )


def open_book(slug: str) -> Book:
    """Return or create the book of this name: `main` at scale 1, others for scaled pools."""
    real = slug == "main"
    book, _ = Book.objects.get_or_create(
        slug=slug,
        defaults={
            "currency": "credits" if real else f"{slug} credits",
            "clock_domain": Book.ClockDomain.REAL if real else Book.ClockDomain.SCALED,
        },
    )
    return book


def open_accounts(book: Book, tenant_ids: Iterable[int]) -> dict[int, int]:
    """Return tenant id -> account id, opening missing accounts; 0 is the operator's.

    A tenant's budget is created first, because it sets the account's limit.
    """
    wanted = {0, *tenant_ids}
    known = _accounts(book, wanted)
    missing = wanted - known.keys()
    if missing:
        kinds = {0: Account.Kind.OPERATOR}
        Budget.objects.bulk_create(
            [Budget(tenant_id=tenant, book=book.slug) for tenant in sorted(missing - {0})],
            ignore_conflicts=True,
        )
        Account.objects.bulk_create(
            [
                Account(
                    book=book,
                    kind=kinds.get(tenant, Account.Kind.TENANT),
                    tenant_id=tenant or None,
                )
                for tenant in sorted(missing)
            ],
            # Another worker may have opened one meanwhile.
            ignore_conflicts=True,
        )
        known = _accounts(book, wanted)
    return known


def _accounts(book: Book, wanted: Iterable[int]) -> dict[int, int]:
    rows = Account.objects.filter(book=book).values_list("tenant_id", "id")
    wanted = set(wanted)
    return {tenant or 0: account for tenant, account in rows if (tenant or 0) in wanted}


def _guard_balanced(posting: Posting) -> None:
    entries = posting.merged()
    if any(type(micro) is not int for _, micro in entries):
        raise UnbalancedError(f"transfer {posting.id}: amounts are whole micro-credits")
    total = sum(micro for _, micro in entries)
    if total or len(entries) < 2:
        raise UnbalancedError(f"transfer {posting.id}: {len(entries)} entries sum to {total}")


def _insert_transfers(postings: Sequence[Posting]) -> set[uuid.UUID]:
    """Insert new transfers; wait for a concurrent insert of the same id."""
    rows = [
        (
            posting.id,
            posting.book_id,
            posting.code,
            posting.pool_id,
            posting.tenant_id,
            posting.hour,
            posting.corrects_id,
            posting.effective_at,
            json.dumps(posting.data),
            posting.body_sha256(),
            len(posting.merged()),
        )
        # Sorted by id: two workers that post the same transfers cannot deadlock.
        for posting in sorted(postings, key=lambda posting: posting.id)
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    if not columns:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO billing_transfer (id, book_id, code, pool_id, tenant_id, hour,
                                          corrects_id, effective_at, data, body_sha256,
                                          entry_count)
            SELECT * FROM unnest(%s::uuid[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[],
                                 %s::timestamptz[], %s::uuid[], %s::timestamptz[], %s::jsonb[],
                                 %s::text[], %s::int[])
            ON CONFLICT (id) DO NOTHING
            RETURNING id
            """,
            columns,
        )
        return {transfer for (transfer,) in cursor.fetchall()}


def _guard_known(postings: Sequence[Posting], fresh: set[uuid.UUID]) -> None:
    known = {posting.id: posting for posting in postings if posting.id not in fresh}
    posted = dict(Transfer.objects.filter(pk__in=known).values_list("pk", "body_sha256"))
    for key, posting in known.items():
        if posted[key] != posting.body_sha256():
            raise ConflictError(f"transfer {key} was posted with another body")


def _move(postings: Sequence[Posting]) -> None:
    """Lock the accounts in order, enforce limits, insert entries, update the budgets."""
    change: dict[int, int] = defaultdict(int)
    settled: dict[int, int] = defaultdict(int)
    for posting in postings:
        for account, micro in posting.merged():
            change[account] += micro
            if posting.code == Transfer.Code.USAGE:
                settled[account] += micro
    accounts = Account.objects.select_for_update().filter(pk__in=change).order_by("pk")
    repaid = _hold_limits(list(accounts), change, settled)
    entries = [
        (posting.id, account, to_credits(micro))
        for posting in postings
        for account, micro in posting.merged()
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO billing_entry (transfer_id, account_id, amount)
            SELECT * FROM unnest(%s::uuid[], %s::bigint[], %s::numeric[])
            """,
            [list(column) for column in zip(*entries, strict=True)],
        )
    # Save these after the entries: with a smaller overrun, the old balance would violate the limit.
    for repaying in repaid:
        repaying.save(update_fields=["overrun"])
    _tell_budgets(change, settled)


def _hold_limits(
    accounts: Sequence[Account], change: Mapping[int, int], settled: Mapping[int, int]
) -> list[Account]:
    """Refuse transfers beyond a credit limit, except settlements of GPU-time already used.

    Return the accounts whose overrun shrinks, with the new overrun set but not saved.
    """
    repaid = []
    for account in accounts:
        if account.credit_limit is None:
            continue
        limit = to_micro(account.credit_limit)
        below = max(0, -(to_micro(account.balance) + change[account.pk] + limit))
        given = change[account.pk] - settled[account.pk]
        if below and given < 0:
            raise CreditLimitError(f"account {account.pk} lacks {to_credits(below)} credits")
        # Used GPU-time must be paid, even if no round took the GPUs back in time.
        known, account.overrun = to_micro(account.overrun), to_credits(below)
        if below > known:
            account.save(update_fields=["overrun"])
        elif below < known:
            repaid.append(account)
    return repaid


_LOCK_BUDGETS = """
SELECT budget.id, moved.account_id, budget.spendable, budget.reserved, budget.credit_limit
FROM unnest(%s::bigint[]) AS moved (account_id)
JOIN billing_account a ON a.id = moved.account_id
JOIN billing_book b ON b.id = a.book_id
JOIN tenants_budget budget ON budget.tenant_id = a.tenant_id AND budget.book = b.slug
-- Rounds lock budgets in the order of tenants, too.
ORDER BY budget.tenant_id FOR UPDATE OF budget
"""
_MOVE_BUDGETS = """
UPDATE tenants_budget budget SET spendable = moved.spendable, overrun = moved.overrun
FROM unnest(%s::bigint[], %s::numeric[], %s::numeric[]) AS moved (id, spendable, overrun)
WHERE budget.id = moved.id
"""


def _tell_budgets(change: Mapping[int, int], settled: Mapping[int, int]) -> None:
    """Update `spendable` by the changes of tenants' balances.

    A gift must leave the worst case of running terms covered.
    """
    changed = sorted(account for account, micro in change.items() if micro)
    moved_rows: list[tuple[int, Decimal, Decimal]] = []
    with connection.cursor() as cursor:
        cursor.execute(_LOCK_BUDGETS, [changed])
        for budget, account, spendable, reserved, limit in cursor.fetchall():
            left = to_micro(spendable) + change[account]
            short = 0
            if limit is not None:
                short = max(0, to_micro(reserved) - left - to_micro(limit))
            if short and change[account] < settled[account]:
                lacks = f"account {account} lacks {to_credits(short)} credits: rest is reserved"
                raise CreditLimitError(lacks)
            moved_rows.append((budget, to_credits(left), to_credits(short)))
        if moved_rows:
            cursor.execute(
                _MOVE_BUDGETS, [list(column) for column in zip(*moved_rows, strict=True)]
            )
