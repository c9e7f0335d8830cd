"""The text of pages, without tags."""

import html
import re


def words(page: str) -> str:
    """Return a page's text in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def sentences(page: str) -> str:
    """Return a page's text in one line, without spaces before punctuation."""
    return re.sub(r" ([,.:;])", r"\1", words(page))
