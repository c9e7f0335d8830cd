"""REST views of the log of a book's transfers; those for rounds are in `scheduling.api.chain`."""

from drf_spectacular.types import OpenApiTypes

from billing.selectors.ledger_log import book_named
from evenshare_core.chain.answers import InclusionProof, LogHead, RecordPage
from scheduling.api.base import SchedulingView
from tenants import transparency
from tenants.api import logs
from tenants.api.base import Who
from tenants.api.problems import not_there
from tenants.api.resources import query
from tenants.permissions import Action
from tenants.scopes import site_scope


class LedgerLogView(logs.LogView, SchedulingView):
    who = Who.ANYBODY_SIGNED_IN

    def log_of(self, book: str) -> str:
        """Return the log of a book to which a visible pool charges.

        Raises:
            Problem: 404 if there is no such book.
        """
        with site_scope():
            there = book_named(book) is not None
        if not there or not (
            self.sees_all(Action.SEE_MONEY) or any(pool.book == book for pool in self.pools())
        ):
            raise not_there()
        return transparency.ledger_log(book)


class LedgerHead(LedgerLogView):
    """Show the signed head of the log of a book's transfers, and the keys that sign it."""

    address = "ledgers/<slug:book>/chain"
    operation = "ledger_chain_show"
    answer = LogHead

    def read(self, origin: str) -> LogHead:
        return logs.log_head(origin)


class LedgerRecords(LedgerLogView):
    """List records of transfers, oldest first, at most 500.

    Records have salted digests, not amounts.
    """

    address = "ledgers/<slug:book>/chain/records"
    operation = "ledger_chain_records"
    answer = RecordPage
    parameters = (
        query("first", "The index of the first record; by default 0.", OpenApiTypes.INT),
        query("last", "The index of the last one; by default the log's last.", OpenApiTypes.INT),
    )

    def read(self, origin: str) -> RecordPage:
        first = logs.query_number(self.request, "first", 0)
        last = logs.query_number(self.request, "last", logs.NUMBER_MAX)
        last = min(last, transparency.size(origin) - 1)
        count = max(0, min(last - first + 1, logs.RECORDS_MAX))
        entries = transparency.entries(origin, first, count)
        after = first + len(entries)
        return logs.record_page(entries, after if entries and after <= last else None)


class LedgerInclusion(LedgerLogView):
    """Prove that a record is in the log of a given size (RFC 6962, audit path)."""

    address = "ledgers/<slug:book>/chain/inclusion"
    operation = "ledger_chain_inclusion"
    answer = InclusionProof
    parameters = (
        query("index", "The index of a record.", OpenApiTypes.INT, required=True),
        logs.SIZE,
    )

    def read(self, origin: str) -> InclusionProof:
        index = logs.query_number(self.request, "index")
        return logs.inclusion(self.request, origin, index, "index")


class LedgerConsistency(logs.LogConsistency, LedgerLogView):
    address = "ledgers/<slug:book>/chain/consistency"
    operation = "ledger_chain_consistency"
