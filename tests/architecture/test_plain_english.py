"""Test that prose is plain English: short sentences, no phrases that readers had to reread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.prose import (
    Text,
    document_texts,
    python_texts,
    sentences,
    template_texts,
    words,
)
from tests.architecture.sources import PACKAGES, files, name_of

LONGEST = 25
NO_NOUN = "(?:and|or|in|for|that|by|to|with|on|at|from|is|are)"
# A phrase, and what to write instead.
PHRASES = {
    r"so many": "the number itself: `n GPUs`, `as many as`",
    r"(?<!that )(?:is|are) there(?! (?:a|an|any|no)\b)(?!\?)": "`there is`, or `exists`",
    r"where (?:there )?(?:is|are|was|were) (?:none|nothing|nobody)": "`if there is no <noun>`",
    r"(?:by|in|of|with) a word of": "the word itself",
    r"tells?|told|telling": "report, show, state, distinguish",
    r"hold(?:s|ing)? (?:\w+ )?against|held against": "compare with",
    r"let(?! \w{1,3} )|lets|letting": "allow",
    r"begun": "started",
    r"anew": "again, or rebuilt",
    r"looks? at|looked at|looking at": "check, read, poll",
    r"who(?:ever|m)|nobody|somebody|anybody|whichever": "the noun: the user, the caller, no job",
    r"stands?|stood(?! for)": "is",
    r"beside|besides|aside": "next to, with, in addition",
    r"alone|alike": "only; equally",
    rf"of (?:its|their|one's|your) own(?=$|\W*[.,;:)]| {NO_NOUN}\b)": "`its own <noun>`",
    r"one's": "the noun: the tenant's, the job's",
    r"as it is|as they are|which is so": "unchanged, or the fact itself",
    r"at all times": "always",
    r"in all(?! \w)": "in total",
    r"passed over|passes over": "skip",
}
# `None` is a value: its condition follows with `if`.
NONE = re.compile(r"\bNone(?:: | where | for (?:no|none)\b)")
RIDDLE = re.compile(r"(?:What|Who|Whose|Whom|How|Where|Since|Those|That|One)\b(?!.*\?)")
BANNED = {
    re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE): instead for phrase, instead in PHRASES.items()
}


def faults(text: Text) -> Iterator[str]:
    """Yield the faults of each sentence of a text."""
    for sentence in sentences(text.text):
        # Documents list alternatives in one sentence, with semicolons.
        clauses = sentence.split(";") if text.kind == "document" else [sentence]
        longest = max(map(words, clauses))
        if longest > LONGEST:
            yield f"{longest} words, at most {LONGEST}: {sentence}"
        for phrase, instead in BANNED.items():
            if match := phrase.search(sentence):
                yield f"{match[0]!r}; write {instead}: {sentence}"
        if text.kind in {"docstring", "comment"}:
            if NONE.search(sentence):
                yield f"write `None if ...`: {sentence}"
            if RIDDLE.match(sentence):
                yield f"start with the subject or the verb: {sentence}"


def texts(path: Path) -> Iterator[Text]:
    if path.suffix == ".py":
        return python_texts(path)
    return document_texts(path) if path.suffix == ".md" else template_texts(path)


def read(*prefixes: str, suffix: str) -> list[str]:
    return [
        f"{name_of(path)}:{text.line} {fault}"
        for path in files()
        if path.suffix == suffix and name_of(path).startswith(prefixes)
        if "/migrations/" not in name_of(path)
        for text in texts(path)
        for fault in faults(text)
    ]


class TestProse:
    @pytest.mark.parametrize("package", [*PACKAGES, "deploy", "examples", "tests"])
    def test_of_code_is_plain(self, package: str) -> None:
        assert read(f"{package}/", suffix=".py") == []

    def test_of_documents_is_plain(self) -> None:
        assert read("", suffix=".md") == []

    def test_of_pages_is_plain(self) -> None:
        assert read("templates/", suffix=".html") == []


class TestFaultDetection:
    @pytest.mark.parametrize(
        "said",
        [
            "None where all are sealed.",
            "The quota grows by so many GPUs.",
            "What a row says.",
            "Whoever asks is refused.",
            " ".join(["word"] * 26) + ".",
        ],
    )
    def test_finds_unclear_phrases(self, said: str) -> None:
        assert list(faults(Text("docstring", 1, said)))

    @pytest.mark.parametrize(
        "said",
        [
            "Returns None if all rounds are sealed.",
            "Why does my job wait? Its tenant's quota is used.",
            " ".join(["word"] * 25) + ".",
        ],
    )
    def test_accepts_plain_text(self, said: str) -> None:
        assert list(faults(Text("docstring", 1, said))) == []
