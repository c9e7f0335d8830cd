"""Reads the prose of the checkout: docstrings, comments, documents and templates.

Code in backticks counts as one word. Tables, code blocks and lists in documents are not sentences
of their paragraph: each cell and each entry is one text.
"""

from __future__ import annotations

import ast
import html
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.architecture.sources import tree

# Comments that tools read.
DIRECTIVE = re.compile(r"(?:type:|noqa|fmt:|mypy:|ruff:|pragma|!|nosec)")
SENTENCE_END = re.compile(
    r"(?<=[.!?])[)\"']*\s+(?=[A-Z`\"'(*0-9\[])|\n\s*\n|\n\s*[-*] |\n\s*\d+\. "
)
# An abbreviation ends no sentence.
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|cf|vs|Fig|Eq|eq|al|No|p|pp|sec)\.$")
WORD = re.compile(r"[A-Za-z0-9][\w'’.,/%-]*")


class Text(NamedTuple):
    """A paragraph, a comment or a cell, and the line at which it starts."""

    kind: str  # docstring, comment, document or template
    line: int
    text: str


def python_texts(path: Path) -> Iterator[Text]:
    """Yield the docstrings of a file, without their doctests, and its comments by block."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield Text("docstring", node.body[0].lineno, _without_blocks(docstring))
    yield from _comments(path)


def _without_blocks(docstring: str) -> str:
    """Leave out what is laid out by hand: doctests, tables, formulas."""
    lines = [
        "" if line.startswith(("    ", ">>>", "|", "=")) and not _is_continued(line) else line
        for line in docstring.splitlines()
    ]
    return "\n".join(lines)


def _is_continued(line: str) -> bool:
    """An exception or an argument with its description, as in `    KeyError: no such job.`"""
    return re.match(r"    \S[^|=]*: [a-zA-Z]", line) is not None


def _comments(path: Path) -> Iterator[Text]:
    block: list[str] = []
    start = end = 0
    with tokenize.open(path) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.type != tokenize.COMMENT:
                continue
            text = token.string.lstrip("#").strip()
            if DIRECTIVE.match(text):
                continue
            row = token.start[0]
            if block and row == end + 1 and not token.line[: token.start[1]].strip():
                block.append(text)
            else:
                if block:
                    yield Text("comment", start, " ".join(block))
                block, start = [text], row
            end = row
    if block:
        yield Text("comment", start, " ".join(block))


def document_texts(path: Path) -> Iterator[Text]:
    """Yield the paragraphs, headings, entries of lists and cells of tables of a document."""
    paragraph: list[str] = []
    start = 0
    in_code = False
    for number, line in enumerate([*path.read_text("utf-8").splitlines(), ""], 1):
        bare = line.strip()
        if bare.startswith(("```", "~~~")):
            in_code = not in_code
            bare = ""
        elif in_code or bare.startswith(("$$", "<!--", "![")):
            continue
        if re.match(r"[-*] |\d+\. |#+ |>", bare) or not bare or bare.startswith("|"):
            if paragraph:
                yield Text("document", start, " ".join(paragraph))
            paragraph = []
        if bare.startswith("|"):
            for cell in bare.strip("|").split("|"):
                if cell.strip(" -:"):
                    yield Text("document", number, cell.strip())
        elif bare:
            if not paragraph:
                start = number
            paragraph.append(re.sub(r"^(?:[-*]|\d+\.|#+|>) ", "", bare))


def template_texts(path: Path) -> Iterator[Text]:
    """Yield what a template shows between two tags, with X for a value."""
    source = path.read_text("utf-8")
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])  # noqa: E731 - keeps the lines
    source = re.sub(
        r"{#.*?#}|{% comment.*?endcomment %}|<(script|style).*?</\1>", blank, source, flags=re.S
    )
    source = re.sub(r"{{.*?}}", lambda match: "X" + " " * (len(match[0]) - 1), source)
    source = re.sub(r"{%.*?%}", lambda match: "\0" + " " * (len(match[0]) - 1), source, flags=re.S)
    source = re.sub(r"</?(?:a|b|em|strong|code|span|abbr|time|kbd|small)\b[^>]*>", blank, source)
    source = re.sub(r"<[^>]*>", lambda match: "\0" + blank(match)[1:], source, flags=re.S)
    at = 0
    for part in source.split("\0"):
        text = " ".join(html.unescape(part).split())
        if len(WORD.findall(text)) > 1:
            line = source[: at + len(part) - len(part.lstrip())].count("\n") + 1
            yield Text("template", line, text)
        at += len(part) + 1


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, with code, links and formulas as one word each."""
    text = re.sub(r"`+[^`]+`+", "`code`", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\$[^$]+\$|https?://\S+", "`code`", text)
    for paragraph in re.split(r"\n\s*\n|\n\s*[-*] |\n\s*\d+\. |\n(?=\w+:$)", text):
        parts = re.split(r"(?<=[.!?])[)\"']*\s+(?=[A-Z`\"'(*\[])", " ".join(paragraph.split()))
        held = ""
        for part in parts:
            held = f"{held} {part}".strip()
            if not ABBREVIATION.search(held):
                yield held
                held = ""
        if held:
            yield held


def words(sentence: str) -> int:
    return len(WORD.findall(sentence.replace("`code`", "code")))
