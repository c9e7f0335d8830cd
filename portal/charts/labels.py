"""The placement of labels: the first place where no curve crosses the text."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from portal.charts.scale import text_width
from portal.charts.svg import Markup, text

Point = tuple[float, float]
Place = tuple[float, float, str]  # x, baseline, anchor
ASCENT, DESCENT, AIR = 11, 4, 2


def label(
    caption: str, places: Sequence[Place], curves: Iterable[Sequence[Point]], *, css: str
) -> Markup:
    """Draw the caption at the first place without a crossing curve, else at the first place."""
    drawn = [curve for curve in curves if curve]
    free = (place for place in places if not crossed(caption, place, drawn))
    x, baseline, anchor = next(free, places[0])
    return text(x, baseline, caption, class_=css, anchor=None if anchor == "start" else anchor)


def crossed(caption: str, place: Place, curves: Iterable[Sequence[Point]]) -> bool:
    x, baseline, anchor = place
    wide = text_width(caption)
    left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
    box = (left - AIR, left + wide + AIR, baseline - ASCENT - AIR, baseline + DESCENT + AIR)
    return any(_meets(start, end, box) for curve in curves for start, end in pairwise(curve))


def _meets(start: Point, end: Point, box: tuple[float, float, float, float]) -> bool:
    """Return whether a line, drawn from left to right, crosses a box."""
    left, right, top, bottom = box
    (x0, y0), (x1, y1) = start, end
    if x1 < left or x0 > right:
        return False
    slope = (y1 - y0) / (x1 - x0) if x1 > x0 else 0.0
    at_left = y0 + slope * (max(left, x0) - x0)
    at_right = y0 + slope * (min(right, x1) - x0) if x1 > x0 else y1
    return max(at_left, at_right) >= top and min(at_left, at_right) <= bottom
