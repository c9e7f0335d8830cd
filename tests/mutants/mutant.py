"""A change of the code that a test must detect."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A change of `file`: `old`, which occurs once, becomes `new`, and one of `tests` must fail."""

    id: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    database: bool = False


def pure(id_: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """Return a mutant that tests without a database detect."""
    return Mutant(id_, file, old, new, tests)


def stored(id_: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """Return a mutant that tests with a database detect."""
    return Mutant(id_, file, old, new, tests, database=True)
