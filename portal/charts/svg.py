"""The only module that makes markup: escaped text, trimmed numbers, no inline style."""

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is HTML; Django's `conditional_escape` honours `__html__`.

    Joining or slicing returns a plain `str`, which is escaped: a mistake is visible, not unsafe.
    """

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def number(value: float | int | str) -> str:
    """Return a coordinate with at most two decimals, without trailing zeros."""
    if isinstance(value, str):
        return value
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def child(value: object) -> str:
    """Return markup unchanged and anything else escaped."""
    return str(value) if isinstance(value, Markup) else escape(str(value), quote=True)


# Elements that never have content; in SVG they may end with a slash.
SHAPES = frozenset(("circle", "line", "path", "rect", "use"))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element; `class_` becomes `class`, `stroke_width` `stroke-width`; omit None."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        shown = number(value) if isinstance(value, (int, float)) else str(value)
        parts.append(f' {key.rstrip("_").replace("_", "-")}="{escape(shown, quote=True)}"')
    if name in SHAPES and not children:
        return Markup("".join((*parts, "/>")))
    parts.append(">")
    parts.extend(child(item) for item in children if item is not None)
    parts.append(f"</{name}>")
    return Markup("".join(parts))


def join(parts: Iterable[object]) -> Markup:
    """Concatenate pieces; plain strings among them are escaped."""
    return Markup("".join(child(part) for part in parts))


def rect(x: float, y: float, width: float, height: float, **attributes: object) -> Markup:
    """Draw a rectangle; a negative width or height becomes 0."""
    return tag("rect", x=x, y=y, width=max(width, 0), height=max(height, 0), **attributes)


def path(d: str, **attributes: object) -> Markup:
    return tag("path", d=d, **attributes)


def text(x: float, y: float, content: object, **attributes: object) -> Markup:
    """Draw a label; `anchor` is start, middle or end."""
    anchor = attributes.pop("anchor", None)
    return tag("text", content, x=x, y=y, text_anchor=anchor, **attributes)


def move(points: Iterable[tuple[float, float]]) -> str:
    """Return path data of straight lines through the points; empty without points."""
    return "".join(
        f"{'L' if index else 'M'}{number(x)} {number(y)}" for index, (x, y) in enumerate(points)
    )
