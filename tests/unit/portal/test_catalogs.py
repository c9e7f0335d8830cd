"""Catalogues contain the texts of today's pages, and translations that fit them."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from babel.messages.pofile import read_po

from portal.site.catalogs import PageText, compiled, messages, updated
from portal.site.script_texts import TEXTS
from portal.site.settings import BASE_DIR, LOCALE_PATHS, TRANSLATED

# A place may select a word by its number: "{free:was|were}".
PLACES = re.compile(r"%\(\w+\)s|\{\w+(?=[!:}])|</?\w+")
CASES = [(Path(folder), language) for folder in LOCALE_PATHS for language in TRANSLATED]
by_catalogue = pytest.mark.parametrize(
    ("folder", "language"), CASES, ids=[f"{folder.parent.name}-{code}" for folder, code in CASES]
)


def stored(folder: Path, language: str) -> Path:
    return folder / language / "LC_MESSAGES" / "django.po"


def fits(translated: str, text: str) -> bool:
    """Return whether a text is translated, with the same values and markup."""
    return bool(translated) and sorted(PLACES.findall(translated)) == sorted(PLACES.findall(text))


@by_catalogue
class TestStoredCatalogue:
    def test_has_texts_of_its_pages(self, folder: Path, language: str) -> None:
        path = stored(folder, language)
        # `make catalogs` writes both files.
        assert updated(path.read_bytes(), language, messages(folder.parent)) == path.read_bytes()
        assert compiled(path.read_bytes(), language) == path.with_suffix(".mo").read_bytes()

    def test_is_complete_and_keeps_values_and_markup(self, folder: Path, language: str) -> None:
        wrong: list[object] = []
        for entry in read_po(io.BytesIO(stored(folder, language).read_bytes()), locale=language):
            ids = (entry.id,) if isinstance(entry.id, str) else entry.id
            texts = (entry.string,) if isinstance(entry.string, str) else entry.string or ("",)
            wrong += [
                (ids, text)
                for text in texts
                if ids[0] and not any(fits(text, form) for form in ids)
            ]
        assert not wrong


class TestCatalogues:
    @pytest.mark.parametrize("language", TRANSLATED)
    def test_translate_a_text_alike(self, language: str) -> None:
        """Django merges all catalogues, so a second translation of a text is lost."""
        known: dict[object, set[object]] = {}
        for folder in map(Path, LOCALE_PATHS):
            for entry in read_po(io.BytesIO(stored(folder, language).read_bytes()), language):
                text = (entry.context, entry.id if isinstance(entry.id, str) else entry.id[:1])
                if entry.id:
                    known.setdefault(text, set()).add(entry.string)
        assert not {text: found for text, found in known.items() if len(found) > 1}


class TestUpdate:
    def test_keeps_translations_and_removes_unused_texts(self) -> None:
        old = updated(b"", "de", [PageText("a.py", "Jobs"), PageText("a.py", "Gone")])
        old = old.replace(b'msgid "Jobs"\nmsgstr ""', b'msgid "Jobs"\nmsgstr "Auftr\xc3\xa4ge"')
        new = updated(old, "de", [PageText("a.py", "Jobs"), PageText("", ("job", "jobs"))])
        assert "Aufträge" in new.decode()
        assert b"Gone" not in new
        assert b'msgid_plural "jobs"' in new


class TestScripts:
    def test_use_only_listed_texts(self) -> None:
        used = set()
        for path in (BASE_DIR / "static").glob("*.js"):
            for call in re.findall(
                r"[ (]text\((?:[^\"?;]*\?\s*)?((?:\"[^\"]*\"(?: : )?)+)", path.read_text()
            ):
                used |= set(re.findall(r'"([^"]*)"', call))
        assert used == set(TEXTS)
