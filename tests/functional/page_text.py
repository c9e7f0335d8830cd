"""The text of pages, without tags."""

import html
import re
from html.parser import HTMLParser


def words(page: str) -> str:
    """Return a page's text in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def sentences(page: str) -> str:
    """Return a page's text in one line, without spaces before punctuation."""
    return re.sub(r" ([,.:;])", r"\1", words(page))


class _Visible(HTMLParser):
    """Collects the text that a reader sees before any click: no notes, folded parts or drawings."""

    VOID = frozenset(("br", "hr", "img", "input", "link", "meta", "path", "rect", "circle", "use"))

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open: list[tuple[str, bool]] = []  # an element, and whether its text is hidden

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.VOID:
            return
        values = dict(attrs)
        hidden = (
            tag in {"svg", "script", "head"}
            or bool({"popover", "hidden"} & set(values))
            or "sr" in (values.get("class") or "").split()
        )
        inside = bool(self.open) and self.open[-1][0] == "details, closed" and tag != "summary"
        name = "details, closed" if tag == "details" and "open" not in values else tag
        self.open.append((name, hidden or inside or any(one for _, one in self.open)))

    def handle_endtag(self, tag: str) -> None:
        while tag not in self.VOID and self.open and self.open.pop()[0].split(",")[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not any(hidden for _, hidden in self.open):
            self.texts += data.split()


def visible_words(page: str) -> list[str]:
    """Return the words of a page that are visible before any click, without drawings."""
    parser = _Visible()
    parser.feed(page)
    return parser.texts
