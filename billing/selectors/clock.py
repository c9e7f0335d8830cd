"""The time of a book: the pool time of its oldest pool."""

from datetime import datetime

from scheduling.engine.clock import read_clock, wall_now
from scheduling.selectors.pools.lines import pools_of_book


def book_now(book: str) -> datetime:
    """Return pool time now of the book's oldest pool, or wall time if no pool charges to it."""
    pools = pools_of_book(book)
    return read_clock(pools[0].id).pool_at if pools else wall_now()
