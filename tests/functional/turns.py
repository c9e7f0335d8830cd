"""Long loops in turns: `make test` runs the first turn, `make test-rest` the others.

A test with the parameter `turn` goes through all of its rows in each turn, with another part of
what is tried on each row. Over all turns everything is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

TURNS = 4

One = TypeVar("One")


def dealt(things: Sequence[One], row: int, turn: int) -> list[One]:
    """A fourth of what is tried on a row, another one in each turn, and on the next row."""
    return [one for place, one in enumerate(things) if (place + row + turn) % TURNS == 0]


def some_turns(count: int) -> list[Any]:
    """Values of the parameter `turn`: the first `count` turns; `make soak` runs the others."""
    return [
        pytest.param(turn, marks=[pytest.mark.soak] if turn >= count else [])
        for turn in range(TURNS)
    ]
