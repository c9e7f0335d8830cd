"""Parses a local job's report of its stopping metric, which is not trusted but checked.

`evenshare.runtime.evaluations` writes it. `scheduling.engine.evaluate`, which stores the
evaluations, checks whether they can be used.
"""

from typing import Any

from evenshare_core.estimation.evaluations import (
    HISTORY_MAX,
    ITERATION_MOST,
    METRIC_MOST,
    MetricPoint,
)
from scheduling.engine.executors.base import Evaluations
from scheduling.engine.executors.local_files import EVALUATIONS_BYTES, said_of_lease
from scheduling.selectors import stored_texts as texts

VERSION = 1


def parse_evaluations(text: bytes, *, lease: int) -> Evaluations | None:
    """Return a file's report on a lease, or None if the file has none."""
    said, why = said_of_lease(text, EVALUATIONS_BYTES, lease, _refusal)
    if said is None:
        return Evaluations(refused=why) if why else None
    points = tuple(MetricPoint(iteration, float(metric)) for iteration, metric in said["points"])
    return Evaluations(said["metric"], points)


def _refusal(said: Any) -> str:
    if not isinstance(said, dict) or said.get("version") != VERSION:
        return texts.NO_OBJECT_OF_VERSION.format(version=VERSION)
    if not _is_whole(said.get("lease")):
        return texts.NO_NUMBER.format(name="lease")
    if not isinstance(said.get("metric"), str):
        return texts.NO_METRIC_NAME
    points = said.get("points")
    if not isinstance(points, list) or len(points) > HISTORY_MAX:
        return texts.NO_LIST.format(most=HISTORY_MAX)
    if not all(map(_is_point, points)):
        return texts.NO_POINT
    return ""


def _is_point(point: Any) -> bool:
    if not isinstance(point, list) or len(point) != len(MetricPoint._fields):
        return False
    iteration, metric = point
    is_number = type(metric) is float or (type(metric) is int and abs(metric) < METRIC_MOST)
    return _is_whole(iteration) and is_number


def _is_whole(value: object) -> bool:
    return type(value) is int and 0 <= value < ITERATION_MOST
