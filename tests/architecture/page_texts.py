"""Find the texts of pages that no catalogue has, and translations that cannot work."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from .prose import HIDDEN, TAG, VALUE
from .sources import tree


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


BLOCK = re.compile(r"{% blocktrans.*?endblocktranslate %}", re.DOTALL)
QUOTED = re.compile(r"<(code|pre|kbd)\b.*?</\1>", re.DOTALL)
MARKS = re.compile(r"{{.*?}}|{%.*?%}", re.DOTALL)
ATTRIBUTE = re.compile(r'\s(title|aria-label|placeholder|alt|data-[\w-]+)="([^"]*)"')
# A tag with its arguments; the texts of these tags are translated, or are names.
TAG_CALL = re.compile(r"{% (\w+)(.*?)%}", re.DOTALL)
NO_TEXTS = _set("translate url static load extends command when note icon if elif block")
TAG_TEXT = re.compile(r'(?<![\w"=|:(])(?:(\w+)=)?"([^"]*)"')
NAMES = _set("class css href live_url")
FILTER_TEXT = re.compile(r'\|(?:default|default_if_none|yesno|join|add):"([^"]*)"')

LETTERS = re.compile(r"[A-Za-z]{2,}")
MARKUP = re.compile(r"<[^>]*>?|[\w-]+=\"[^\"]*\"?|&#?\w+;")
# Units, abbreviations, names of products, headers and classes.
CODE = re.compile(
    r"\b(?:Evenshare|Slurm|GPU-h|rho|min|ns|ms|[KMG]iB|[A-Z][A-Z0-9_]+s?|[A-Z]\w*(?:-[A-Z]\w*)+|(?:[A-Z][a-z]+){2,})\b"
)
URL = re.compile(
    r"^[/?&#]|=$|^[\w.-]+/[\w.-]+;|; \w+=|<\w+:\w+>|^(?:evenshare [a-z]+|curl|-[A-Z]) "
)

TRANSLATIONS = _set(
    "gettext gettext_lazy gettext_noop ngettext ngettext_lazy pgettext pgettext_lazy"
)
TRANSLATING = TRANSLATIONS | {"_", "plural"}
# Functions whose texts are names, or are for programs and records.
NAMING = _set(
    "reverse redirect getattr setattr hasattr cast TypeVar NewType compile get_logger get_template"
    " startswith endswith removeprefix removesuffix split partition replace strftime strptime"
    " require_http_methods render_to_string import_module HttpResponse JsonResponse"
    " record_refusal last_record"
)
NAMED = _set("content_type headers file header key kind samesite template_name")
# Errors of programmers, which no page shows.
INNER_ERRORS = _set(
    "TypeError ValueError KeyError LookupError RuntimeError AssertionError NotImplementedError"
    " AttributeError ImproperlyConfigured Http404"
)
# Parts of the syntax without texts: annotations, decorators, keys, formats of values.
NO_SHOWN = _set("annotation returns decorator_list keys format_spec cls")
# The places of texts, which may be single words in lower case.
PLACES = {"StateBadge": (1,), "LineItem": (0,), "Link": (0,), "Note": (0,), "Stat": (0, 2)}
WORDED = _set("text title label button headline deck unit")


def loose_texts(path: Path) -> Iterator[str]:
    """Yield the texts of a template that no tag translates."""
    source = BLOCK.sub("", HIDDEN.sub("", path.read_text("utf-8")))
    for tag, arguments in TAG_CALL.findall(source):
        if tag not in NO_TEXTS:
            yield from _tag_texts(tag, arguments)
    for text in FILTER_TEXT.findall(source):
        if _is_text(text, is_shown=True):
            yield text
    bare = MARKS.sub("", source)
    for name, text in ATTRIBUTE.findall(bare):
        if _is_text(text, is_shown=not name.startswith("data-") or name == "data-label"):
            yield text
    for part in re.split("\0", TAG.sub("\0", VALUE.sub("", QUOTED.sub("", source)))):
        if LETTERS.search(CODE.sub("", part)):
            yield " ".join(part.split())


def _tag_texts(tag: str, arguments: str) -> Iterator[str]:
    """Yield the constants of a tag that are texts. The first one of a state is its kind."""
    skipped = 1 if tag in {"state", "banner"} else 0
    for name, text in TAG_TEXT.findall(arguments)[skipped:]:
        if name not in NAMES and _is_text(text, is_shown=bool(skipped)):
            yield text


def loose_strings(path: Path) -> Iterator[str]:
    """Yield the texts of a module that no function translates, with {} for a value.

    A text has a space or a capital, or is at the place of a text. Keys, units and URLs are none.
    """
    shown = {id(word) for node in ast.walk(tree(path)) for word in _words(node)}
    for node in _shown(tree(path)):
        text = _text(node)
        if text is not None and _is_text(text, is_shown=id(node) in shown):
            yield text


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "{}" for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _is_text(text: str, *, is_shown: bool = False) -> bool:
    text = "" if URL.search(text) else CODE.sub("", MARKUP.sub(" ", text))
    is_sentence = " " in text or text[:1].isupper()
    return bool(LETTERS.search(text)) and (is_shown or is_sentence)


def _words(node: ast.AST) -> Iterable[ast.AST]:
    """Return the arguments of a call that pages show."""
    if not isinstance(node, ast.Call):
        return ()
    places = PLACES.get(_name(node.func), ())
    return [
        *(node.args[place] for place in places if place < len(node.args)),
        *(keyword.value for keyword in node.keywords if keyword.arg in WORDED),
    ]


def _name(function: ast.AST) -> str:
    return str(getattr(function, "id", getattr(function, "attr", "")))


def _shown(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree that may be texts of pages."""
    for child in _children(node):
        if not _is_inner(child):
            yield child
            # The parts of a text are no texts; the values in it may be.
            for part in child.values if isinstance(child, ast.JoinedStr) else [child]:
                if not isinstance(part, ast.Constant):
                    yield from _shown(part)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield child nodes without annotations, decorators, keys and formats of values."""
    is_get = isinstance(node, ast.Call) and _name(node.func) == "get"
    for field, value in ast.iter_fields(node):
        values = value if isinstance(value, list) else [value]
        if field == "slice":
            values = [] if isinstance(value, ast.Constant) else values
        elif field == "args" and is_get:
            values = values[1:]
        if field not in NO_SHOWN:
            yield from (child for child in values if isinstance(child, ast.AST))


def _is_inner(node: ast.AST) -> bool:
    """Return whether a node is a docstring, a translation, a comparison or a program's text."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.MatchValue() | ast.Compare():
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="log"))):
            return True
        case ast.Call(func=function):
            return _name(function) in TRANSLATING | NAMING
        case ast.keyword(arg=name):
            return name in NAMED
        case ast.Raise(exc=ast.Call(func=function)):
            return _name(function) in INNER_ERRORS
    return False


def early_translations(path: Path) -> Iterator[int]:
    """Yield the lines that translate once, at the import, instead of at each request."""
    names = _imported(path)
    for node in _at_import(tree(path)):
        if isinstance(node, ast.Call):
            name = names.get(_name(node.func), "_lazy")
            if not name.endswith(("_lazy", "_noop")):
                yield node.lineno


def glued_translations(path: Path) -> Iterator[int]:
    """Yield the lines that translate a text which no catalogue can have."""
    names = _imported(path)
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and _name(node.func) in names:
            glued = (ast.JoinedStr, ast.BinOp, ast.IfExp)
            if any(isinstance(argument, glued) for argument in node.args[:2]):
                yield node.lineno


def _imported(path: Path) -> dict[str, str]:
    """Return a module's names of the functions that translate."""
    return {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and node.module == "django.utils.translation"
        for alias in node.names
        if alias.name in TRANSLATIONS
    }


def _at_import(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _at_import(child)
