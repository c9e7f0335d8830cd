"""The one place where markup is made: escaped text, trimmed numbers, no inline style."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is HTML already; Django's `conditional_escape` honours `__html__`.

    Joining or slicing gives a plain `str` again, which is escaped: the unsafe way is the loud one.
    """

    __slots__ = ()

    def __html__(self) -> str:
        """The text itself, as the template engine asks for it."""
        return str(self)


def number(value: float | int | str) -> str:
    """A coordinate with at most two decimals, without trailing zeros."""
    if isinstance(value, str):
        return value
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def child(value: object) -> str:
    """What may stand between two tags: markup as it is, anything else escaped."""
    return str(value) if isinstance(value, Markup) else escape(str(value), quote=True)


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """One element. `class_` is `class`, `stroke_width` is `stroke-width`, None leaves it out."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        shown = number(value) if isinstance(value, (int, float)) else str(value)
        parts.append(f' {key.rstrip("_").replace("_", "-")}="{escape(shown, quote=True)}"')
    parts.append(">")
    parts.extend(child(item) for item in children if item is not None)
    parts.append(f"</{name}>")
    return Markup("".join(parts))


def join(parts: Iterable[object]) -> Markup:
    """Several pieces after each other; plain strings among them are escaped."""
    return Markup("".join(child(part) for part in parts))


def rect(x: float, y: float, width: float, height: float, **attributes: object) -> Markup:
    """A rectangle; widths below zero are drawn as nothing."""
    return tag("rect", x=x, y=y, width=max(width, 0), height=max(height, 0), **attributes)


def path(d: str, **attributes: object) -> Markup:
    return tag("path", d=d, **attributes)


def text(x: float, y: float, content: object, **attributes: object) -> Markup:
    """A label; `anchor` is start, middle or end."""
    anchor = attributes.pop("anchor", None)
    return tag("text", content, x=x, y=y, text_anchor=anchor, **attributes)


def move(points: Iterable[tuple[float, float]]) -> str:
    """Path data through points by straight lines; empty for no points."""
    return "".join(
        f"{'L' if index else 'M'}{number(x)} {number(y)}" for index, (x, y) in enumerate(points)
    )
