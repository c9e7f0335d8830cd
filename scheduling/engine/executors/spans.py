"""When a lease's process ran: the engine's word, which the job's own files may refine.

A job can write in its files what it likes, so they count within the engine's span only, and move
its instants by a second at most: an engine may know no more than seconds. Pure: no files, no clock.
Source: docs/adr/0218-a-jobs-word-binds-the-job.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from evenshare_core.domain.instants import from_us
from evenshare_core.units import SECOND_US

# How far files may move an instant of the engine's.
GRAIN_US = SECOND_US
# Clocks of a cluster differ a little; what is further off is a contradiction, and is noted.
HONEST_US = 5 * SECOND_US
# A shim on a busy node is late with its start, an engine with noticing an end.
LATE_US = 30 * SECOND_US


class EngineWord(NamedTuple):
    """What an engine itself saw of a lease's process, in microseconds of wall time.

    `started_us` None: it has not begun. `ended_us` None: it is not over. `exit`: how it ended;
    None: the engine does not know, so its files say it.
    """

    started_us: int | None
    ended_us: int | None = None
    exit: Mapping[str, Any] | None = None


class LeaseSpan(NamedTuple):
    """When a process ran, in wall time; `contradiction`: what its files say against the engine."""

    started_us: int | None
    ended_us: int | None
    contradiction: str = ""


def span_of(
    seen: EngineWord | None,
    claim: Mapping[str, Any] | None,
    ended: Mapping[str, Any] | None,
    now_us: int,
) -> LeaseSpan:
    """Return when a process ran by what the engine saw, and by its `shim.json` and `exit.json`.

    `seen` None: the engine knows nothing of it (any more), so its files are all there is. No
    instant lies after `now_us`, and no end before its start.
    """
    said_start = instant(_first(claim, ended, "started_us"))
    said_end = instant((ended or {}).get("ended_us"))
    if seen is None:
        span = _by_files(said_start, said_end, is_over=ended is not None, now_us=now_us)
    else:
        span = _by_engine(seen, said_start, said_end, now_us)
    if ended is not None and ended.get("lost"):
        said_end = None  # nobody saw that end
    return span._replace(
        contradiction=_contradiction(span, said_start, said_end, ended is not None, now_us)
    )


def instant(value: object) -> int | None:
    """Return an instant of a file; None if no clock can show it."""
    if type(value) is not int or not 0 < value < 2**53:
        return None
    try:
        from_us(value)
    except OverflowError:
        return None
    return value


def _first(
    claim: Mapping[str, Any] | None, ended: Mapping[str, Any] | None, name: str
) -> object | None:
    values = ((one or {}).get(name) for one in (claim, ended))
    return next((value for value in values if instant(value) is not None), None)


def _by_files(
    said_start: int | None, said_end: int | None, *, is_over: bool, now_us: int
) -> LeaseSpan:
    started_us = None if said_start is None else min(said_start, now_us)
    if not is_over:
        return LeaseSpan(started_us, None)
    ended_us = now_us if said_end is None else min(said_end, now_us)
    return LeaseSpan(started_us, max(ended_us, started_us or 0))


def _by_engine(
    seen: EngineWord, said_start: int | None, said_end: int | None, now_us: int
) -> LeaseSpan:
    started_us, ended_us = seen.started_us, seen.ended_us
    if ended_us is not None:
        ended_us = min(ended_us, now_us)
        if said_end is not None and abs(said_end - ended_us) <= GRAIN_US:
            ended_us = min(said_end, now_us)
    if started_us is None:
        return LeaseSpan(None, ended_us)
    started_us = min(started_us, now_us)
    if said_start is not None and started_us <= said_start <= started_us + GRAIN_US:
        started_us = min(said_start, now_us)
    return LeaseSpan(started_us, None if ended_us is None else max(ended_us, started_us))


def _contradiction(
    span: LeaseSpan, said_start: int | None, said_end: int | None, says_end: bool, now_us: int
) -> str:
    """Say what the files claim that cannot be, by the engine's span; empty: nothing."""
    started_us, ended_us = span.started_us, span.ended_us
    if said_start is not None and started_us is not None:
        late_us = said_start - started_us
        if late_us < -HONEST_US or late_us > LATE_US:
            return f"it started at {_text(said_start)}; the engine: at {_text(started_us)}"
    until_us = now_us if ended_us is None else ended_us
    if said_start is None and started_us is not None and until_us - started_us > LATE_US:
        return f"no start; the engine: it started at {_text(started_us)}"
    if ended_us is not None:
        if said_end is not None and abs(said_end - ended_us) > HONEST_US:
            return f"it ended at {_text(said_end)}; the engine: at {_text(ended_us)}"
    elif says_end and started_us is not None and now_us - (said_end or 0) > LATE_US:
        said = "it ended" if said_end is None else f"it ended at {_text(said_end)}"
        return f"{said}; the engine: it runs"
    return ""


def _text(instant_us: int) -> str:
    return f"{from_us(instant_us):%Y-%m-%d %H:%M:%S} UTC"
