"""Provide numbers and dates at the limits of Python, JSON and Postgres, and the forms of a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

# JSON literals: some are invalid, some valid but out of range.
JSON_NUMBERS = (
    "NaN", "-Infinity", "1e400", "1e-400", "1e19", "9223372036854775807", "9223372036854775808",
    "2147483648", "99999999999999", "0.0000001", "-1", "0",
)  # fmt: skip
# The most dangerous values are first. A form answers with a whole page, so it gets only the first
# ones.
NUMBERS = (
    "NaN", "1e400", "1e18", "9223372036854775808", "2147483648", "000000001" + "9" * 30, "-1",
    "999999999999.999999", "-Infinity", "1e-400", "\u0663",
)  # fmt: skip
OF_A_FORM = 6
INSTANTS = (
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-14:00",
    "10000-01-01T00:00:00Z", "infinity", "0001-01-01", "9999-12-31 23:59",
)  # fmt: skip
# For fields that do not look like a number or a date.
FEW = ("1e400",)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATED = ("from", "until", "starts_at", "ends_at", "starts", "ends", "before", "at")

Path = tuple[str | int, ...]


def extremes_of(name: str, value: object) -> tuple[str, ...]:
    """Return the values to try in a field, by its current value (None if empty) and its name."""
    text = "" if value is None else str(value)
    if _DATE.match(text) or name.rpartition("-")[2] in _DATED:
        return INSTANTS
    is_number = re.fullmatch(r"-?\d+(\.\d+)?", text) is not None
    return NUMBERS if is_number or not text else FEW


def leaves(value: Any, place: Path = ()) -> Iterator[Path]:
    """Yield the paths of a body's innermost values."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    if not items:
        yield place
    for key, item in items:
        yield from leaves(item, (*place, key))


def value_at(value: Any, place: Path) -> Any:
    """Return the value at a path, or None if there is no value."""
    for key in place:
        if isinstance(value, dict) and key not in value:
            return None
        value = value[key]
    return value


def replaced(value: Any, place: Path, new: object) -> Any:
    """Return the body with another value at a path."""
    if not place:
        return new
    first, *rest = place
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    old = copy.get(first) if isinstance(copy, dict) else copy[first]
    copy[first] = replaced(old, tuple(rest), new)
    return copy


class Forms(HTMLParser):
    """The forms and links of a page: (method, action, fields with their values)."""

    def __init__(self, page: str, address: str) -> None:
        super().__init__()
        self.address = address
        self.forms: dict[str, tuple[str, str, dict[str, str]]] = {}
        self.links: set[str] = set()
        self._open = ""
        self._area = ""
        self._choice = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if tag == "a" and has.get("href", "").startswith(("/", "?")):
            self.links.add(has["href"])
        if tag == "form":
            self._open = has.get("id") or f"form {len(self.forms)}"
            action = has.get("action") or self.address
            self.forms[self._open] = (has.get("method", "get").lower(), action, {})
        name, form = has.get("name", ""), self.forms.get(has.get("form") or self._open)
        if tag == "option" and self._choice and ("selected" in has or not self._chosen()):
            self.forms[self._open][2][self._choice] = has.get("value", "")
        if not name or form is None or tag not in ("input", "textarea", "select", "button"):
            return
        if has.get("type") in ("checkbox", "radio") and "checked" not in has:
            return
        form[2].setdefault(name, has.get("value", ""))
        self._area = name if tag == "textarea" else ""
        self._choice = name if tag == "select" and self._open else ""

    def _chosen(self) -> str:
        return self.forms[self._open][2].get(self._choice, "")

    def handle_data(self, data: str) -> None:
        if self._area and self._open:
            self.forms[self._open][2][self._area] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = ""
        if tag == "textarea":
            self._area = ""
        if tag == "select":
            self._choice = ""
