"""When a lease's process ran: the engine's observation, refined by the job's files.

A job can write anything in its files. So times from files count only within the span that the
engine observed. They shift the engine's times by at most a second, because an engine may know only
whole seconds. The functions are pure. Source: docs/executors.md.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from evenshare_core.domain.instants import from_us
from evenshare_core.units import SECOND_US
from scheduling.selectors.stored_texts import (
    ENDED_AT_BUT_RUNS,
    ENDED_BUT_RUNS,
    NO_START,
    OTHER_END,
    OTHER_START,
)

# The maximum time by which files may shift a time of the engine.
GRAIN_US = SECOND_US
# Clocks of a cluster differ a little; a larger difference is recorded as a contradiction.
HONEST_US = 5 * SECOND_US
# A shim on a busy node may start late, and an engine may notice an end late.
LATE_US = 30 * SECOND_US


class EngineWord(NamedTuple):
    """An engine's observation of a lease's process, in microseconds of wall time.

    `started_us` is None until it has started, `ended_us` until it has ended. `exit` describes its
    end. If the engine does not know the end, it is None and the lease's files decide.
    """

    started_us: int | None
    ended_us: int | None = None
    exit: Mapping[str, Any] | None = None


class LeaseSpan(NamedTuple):
    """The span of a process in wall time; `contradiction`: how its files contradict the engine."""

    started_us: int | None
    ended_us: int | None
    contradiction: str = ""


def span_of(
    seen: EngineWord | None,
    claim: Mapping[str, Any] | None,
    ended: Mapping[str, Any] | None,
    now_us: int,
) -> LeaseSpan:
    """Return when a process ran, from the engine's observation, `shim.json` and `exit.json`.

    If `seen` is None, the engine does not know the process (any more), and only the files count. No
    returned time is after `now_us`, and no end is before its start.
    """
    said_start = instant(_first(claim, ended, "started_us"))
    said_end = instant((ended or {}).get("ended_us"))
    if seen is None:
        span = _by_files(said_start, said_end, is_over=ended is not None, now_us=now_us)
    else:
        span = _by_engine(seen, said_start, said_end, now_us)
    if ended is not None and ended.get("lost"):
        said_end = None  # the engine has not observed this end
    return span._replace(
        contradiction=_contradiction(span, said_start, said_end, ended is not None, now_us)
    )


def instant(value: object) -> int | None:
    """Return a time read from a file, or None if it is out of range."""
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
    """Return a text on how the files contradict the engine's span; empty if they agree."""
    started_us, ended_us = span.started_us, span.ended_us
    if said_start is not None and started_us is not None:
        late_us = said_start - started_us
        if late_us < -HONEST_US or late_us > LATE_US:
            return OTHER_START.format(at=_text(said_start), seen=_text(started_us))
    until_us = now_us if ended_us is None else ended_us
    if said_start is None and started_us is not None and until_us - started_us > LATE_US:
        return NO_START.format(seen=_text(started_us))
    if ended_us is not None:
        if said_end is not None and abs(said_end - ended_us) > HONEST_US:
            return OTHER_END.format(at=_text(said_end), seen=_text(ended_us))
    elif says_end and started_us is not None and now_us - (said_end or 0) > LATE_US:
        if said_end is None:
            return ENDED_BUT_RUNS
        return ENDED_AT_BUT_RUNS.format(at=_text(said_end))
    return ""


def _text(instant_us: int) -> str:
    return f"{from_us(instant_us):%Y-%m-%d %H:%M:%S} UTC"
