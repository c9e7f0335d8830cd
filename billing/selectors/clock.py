"""The time of a book: that of its pools."""

from __future__ import annotations

from datetime import datetime

from scheduling.engine.clock import read_clock, wall_now
from scheduling.selectors.pools.lines import pools_of_book


def book_now(book: str) -> datetime:
    """Return pool time now of the book's oldest pool; the wall's where no pool charges to it."""
    pools = pools_of_book(book)
    return read_clock(pools[0].id).pool_at if pools else wall_now()
