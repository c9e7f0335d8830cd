"""Test words after a count, as in "2 tokens act" and "1 token acts", wherever they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from portal.site.catalogs import messages
from portal.site.settings import LOCALE_PATHS

ROOT = Path(__file__).parents[3]
PLACES = {"portal": "*.py", "scheduling": "*.py", "billing": "*.py", "templates": "*.html"}
NOUN = re.compile(r'\|plural:"([^",]+)"|\bplural\([^"\n]*?, "([^"]+)"\)')
TEXT = r"""["']([^"'{}]*)["']"""
# In all three patterns, the singular comes first.
PAIRS = (
    re.compile(r'\|plural(?:ize)?:"([^",]*),([^"]*)"'),
    re.compile(rf"\bplural\([^\"'\n]*?, {TEXT}, {TEXT}\)"),
    re.compile(rf"{TEXT} if (?![^\"'\n]*number)[^\"'\n]* == 1 else {TEXT}"),
)
# Pairs (singular, plural) that differ by more than a final s.
IRREGULAR = {
    ("is", "are"),
    ("was", "were"),
    ("has", "have"),
    ("does", "do"),
    ("goes", "go"),
    ("it", "they"),
    ("it", "them"),
    ("its", "their"),
    ("person", "people"),
    ("policy", "policies"),
    ("process", "processes"),
    ("entry", "entries"),
}
VERBS_OF_ONE = frozenset({"is", "was", "has", "does", "goes"})


def sources() -> Iterator[tuple[str, str]]:
    for folder, kind in PLACES.items():
        for path in sorted((ROOT / folder).rglob(kind)):
            yield path.relative_to(ROOT).as_posix(), path.read_text()


def all_pairs() -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the pairs in sources, and counted nouns of several words in catalogues."""
    for place, text in sources():
        for pattern in PAIRS:
            yield from ((place, match.groups()) for match in pattern.finditer(text))
    for folder in map(Path, LOCALE_PATHS):
        for message in messages(folder.parent):
            if not isinstance(message.text, str) and not message.file and " " in message.text[0]:
                yield folder.parent.name, message.text


def nouns() -> frozenset[str]:
    """Return counted nouns: the last word of each text with a regular `plural`."""
    found = (match for _, text in sources() for match in NOUN.finditer(text))
    return frozenset((match[1] or match[2]).split()[-1] for match in found) | {"error", "other"}


def wrong_words(pair: Sequence[str], known: frozenset[str]) -> list[str]:
    """Return the words of a pair that do not match the count; empty if the pair cannot be compared.

    The first word that differs is a noun or a verb; if the pair is one word, `known` decides. The
    later ones are verbs.
    """
    ones, manys = (words.split() for words in pair)
    if len(ones) != len(manys):
        return []
    words = list(zip(ones, manys, strict=True))
    differ = [(a, b) for a, b in words if a != b]
    wrong = [(a, b) for a, b in words if a == b and a in VERBS_OF_ONE and differ]
    for a, b in differ:
        is_noun = b == f"{a}s" and (len(words) > 1 or a in known) and (a, b) == differ[0]
        is_verb = a == f"{b}s" and (len(words) > 1 or b not in known)
        if not (is_noun or is_verb or (a.lower(), b.lower()) in IRREGULAR):
            wrong.append((a, b))
    return [f"{a}/{b}" for a, b in wrong]


class TestPluralPairs:
    def test_start_with_singular(self) -> None:
        known, pairs = nouns(), list(all_pairs())
        wrong = [f"{place}: {words}" for place, pair in pairs for words in wrong_words(pair, known)]
        assert len(pairs) > 60
        assert not wrong, "\n".join(wrong)

    @pytest.mark.parametrize("pair", ["act,acts", "are,is", "jobs,job", "job goes,jobs goes"])
    def test_check_detects_wrong_order(self, pair: str) -> None:
        assert wrong_words(pair.split(","), frozenset({"job"}))
