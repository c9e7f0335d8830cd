"""Parses a local job's report of its iterations, which is not trusted but checked.

`evenshare.runtime.iterations` writes it as sums since the process's start in wall time.
"""

from typing import Any, NamedTuple

from scheduling.engine.executors.base import Iterations
from scheduling.engine.executors.local_files import ITERATIONS_BYTES, said_of_lease
from scheduling.selectors import stored_texts as texts

VERSION = 1
_LARGEST = 2**53
_NUMBERS = ("lease", "iterations", "time_us", "memory_bytes")
_MAYBE = ("first_us", "suspended_us")


class IterationFile(NamedTuple):
    """A file's report, or the reason why it cannot be used.

    Both are empty if the file has no report on this lease.
    """

    iterations: Iterations | None = None
    refused: str = ""


def parse_iterations(text: bytes, *, lease: int, started_us: object, scale: int) -> IterationFile:
    """Return a file's report on a lease in pool time: `scale` times wall time.

    `started_us`: the wall time at which the lease's process was started.
    """
    said, why = said_of_lease(text, ITERATIONS_BYTES, lease, _refusal)
    if said is None:
        return IterationFile(refused=why)
    return IterationFile(
        Iterations(
            said["iterations"],
            said["time_us"] * scale,
            _since(said["first_us"], started_us, scale),
            None if said["suspended_us"] is None else said["suspended_us"] * scale,
            said["memory_bytes"],
        )
    )


def _refusal(said: Any) -> str:
    if not isinstance(said, dict):
        return texts.NO_OBJECT
    if said.get("version") != VERSION:
        return texts.OTHER_VERSION.format(version=VERSION)
    for name in (*_NUMBERS, *_MAYBE):
        value = said.get(name)
        if not (_is_number(value) or (value is None and name in _MAYBE and name in said)):
            return texts.NO_NUMBER.format(name=name)
    return ""


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _since(first_us: int | None, started_us: object, scale: int) -> int | None:
    """Return the time from the process's start to the end of its first iteration."""
    if first_us is None or not isinstance(started_us, int) or first_us < started_us:
        return None
    return (first_us - started_us) * scale
