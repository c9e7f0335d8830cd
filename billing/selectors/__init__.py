"""Read-only queries for the meter, the checks and the pages.

This package exports the names that pages use; `tests/integration/test_ledger_selectors.py` pins
their queries.
"""

from billing.selectors.accounts import (
    AccountSummary,
    LedgerEntry,
    LedgerRow,
    account_summary,
    ledger_page,
    ledger_row,
)
from billing.selectors.prices import (
    PriceRow,
    every_price,
    has_prices,
    posted_prices,
    price_history,
    price_in_round,
    prices_now,
)
from billing.selectors.statements import (
    LATE,
    CounterpartyTotal,
    PeriodTotal,
    Statement,
    StatementLine,
    StatementPeriod,
    account_statement,
    statement_lines,
)
from billing.selectors.usage import (
    LenderShare,
    TermCharge,
    find_transfer,
    job_charges,
)

__all__ = [
    "LATE",
    "AccountSummary",
    "CounterpartyTotal",
    "LedgerEntry",
    "LedgerRow",
    "LenderShare",
    "PeriodTotal",
    "PriceRow",
    "Statement",
    "StatementLine",
    "StatementPeriod",
    "TermCharge",
    "account_statement",
    "account_summary",
    "every_price",
    "find_transfer",
    "has_prices",
    "job_charges",
    "ledger_page",
    "ledger_row",
    "posted_prices",
    "price_history",
    "price_in_round",
    "prices_now",
    "statement_lines",
]
