"""Numbers and counted nouns in the language of the page. Pure.

REST, the command and tasks have no page, so they get English.
"""

from decimal import Decimal
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
