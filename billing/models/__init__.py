"""Tables of money: books, accounts, transfers, prices, usage, and logged transfers."""

from billing.models.books import (
    LIMIT,
    Account,
    Book,
    CreditField,
    Entry,
    MeterCursor,
    PostedPrice,
    Transfer,
    TransferRequest,
    UsageLine,
    UsageShare,
)
from billing.models.logs import LoggedTransfer

APPEND_ONLY = (
    "billing_transfer",
    "billing_entry",
    "billing_loggedtransfer",
    "billing_postedprice",
    "billing_usageline",
    "billing_usageshare",
)
