"""Numbers, counted nouns and stored texts in the language of the page. Pure.

REST, the command and tasks have no page, so they get English.
"""

import re
from collections.abc import Iterable
from decimal import Decimal
from string import Formatter
from typing import cast

from django.utils import translation
from django.utils.translation import get_language, ngettext

# Languages with a comma before decimals; a point separates thousands.
WITH_COMMA = frozenset({"de"})
_SWAPPED = str.maketrans(",.", ".,")


def marked(shown: str) -> str:
    """Return a number that is formatted as in English, with the marks of the language."""
    return shown.translate(_SWAPPED) if get_language() in WITH_COMMA else shown


def number(value: int | float | Decimal, places: int | None = None) -> str:
    """Format a number: 4211 -> "4,211"; `places` fixes the decimals."""
    return marked(f"{value:,}" if places is None else f"{value:,.{places}f}")


def plural(count: int, word: str, many: str | None = None) -> str:
    """Return the count and its noun: "1 job", "1,200 jobs"; `many` is an irregular plural."""
    return f"{number(count)} {ngettext(word, many or f'{word}s', count)}"


def gettext_noop(text: str) -> str:
    """Mark a constant as a text of the catalogue. Unlike Django's, this needs no settings."""
    return text


def gettext_lazy(text: str) -> str:
    """Mark the label of a choice: it is translated where it is shown."""
    return cast("str", translation.gettext_lazy(text))


_NUMBER = re.compile(r"\d[\d,]*(\.\d+)?")


class StoredTexts:
    """Texts that are stored in English, for pages in other languages.

    `templates` are keys of the catalogues, with `{name}` for each value.
    """

    def __init__(self, templates: Iterable[str]) -> None:
        # A text may fit several templates, so the one with the most letters is tried first.
        self.templates = tuple(sorted(set(templates), key=_letters, reverse=True))
        self._patterns = [(template, _pattern(template)) for template in self.templates]

    def shown(self, stored: str) -> str:
        """Return a stored text in the language of the page; a text of no template is unchanged.

        It may have a capital at its start and a point at its end that its template lacks. A value
        that is a number gets the marks of the language. Values that are stored texts, or lists of
        them, are translated.
        """
        for template, pattern in self._patterns:
            if match := pattern.fullmatch(stored):
                text = self._filled(translation.gettext(template), match.groupdict())
                return text[:1].upper() + text[1:] if stored[:1].isupper() else text
        return stored

    def _filled(self, text: str, values: dict[str, str]) -> str:
        end = values.pop(_END)
        return text.format(**{name: self._value(value) for name, value in values.items()}) + end

    def _value(self, value: str) -> str:
        parts = value.split(", ")
        if len(parts) > 1 and all(map(self._fits, parts)):
            return ", ".join(map(self._value, parts))
        return marked(value) if _NUMBER.fullmatch(value) else self.shown(value)

    def _fits(self, text: str) -> bool:
        return any(pattern.fullmatch(text) for _, pattern in self._patterns)


_END = "end_"


def _letters(template: str) -> int:
    return sum(len(part[0]) for part in Formatter().parse(template))


def _pattern(template: str) -> re.Pattern[str]:
    """Return the pattern of the texts that a template makes."""
    parts: list[str] = []
    for literal, name, _spec, _conversion in Formatter().parse(template):
        parts.append(re.escape(literal))
        if name is not None:
            group = f"(?P<{name}>.+?)"
            parts.append(f"(?P={name})" if group in parts else group)
    first = template[:1]
    if first.isalpha():
        parts[0] = f"(?i:{first}){parts[0][1:]}"
    return re.compile(rf"{''.join(parts)}(?P<{_END}>\.?)", re.DOTALL)
