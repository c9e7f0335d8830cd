"""A language of accented and longer texts, which shows texts outside of catalogues."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo

from portal.site.catalogs import PageText, messages
from portal.site.settings import LOCALE_PATHS

LANGUAGE = "en-xa"
ACCENTED = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "åƀćđéƒĝĥíĵķļɱñöþǫŕšţûṽŵẋýžÅƁĆĐÉƑĜĤÎĴĶĻṀÑÖÞǪŔŠŢÛṼŴẊÝŽ",
)
# Values, markup and entities, which are the same in all languages. After "{free:" follow the forms
# by count of a text of the core, "was|were}".
KEPT = re.compile(r"(%\(\w+\)s|%%|\{\w*[:}]|</?[a-zA-Z][^>]*>|&#?\w+;)")
LONGER = 0.4
WORD = re.compile(r"[A-Za-z]{3,}")


def accented(text: str) -> str:
    """Return a text with accents and 40 % more letters, and with the same values and markup."""
    parts = KEPT.split(text)
    parts[::2] = [part.translate(ACCENTED) for part in parts[::2]]
    more = range(1, 1 + round(LONGER * sum(map(len, parts[::2]))))
    # Lines can break between these dots, as between words.
    return "".join(parts) + "".join("\N{MIDDLE DOT}" if place % 6 else " " for place in more)


def write_catalogues(folder: Path) -> Path:
    """Write one catalogue with all texts of all areas; return its folder, for `LOCALE_PATHS`."""
    catalogue = Catalog(locale="en")
    for area in map(Path, LOCALE_PATHS):
        for message in messages(area.parent):
            catalogue.add(message.text, string=_translated(message), context=message.context)
    path = folder / "en_XA" / "LC_MESSAGES" / "django.mo"
    path.parent.mkdir(parents=True)
    out = io.BytesIO()
    write_mo(out, catalogue)
    path.write_bytes(out.getvalue())
    return folder


def _translated(message: PageText) -> str | tuple[str, ...]:
    if isinstance(message.text, str):
        return accented(message.text)
    return tuple(map(accented, message.text))


class _Shown(HTMLParser):
    """Collects the texts that a reader sees or hears, without code and values for programs."""

    VOID = frozenset(
        ("br", "hr", "img", "input", "link", "meta", "path", "rect", "circle", "use", "line", "wbr")
    )
    QUOTED = frozenset(("code", "pre", "kbd", "samp", "script", "style", "textarea"))
    # A placeholder is an example of a value.
    NAMES = ("title", "aria-label", "alt", "aria-description")

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        hidden = (
            any(one for _, one in self.open)
            or tag in self.QUOTED
            or values.get("translate") == "no"
        )
        if not hidden:
            self.texts += [text for name in self.NAMES if (text := values.get(name))]
        if tag not in self.VOID:
            self.open.append((tag, hidden))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        while tag not in self.VOID and self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if data.strip() and not any(hidden for _, hidden in self.open):
            self.texts.append(" ".join(data.split()))


def untranslated(page: str, names: re.Pattern[str]) -> Iterator[str]:
    """Yield the texts of a page with words that are neither accented nor among the names."""
    parser = _Shown()
    parser.feed(page)
    for text in parser.texts:
        if WORD.search(names.sub("", text)):
            yield text
