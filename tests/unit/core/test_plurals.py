"""Test the plural forms of nouns after numbers."""

from __future__ import annotations

import pytest

from evenshare_core.domain.plurals import plural


@pytest.mark.parametrize(
    ("count", "forms", "expected"),
    [
        (0, ("job",), "0 jobs"),
        (1, ("job",), "1 job"),
        (1200, ("job",), "1,200 jobs"),
        (1, ("entry", "entries"), "1 entry"),
        (2, ("entry", "entries"), "2 entries"),
    ],
)
def test_plural_uses_singular_for_one(count: int, forms: tuple[str, ...], expected: str) -> None:
    assert plural(count, *forms) == expected
