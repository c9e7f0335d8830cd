"""Writes the catalogues of translations from the texts of pages, as `make catalogs` does.

`python -m portal.site.catalogs` updates `<language>/LC_MESSAGES/django.po` in each folder of
LOCALE_PATHS, and compiles it to `django.mo`, which Django reads. A new text has an empty
translation, and pages show it in English. A text that no page uses any more is removed. A test
compares the result.

Babel reads and writes catalogues without GNU gettext. Only developers need it.
"""

import ast
import io
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_python
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

from portal.site.core_texts import core_texts, note_names, request_texts, stored_reasons
from portal.site.settings import BASE_DIR, LOCALE_PATHS, TRANSLATED
from portal.site.templates import without_layout

# Functions whose constant arguments are texts.
KEYWORDS = dict.fromkeys(
    ("_", "gettext", "gettext_lazy", "gettext_noop", "ngettext", "ngettext_lazy", "pgettext")
)
HAS_TEXTS = re.compile(rb"gettext|\b_\(")
PLURAL_FILTER = re.compile(r'\|plural:"([^"]+)"')
HEADER = """msgid ""
msgstr ""
"Language: {language}\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Plural-Forms: {plurals}\\n"

"""


class PageText(NamedTuple):
    """A text of a file, with its plural if it has a count, and its context if it has one.

    `file` is empty for a noun or a text of the core, which many files use.
    """

    file: str
    text: str | tuple[str, str]
    context: str | None = None


def messages(area: Path) -> Iterator[PageText]:
    """Yield the texts of an area of pages, in the order of its files. `common` has the tags."""
    folders = [area, BASE_DIR / "portal" / "templatetags"] if area.name == "common" else [area]
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        yield from _extracted(path, path.read_bytes())
    for path in templates(area.name):
        yield from _extracted(path, template_source(path).encode())
    yield from (PageText("", text) for text in _constants(area) if text)
    if area.name == "rounds":
        yield from (PageText("", name, "pick") for name in note_names())
    if area.name == "charts":
        for folder in map(Path, LOCALE_PATHS):
            yield from _nouns(folder.parent)


def _constants(area: Path) -> Iterator[str]:
    """Yield the constants of requests and of the core that pages of an area show."""
    yield from request_texts(".".join(area.relative_to(BASE_DIR).parts))
    if area.name == "scheduling":
        yield from core_texts()
    if area.name == "rounds":
        yield from stored_reasons()


def _nouns(area: Path) -> Iterator[PageText]:
    """Yield the nouns of counts: constant arguments of `portal.charts.figures.plural`."""
    for path in sorted(area.rglob("*.py")):
        source = path.read_bytes()
        if b"plural(" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "plural":
                forms = [str(arg.value) for arg in node.args[1:] if isinstance(arg, ast.Constant)]
                if forms:
                    yield _noun(*forms)
    for path in templates(area.name):
        for noun in PLURAL_FILTER.findall(path.read_text()):
            yield _noun(*noun.split(","))


def _noun(one: str, many: str = "") -> PageText:
    return PageText("", (one, many or f"{one}s"))


def templates(area: str) -> list[Path]:
    """Return the templates of an area of pages. `site` has the frame, `common` the components."""
    folder = BASE_DIR / "templates"
    inside = {"common": ["components"], "site": ["errors", "site"]}.get(area, [area])
    paths = [path for name in inside for path in (folder / name).rglob("*.html")]
    return sorted([*paths, *folder.glob("*.html")] if area == "site" else paths)


def template_source(path: Path) -> str:
    """Return a template as Python source in which texts are arguments of gettext."""
    return str(templatize(without_layout(path.read_text()), origin=str(path)))


def _extracted(path: Path, source: bytes) -> Iterator[PageText]:
    file = path.relative_to(BASE_DIR).as_posix()
    if not HAS_TEXTS.search(source):
        return  # Most modules have no texts, and Babel needs milliseconds for one.
    for call in extract_python(io.BytesIO(source), KEYWORDS, (), {}):
        function = str(call[1])
        arguments: Any = call[2]
        texts: tuple[str, ...] = (arguments,) if isinstance(arguments, str) else arguments or ("",)
        if function == "pgettext":
            if texts[1]:  # A name of a note is no constant.
                yield PageText(file, texts[1], texts[0])
        elif function.startswith("n"):
            yield PageText(file, (texts[0], texts[1]))
        elif texts[0]:
            yield PageText(file, texts[0])


def updated(stored: bytes, language: str, texts: Iterable[PageText]) -> bytes:
    """Return a .po file of the texts, with the translations of the stored one."""
    old = read_po(io.BytesIO(stored), locale=language)
    new = Catalog(locale=language)
    for message in texts:
        known = old.get(message.text, message.context)
        new.add(
            message.text,
            string=known.string if known else None,
            locations=[(message.file, 1)] if message.file else (),
            context=message.context,
        )
    out = io.BytesIO()
    write_po(out, new, width=100, omit_header=True, include_lineno=False)
    head = HEADER.format(language=language, plurals=new.plural_forms)
    return head.encode() + out.getvalue().lstrip()


def compiled(catalogue: bytes, language: str) -> bytes:
    """Return a .po file in the form that Django reads."""
    entries = read_po(io.BytesIO(catalogue), locale=language)
    # The header would have the time of this call.
    entries.creation_date = entries.revision_date = datetime(2026, 1, 1, tzinfo=UTC)
    out = io.BytesIO()
    write_mo(out, entries)
    return out.getvalue()


def main() -> None:
    """Update and compile the catalogues of all areas."""
    for folder in map(Path, LOCALE_PATHS):
        for language in TRANSLATED:
            path = folder / language / "LC_MESSAGES" / "django.po"
            stored = path.read_bytes() if path.exists() else b""
            catalogue = updated(stored, language, messages(folder.parent))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(catalogue)
            path.with_suffix(".mo").write_bytes(compiled(catalogue, language))


if __name__ == "__main__":
    main()
