"""A language of accented and longer texts, which shows texts outside of catalogues."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo

from billing.models import Book
from evenshare_core.policies.options import describe_options
from evenshare_core.policies.registry import POLICIES
from portal.site.catalogs import PageText, messages
from portal.site.settings import LOCALE_PATHS
from scheduling.engine.executors.base import EXECUTORS
from scheduling.models import GpuType, Job, Node, Pool, Profile, Subscription, Sweep
from scheduling.requests.job_deadline import CLASSES
from tenants.models import ApiToken, Invitation, QuotaChangeRequest, Tenant, User

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
NAMES = (
    *((Tenant, field) for field in ("name", "slug", "initials")),
    *((User, field) for field in ("username", "first_name")),
    *((Pool, field) for field in ("name", "policy")),
    *((model, "name") for model in (ApiToken, GpuType, Job, Node, Profile, Sweep)),
    *((Book, "slug"), (Invitation, "note"), (Subscription, "address")),
    *((QuotaChangeRequest, field) for field in ("reason", "answer")),
)
# Hashes, the names of languages and of the demo's people, terms, units, and what Django translates.
TERMS = (
    r"\b(?:[0-9a-f]{8,}|Mara|Otto|Rosa|API|CLI|CPUs?|CSV|Evenshare|GPUs?|JSON|MIG|REST|Slurm|UTC|YAML|min|rho|theta|ntfy"
    r"|English|Deutsch|bytes|January|highs|glop)\b"
    # A stored error.
    r"|ValueError: the deadline is not after the submission"
    # A round is not estimated inside of the test's transaction.
    r"|RuntimeError: A durable atomic block cannot be nested within another atomic block"
)


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


def names() -> re.Pattern[str]:
    """Return a pattern of the names in the database, and of terms."""
    rows = {
        str(value)
        for model, field in NAMES
        for value in model._default_manager.values_list(field, flat=True)
    }
    choices = {
        choice
        for policy in POLICIES.values()
        for option in describe_options(policy.options_type)
        for choice in option.choices
    }
    rows |= {row.capitalize() for row in rows} | {*POLICIES, *EXECUTORS, *choices, *CLASSES}
    longest_first = sorted(filter(None, rows), key=len, reverse=True)
    return re.compile("|".join([*map(re.escape, longest_first), TERMS]))


def untranslated(answer: Any, names: re.Pattern[str]) -> Iterator[str]:
    """Yield the texts of a page with words that are neither accented nor among the names."""
    if not answer.headers.get("Content-Type", "").startswith("text/html"):
        return
    assert answer.headers["Content-Language"] == LANGUAGE
    parser = _Shown()
    parser.feed(answer.content.decode())
    yield from (text for text in parser.texts if _is_loose(text, names))


@cache
def _is_loose(text: str, names: re.Pattern[str]) -> bool:
    return WORD.search(names.sub("", text)) is not None
