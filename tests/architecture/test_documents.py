"""Test that every document names its readers in its first line, and is short enough for them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .sources import ROOT, files, name_of
from .test_docs import FENCE

READERS = {
    "auditors",
    "contributors",
    "integrators",
    "operators",
    "researchers who submit jobs",
    "scheduling researchers",
    "tenant admins",
}
# Records have another form, and all contributors read these two.
WITHOUT_READER = {"ARCHITECTURE.md", "CHANGELOG.md"}
FIRST_LINE = re.compile(r"# [^\n]+\n\nFor ([a-z ,]+): \S")
WORDS = 3_000
LIMITS = {"CHANGELOG.md": 4_000, "README.md": 2_000}
DOCUMENTS = [path for path in files() if path.suffix == ".md"]
FOR_READERS = [
    path
    for path in DOCUMENTS
    if not name_of(path).startswith("docs/adr/") and name_of(path) not in WITHOUT_READER
]


def words(text: str) -> int:
    """Count words outside of fenced blocks, without the marks of tables and lists."""
    return sum(any(map(str.isalnum, word)) for word in FENCE.sub("", text).split())


class TestDocument:
    @pytest.mark.parametrize("path", FOR_READERS, ids=name_of)
    def test_names_readers_in_first_line(self, path: Path) -> None:
        match = FIRST_LINE.match(path.read_text(encoding="utf-8"))
        assert match is not None
        assert set(re.split(r", | and ", match[1])) <= READERS

    @pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
    def test_stays_within_word_limit(self, path: Path) -> None:
        assert words(path.read_text(encoding="utf-8")) <= LIMITS.get(name_of(path), WORDS)

    def test_custom_limits_refer_to_existing_files(self) -> None:
        assert all((ROOT / name).is_file() for name in LIMITS)
