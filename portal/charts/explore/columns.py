"""Headings of charts: in the page's language for the table, in English for CSV."""

import re
from dataclasses import dataclass

from django.utils.translation import gettext as _

from tenants.language import marked

_DECIMAL = re.compile(r"-?\d+\.\d+")


@dataclass(frozen=True, slots=True)
class ChartColumn:
    """A heading, with its unit."""

    shown: str
    english: str


def column(text: str, **values: str) -> ChartColumn:
    """Return the heading of a text of the catalogue, with its values."""
    return ChartColumn(_(text).format(**values), text.format(**values))


def english(head: ChartColumn | str) -> str:
    """Return the heading in CSV."""
    return head if isinstance(head, str) else head.english


def localized(text: str) -> str:
    """Return a text of a cell; a number has the marks of the page's language."""
    return marked(text) if _DECIMAL.fullmatch(text) else text
