"""Rarer garbage collection in long runs, which create millions of objects without cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG, MIDDLE, OLD = 100_000, 50, 100  # Python's defaults are 700, 10 and 10


@contextmanager
def rare_collections() -> Iterator[None]:
    """Search for cycles a hundred times less often inside the block, and ignore older objects.

    A simulation keeps all its leases and terms, so each search checks more objects and finds no
    cycle. Without this block, the searches take about a fifteenth of its CPU time. They affect only
    memory and time, never a decision. If the process has frozen its imports, they stay frozen.
    """
    before = gc.get_threshold()
    is_frozen = gc.get_freeze_count() > 0
    if not is_frozen:
        gc.collect()
        gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not is_frozen:
            gc.unfreeze()
