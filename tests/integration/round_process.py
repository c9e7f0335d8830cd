"""A process that runs one round and kills or stops itself at a named point of it.

Usage: round_process.py POOL INSTANT POINT:(kill|stop) HOLD_S; prints the point, then the outcome.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import django

django.setup()

# Models need Django's set-up, so these come after it.
import scheduling.engine.rounds as engine  # noqa: E402 - after django.setup()
from scheduling.engine import apply  # noqa: E402 - after django.setup()
from scheduling.engine.clock import PoolNow  # noqa: E402 - after django.setup()
from scheduling.engine.executors.virtual import VirtualExecutor  # noqa: E402 - after django.setup()

# Point -> (module, function, whether it is passed before the function or after it).
POINTS: dict[str, tuple[Any, str, bool]] = {
    "fenced": (engine, "feed", True),
    "read": (engine, "snapshot_read", False),
    "decided": (engine, "decide_round", False),
    "mid-write": (apply, "_write_reasons", True),
    "committed": (engine, "round_apply", False),
    "launched": (VirtualExecutor, "launch", False),
}


def stopping(function: Callable[..., Any], *, before: bool, point: str, how: str) -> Any:
    """Wrap a function so that the process stops before or after its call."""

    def here() -> None:
        print(point, flush=True)
        os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before:
            here()
        result = function(*args, **kwargs)
        if not before:
            here()
        return result

    return wrapped


def main(pool: str, instant: str, where: str, hold_s: str) -> None:
    """Run the round."""
    point, _, how = where.partition(":")
    place, name, before = POINTS[point]
    setattr(place, name, stopping(getattr(place, name), before=before, point=point, how=how))
    at = datetime.fromisoformat(instant)
    now = PoolNow(at, at, 1, paused=False)
    print(engine.round_run(int(pool), now=now, hold_s=float(hold_s)).outcome.value)


if __name__ == "__main__":
    main(*sys.argv[1:])
