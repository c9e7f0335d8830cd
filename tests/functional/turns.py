"""Split long loops into turns: `make test` runs the first turn, `make test-rest` the other turns.

A test with the parameter `turn` visits all its rows in each turn, and tries another part of the
values on each row. Over all turns, every value is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

TURNS = 4

One = TypeVar("One")


def dealt(things: Sequence[One], row: int, turn: int, of: int = TURNS) -> list[One]:
    """Return the part of a row's values for a turn; it differs on the next row."""
    return [one for place, one in enumerate(things) if (place + row + turn) % of == 0]


def some_turns(count: int, of: int = TURNS) -> list[Any]:
    """Return values of `turn`: the first `count` turns; `make soak` runs the other turns."""
    return [
        pytest.param(turn, marks=[pytest.mark.soak] if turn >= count else []) for turn in range(of)
    ]
