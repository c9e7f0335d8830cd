"""Fewer searches for cycles while a long run makes values by the million and no cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG, MIDDLE, OLD = 100_000, 50, 100  # Python's own are 700, 10 and 10


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for cycles a hundred times less often inside; what is there before is left out.

    A simulation keeps all of its leases and terms, so each search walks more and finds nothing:
    about a fifteenth of its CPU. Only memory and time depend on it, never what is decided.
    A process that has frozen what it imported keeps that.
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
