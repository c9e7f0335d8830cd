"""Parses the curves of a job's metrics and its links, which are untrusted: bounded and checked.

`evenshare.runtime.metrics` writes the file, or the job's program itself.
"""

import math
import re
from itertools import islice
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from scheduling.engine.executors.local_files import METRICS_BYTES
from scheduling.selectors import stored_texts as texts
from tenants.answers import Answer

VERSION = 1
MOST_METRICS, MOST_LINKS = 64, 8
# A larger file would cost a page that compares jobs a second.
MOST_NAMES, MOST_POINTS = 1000, 50_000
NAME_MAX, LINK_MAX = 64, 500
# Larger values are left out: sums and axes of charts stay finite numbers.
VALUE_MOST = 1e100

NAME = re.compile(rf"[A-Za-z0-9_./@-]{{1,{NAME_MAX}}}")
# Without a user's name before the host, which could look like another host.
_LINK = re.compile(r"https://([A-Za-z0-9.-]+)(:[0-9]{1,5})?([/?#][!-~]*)?")


class ReportedPoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A metric's value after `step` steps; `at_ms`: wall time since 1970, by the job's own clock.

    A struct of the file, so that it is checked while it is read.
    """

    step: Annotated[int, Meta(ge=0, lt=2**53)]
    value: float
    at_ms: Annotated[int, Meta(ge=0, lt=2**53)] | None = None


class _File(msgspec.Struct, frozen=True):
    version: int
    series: dict[str, list[ReportedPoint]] = {}
    links: dict[str, str] = {}
    thinned: bool = False


class LinkRow(Answer, frozen=True):
    """A link that the program reported. The portal never opens it."""

    name: str
    url: str
    host: str


class MetricsFile(NamedTuple):
    """A job's curves by name, with steps in order, and its links.

    `left_out`: the number of curves with unusable names, or after the first `MOST_METRICS`.
    `refused`: why the file cannot be used; empty for a usable or missing file.
    """

    series: dict[str, list[ReportedPoint]] = {}
    links: tuple[LinkRow, ...] = ()
    is_thinned: bool = False
    left_out: int = 0
    refused: str = ""


_decoder = msgspec.json.Decoder(_File)


def parse_metrics(text: bytes) -> MetricsFile:
    """Return the usable curves and links of a file, or a short reason to refuse it."""
    if not text:
        return MetricsFile()
    if len(text) > METRICS_BYTES:
        return MetricsFile(refused=texts.TOO_LONG.format(most=METRICS_BYTES))
    try:
        said = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Not shown, because msgspec's message may quote parts of the input.
        return MetricsFile(refused=texts.NOT_AS_DESCRIBED.format(document="docs/runs.md"))
    if said.version != VERSION:
        return MetricsFile(refused=texts.OTHER_VERSION.format(version=VERSION))
    if len(said.series) > MOST_NAMES or sum(map(len, said.series.values())) > MOST_POINTS:
        why = texts.TOO_MANY_POINTS.format(names=MOST_NAMES, points=MOST_POINTS)
        return MetricsFile(refused=why)
    named = sorted(name for name in said.series if NAME.fullmatch(name))[:MOST_METRICS]
    series = {name: points for name in named if (points := _ordered(said.series[name]))}
    links = tuple(islice(filter(None, map(_link, said.links.items())), MOST_LINKS))
    return MetricsFile(series, links, said.thinned, len(said.series) - len(named))


def _ordered(points: list[ReportedPoint]) -> list[ReportedPoint]:
    """Return points by step; of a repeated step the last one counts."""
    by_step = {
        point.step: point
        for point in points
        if math.isfinite(point.value) and abs(point.value) <= VALUE_MOST
    }
    return [by_step[step] for step in sorted(by_step)]


def _link(named: tuple[str, str]) -> LinkRow | None:
    name, url = named
    match = _LINK.fullmatch(url) if len(url) <= LINK_MAX else None
    if match is None or not name.isprintable() or not 0 < len(name) <= NAME_MAX:
        return None
    return LinkRow(name, url, match[1].lower())
