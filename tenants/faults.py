"""Named points at which tests inject faults. Inert unless a test arms them.

A point costs one comparison. The fault matrix iterates over `POINTS`. In it, an armed point that is
never reached is an error, so the list cannot become outdated.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

# For each point, whether a transaction is open there, which a crash rolls back.
POINTS = {
    "round.before_fence": False,
    "round.after_fence": False,
    "round.after_snapshot": False,
    "round.after_decide": False,
    "round.first_write": True,
    "round.mid_write": True,
    "round.before_commit": True,
    "round.after_commit": False,
    "dispatch.before_call": False,
    "dispatch.after_call": False,
    "dispatch.after_observe": False,
    "reconcile.after_list": False,
    "reconcile.after_observe": False,
    "measure.before_commit": True,
    "profiling.before_commit": True,
    "evaluate.before_commit": True,
    "observe.before_commit": True,
    "cancel.before_commit": True,
    "cancel.after_mark": False,
    "turns.before_commit": True,
    "seal.before_append": True,
    "seal.before_commit": True,
    "archive.after_write": True,
    "archive.before_commit": True,
    "archive.before_drop": True,
    "meter.before_commit": True,
    "settle.before_post": True,
    "settle.before_commit": True,
    "settle.after_commit": False,
    "ledger_log.before_commit": True,
    "retention.after_mark": False,
    "outbox.before_commit": True,
    "outbox.after_claim": False,
    "outbox.after_send": False,
    "outbox.before_record": True,
}

_hook: Callable[[str], None] | None = None


def fault_point(name: str) -> None:
    """Fail here if a test has armed the point."""
    if _hook is not None:
        _hook(name)


@contextmanager
def arm_faults(hook: Callable[[str], None]) -> Iterator[None]:
    """Call `hook` with the name of every point that is reached."""
    global _hook  # noqa: PLW0603 - one process, one armed test
    if _hook is not None:
        raise RuntimeError("faults are armed already")
    _hook = hook
    try:
        yield
    finally:
        _hook = None
