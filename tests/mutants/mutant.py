"""A change of the code that a test must see."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """`old` stands once in `file`; with `new` in its place, one of `tests` must fail."""

    id: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    database: bool = False


def pure(id_: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """A mutant that tests without a database see."""
    return Mutant(id_, file, old, new, tests)


def stored(id_: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """A mutant that shows in the database."""
    return Mutant(id_, file, old, new, tests, database=True)
