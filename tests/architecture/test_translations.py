"""Areas whose pages are translated have no text outside of translations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.site.catalogs import templates

from .prose import HIDDEN, TAG, VALUE
from .sources import ROOT, name_of, tree

# Areas with all texts in their catalogues. The others follow.
DONE = ("front",)
BLOCK = re.compile(r"{% blocktrans.*?endblocktranslate %}", re.DOTALL)
QUOTED = re.compile(r"<(code|pre|kbd)\b.*?</\1>", re.DOTALL)
ATTRIBUTE = re.compile(r'\s(?:title|aria-label|placeholder|alt)="([^"{]*[A-Za-z]{2}[^"{]*)"')
LETTERS = re.compile(r"[A-Za-z]{2,}")
UNIT = re.compile(r"\b(?:GPU-h|GPUs?|UTC|rho|min)\b")
URL = re.compile(r"^[/?&#]|=$")
TRANSLATING = {"_", "gettext", "ngettext", "plural", "reverse"}


def loose_texts(path: Path) -> Iterator[str]:
    """Yield the texts of a template that no tag translates."""
    source = BLOCK.sub("", HIDDEN.sub("", path.read_text("utf-8")))
    yield from ATTRIBUTE.findall(source)
    for part in re.split("\0", TAG.sub("\0", VALUE.sub("", QUOTED.sub("", source)))):
        if LETTERS.search(part):
            yield " ".join(part.split())


def loose_strings(path: Path) -> Iterator[str]:
    """Yield the texts of a module that no function translates.

    A text has a space or a capital, or is next to a value. Keys, units and URLs are none.
    """
    inside = {
        id(part)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in _shown(tree(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = UNIT.sub("", node.value).strip()
            has_form = " " in text or text[:1].isupper() or id(node) in inside
            if LETTERS.search(text) and has_form and not URL.search(text):
                yield text


def _shown(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree without docstrings and without arguments of translations."""
    for child in ast.iter_child_nodes(node):
        is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        is_translated = isinstance(child, ast.Call) and getattr(child.func, "id", "") in TRANSLATING
        if not is_docstring and not is_translated:
            yield child
            yield from _shown(child)


class TestDetection:
    def test_sees_text_and_attributes(self, tmp_path: Path) -> None:
        page = tmp_path / "page.html"
        page.write_text(
            '<b title="A word">{% translate "Fine" %} loose {{ x }}</b><code>fine</code>'
            "{% blocktranslate %}Fine {{ x }}{% endblocktranslate %}{# fine #}"
        )
        assert list(loose_texts(page)) == ["A word", "loose"]

    def test_sees_strings(self, tmp_path: Path) -> None:
        module = tmp_path / "module.py"
        module.write_text(
            '"""Fine."""\nx = [_("Fine"), "Loose", f"{1} loose", f"{1} GPU-h", reverse("A b")]\n'
        )
        assert list(loose_strings(module)) == ["Loose", "loose"]


@pytest.mark.parametrize("area", DONE)
class TestArea:
    def test_templates_are_translated(self, area: str) -> None:
        paths = templates(area)
        assert paths
        assert not {name_of(path): texts for path in paths if (texts := list(loose_texts(path)))}

    def test_texts_are_translated(self, area: str) -> None:
        paths = sorted((ROOT / "portal" / area).rglob("text*/**/*.py")) or [
            ROOT / "portal" / area / "text.py"
        ]
        assert not {name_of(path): texts for path in paths if (texts := list(loose_strings(path)))}
