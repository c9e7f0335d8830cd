"""Reads for the meter, the checks and the pages. Nothing here writes.

What pages use is named here; `tests/integration/test_ledger_selectors.py` pins the queries.
"""

from billing.selectors.accounts import (
    AccountSummary,
    LedgerEntry,
    LedgerPage,
    LedgerRow,
    account_summary,
    ledger_page,
    ledger_row,
)
from billing.selectors.prices import PostedPricePoint, price_history, prices_now
from billing.selectors.usage import (
    LenderIncome,
    LenderShare,
    TermCharge,
    UsageLineItem,
    find_transfer,
    job_charges,
    transfer_incomes,
)

__all__ = [
    "AccountSummary",
    "LedgerEntry",
    "LedgerPage",
    "LedgerRow",
    "LenderIncome",
    "LenderShare",
    "PostedPricePoint",
    "TermCharge",
    "UsageLineItem",
    "account_summary",
    "find_transfer",
    "job_charges",
    "ledger_page",
    "ledger_row",
    "price_history",
    "prices_now",
    "transfer_incomes",
]
