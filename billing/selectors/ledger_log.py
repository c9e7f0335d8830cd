"""Transfers in the log of their book, and the data that their digests cover."""

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef

from billing.models import Book, Entry, LoggedTransfer, Transfer
from evenshare_core.chain.records import TransferBody
from evenshare_core.domain.instants import to_us
from evenshare_core.money.fixed_point import to_micro


class LoggedRow(NamedTuple):
    """A logged transfer: its place in the log, and its salt."""

    number: int
    transfer_id: UUID
    salt: bytes


def book_named(slug: str) -> Book | None:
    return Book.objects.filter(slug=slug).first()


def pending_transfers(book_id: int, *, since: datetime | None, limit: int) -> list[UUID]:
    """Return transfers of a book that are not in its log, in the order of posting.

    `since` skips transfers posted earlier, so that the cost depends only on new ones.
    """
    there = LoggedTransfer.objects.filter(transfer_id=OuterRef("pk"))
    rows = Transfer.objects.filter(~Exists(there), book_id=book_id)
    if since is not None:
        rows = rows.filter(posted_at__gte=since)
    return list(rows.order_by("posted_at", "pk").values_list("pk", flat=True)[:limit])


def logged_rows(book_id: int, first: int, count: int) -> list[LoggedRow]:
    """Return the transfers in a book's log, by their places from `first` on."""
    rows = LoggedTransfer.objects.filter(
        book_id=book_id, number__gte=first, number__lt=first + count
    )
    return [
        LoggedRow(number, transfer, bytes(salt))
        for number, transfer, salt in rows.order_by("number").values_list(
            "number", "transfer_id", "salt"
        )
    ]


def transfer_bodies(ids: Collection[UUID]) -> dict[UUID, TransferBody]:
    """Return the data that digests of transfers cover, by id, without missing ones. Two queries."""
    entries: dict[UUID, list[tuple[int, int]]] = defaultdict(list)
    for transfer, account, amount in Entry.objects.filter(transfer_id__in=ids).values_list(
        "transfer_id", "account_id", "amount"
    ):
        entries[transfer].append((account, to_micro(amount)))
    rows = Transfer.objects.filter(pk__in=ids).select_related("book")
    return {row.pk: _body(row, entries[row.pk]) for row in rows}


def _body(row: Transfer, entries: Sequence[tuple[int, int]]) -> TransferBody:
    return TransferBody(
        id=str(row.pk),
        book=row.book.slug,
        code=row.code,
        pool=row.pool_id or 0,
        tenant=row.tenant_id or 0,
        hour_us=to_us(row.hour) if row.hour else None,
        corrects=str(row.corrects_id) if row.corrects_id else "",
        effective_us=to_us(row.effective_at),
        posted_us=to_us(row.posted_at),
        data=json.dumps(row.data, sort_keys=True, separators=(",", ":")),
        body_sha256=row.body_sha256,
        entries=tuple(sorted(entries)),
    )
