"""Read the prose of the checkout: docstrings, comments, documents and templates."""

from __future__ import annotations

import ast
import html
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.architecture.sources import tree

# Directives for tools, which are not prose.
DIRECTIVE = re.compile(r"type:|noqa|fmt:|mypy:|ruff:|pragma|!|nosec")
# Doctests, tables and formulas in a docstring; an exception with its description is prose.
LAID_OUT = re.compile(r" {4}(?!\S[^|=]*: [a-zA-Z])|>>>|\||=")
# In a document, the start of a new text: an entry of a list, a heading, a quotation.
ENTRY = re.compile(r"^(?:[-*]|\d+\.|#+|>) ")
FENCE = ("```", "~~~")
NO_PROSE = ("$$", "<!--", "![")
HIDDEN = re.compile(r"{#.*?#}|{% comment.*?endcomment %}|<(script|style).*?</\1>", re.DOTALL)
INLINE_TAG = re.compile(r"</?(?:a|b|em|strong|code|span|abbr|time|kbd|small)\b[^>]*>")
VALUE = re.compile(r"{{.*?}}")
TAG = re.compile(r"{%.*?%}|<[^>]*>", re.DOTALL)
END = re.compile(r"(?<=[.!?])[)\"'*]*\s+(?=[A-Z`\"'(*\[])")
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|cf|vs|Fig|Eq|eq|al|No|p|pp|sec)\.$")
# Each entry of a list or of a section such as Raises is a paragraph.
PARAGRAPH = re.compile(
    r"\n\s*\n|\n\s*[-*] |\n\s*\d+\. |\n(?=\w+:$)|\n(?= {4}[\w.]+(?:, [\w.]+)*: )"
)
# Code, links and formulas count as one word each.
CODE = re.compile(r"`+[^`]+`+|\$[^$]+\$|https?://\S+")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
# Numbers and the letters of a formula are no words.
WORD = re.compile(r"(?:[A-Za-z][\w'/-]+|[aI])(?![\w'])")


class Text(NamedTuple):
    """A paragraph, a comment, an entry of a list or a cell, and the line at which it starts."""

    kind: str  # docstring, comment, document or template
    line: int
    text: str


def python_texts(path: Path) -> Iterator[Text]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (ast.get_docstring(node) or "").splitlines()
            prose = "\n".join("" if LAID_OUT.match(line) else line for line in lines)
            if prose:
                yield Text("docstring", node.body[0].lineno, prose)
    yield from _comments(path)


def _comments(path: Path) -> Iterator[Text]:
    """Yield comments; consecutive lines are one."""
    block: list[str] = []
    start = 0
    with tokenize.open(path) as source:
        for token in tokenize.generate_tokens(source.readline):
            text = token.string.lstrip("#").strip()
            if token.type != tokenize.COMMENT or DIRECTIVE.match(text):
                continue
            row, column = token.start
            if row != start + len(block) or token.line[:column].strip():
                if block:
                    yield Text("comment", start, " ".join(block))
                block, start = [], row
            block.append(text)
    if block:
        yield Text("comment", start, " ".join(block))


def document_texts(path: Path) -> Iterator[Text]:
    """Yield the texts of a Markdown file, without its code."""
    paragraph: list[str] = []
    start = 0
    for number, line in _prose_lines(path):
        if not line or line.startswith("|") or ENTRY.match(line):
            if paragraph:
                yield Text("document", start, " ".join(paragraph))
            paragraph, start = [], number
        if line.startswith("|"):
            for cell in line.strip("|").split("|"):
                yield Text("document", number, cell.strip())
        elif line:
            paragraph.append(ENTRY.sub("", line, count=1) if not paragraph else line)


def _prose_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines.

    Code and comments count as empty lines, and an empty line follows the last.
    """
    in_code = False
    for number, line in enumerate([*path.read_text("utf-8").splitlines(), ""], 1):
        bare = line.strip()
        if bare.startswith(FENCE):
            in_code = not in_code
        is_prose = not in_code and not bare.startswith((*FENCE, *NO_PROSE))
        yield number, bare if is_prose else ""


def template_texts(path: Path) -> Iterator[Text]:
    """Yield the text between two tags of a template, with X for a value."""
    source = HIDDEN.sub(_blank, path.read_text("utf-8"))
    source = VALUE.sub(lambda match: "X" + _blank(match)[1:], source)
    source = TAG.sub(lambda match: "\0" + _blank(match)[1:], INLINE_TAG.sub(_blank, source))
    line = 1
    for part in source.split("\0"):
        text = " ".join(html.unescape(part).split())
        if words(text) > 1:
            skipped = part[: len(part) - len(part.lstrip())]
            yield Text("template", line + skipped.count("\n"), text)
        line += part.count("\n")


def _blank(match: re.Match[str]) -> str:
    """Return spaces of the same length, with the same line breaks."""
    return re.sub(r"[^\n]", " ", match[0])


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, with code, links and formulas as one word each."""
    text = LINK.sub(r"\1", CODE.sub("`code`", text))
    for paragraph in PARAGRAPH.split(text):
        held = ""
        for part in END.split(" ".join(paragraph.split())):
            held = f"{held} {part}".strip()
            if not ABBREVIATION.search(held):
                yield held
                held = ""
        if held:
            yield held


def words(sentence: str) -> int:
    return len(WORD.findall(sentence))
