"""The log of a book's transfers over REST, as that of a pool's rounds (`scheduling.api.chain`)."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from billing.selectors.ledger_log import book_named
from evenshare_core.chain.answers import LogHead
from scheduling.api.base import SchedulingView
from tenants import transparency
from tenants.answers import plain
from tenants.api import logs
from tenants.api.answer_schemas import answer_serializer
from tenants.api.problems import not_there
from tenants.permissions import Action
from tenants.scopes import site_scope


class LedgerLogView(SchedulingView):
    """Finds the logs of books for the caller."""

    def log_of(self, slug: str) -> str:
        """Return the log of a book in which a pool charges that the caller may see.

        Raises:
            Problem: 404.
        """
        with site_scope():
            there = book_named(slug) is not None
        if not there or not (
            self.sees_all(Action.SEE_MONEY) or any(pool.book == slug for pool in self.pools())
        ):
            raise not_there()
        return transparency.ledger_log(slug)


class LedgerHead(LedgerLogView):
    """Where a book's log ends."""

    @extend_schema(operation_id="ledger_chain_show", responses={200: answer_serializer(LogHead)})
    def get(self, request: Request, book: str) -> Response:  # noqa: ARG002 - DRF's signature
        """Show the signed head of the log of a book's transfers, and the keys that sign it."""
        log = self.log_of(book)
        with logs.log_scope():
            return Response(plain(logs.log_head(log)))


class LedgerRecords(LedgerLogView):
    """What a book's log says of transfers."""

    query: ClassVar[tuple[str, ...]] = ("first", "last")

    @extend_schema(
        operation_id="ledger_chain_records",
        responses=logs.RECORDS,
        parameters=[
            logs.number_parameter("first", "The index of the first record; by default 0."),
            logs.number_parameter("last", "The index of the last one; by default the log's last."),
        ],
    )
    def get(self, request: Request, book: str) -> Response:
        """List records of transfers, salted digests alone, oldest first, 500 at most."""
        log = self.log_of(book)
        first = logs.query_number(request, "first", 0)
        last = logs.query_number(request, "last", logs.NUMBER_MAX)
        with logs.log_scope():
            last = min(last, transparency.size(log) - 1)
            count = max(0, min(last - first + 1, logs.RECORDS_MAX))
            entries = transparency.entries(log, first, count)
            after = first + len(entries)
            return logs.records_answer(entries, after if entries and after <= last else None)


class LedgerInclusion(LedgerLogView):
    """That a record is in a book's log."""

    query: ClassVar[tuple[str, ...]] = ("index", "size")

    @extend_schema(
        operation_id="ledger_chain_inclusion",
        responses=logs.INCLUSION,
        parameters=[
            logs.number_parameter("index", "The index of a record.", required=True),
            logs.SIZE,
        ],
    )
    def get(self, request: Request, book: str) -> Response:
        """Prove that a record is in the log of a size (RFC 6962, audit path)."""
        log = self.log_of(book)
        index = logs.query_number(request, "index")
        with logs.log_scope():
            return logs.inclusion_answer(request, log, index, "index")


class LedgerConsistency(LedgerLogView):
    """That a book's log only grew."""

    query: ClassVar[tuple[str, ...]] = ("first", "second")

    @extend_schema(
        operation_id="ledger_chain_consistency",
        responses=logs.CONSISTENCY,
        parameters=[logs.FIRST, logs.SECOND],
    )
    def get(self, request: Request, book: str) -> Response:
        """Prove that the log of `second` entries begins with that of `first` (RFC 6962)."""
        log = self.log_of(book)
        with logs.log_scope():
            return logs.consistency_answer(request, log)
