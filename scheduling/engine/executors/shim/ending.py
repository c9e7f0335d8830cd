"""Ends every shim of a root folder, when the supervisor ends."""

import signal
import time
from pathlib import Path
from typing import Any

from .files import SPEC_BYTES, active, lease_folder, number, read_json
from .processes import REAP_S, is_alive, signal_process

SLACK_S = 2.0


def end_all(root: Path, *, at_once: bool = False) -> None:
    """Make every shim checkpoint and end, and kill those that do not.

    `at_once`, or a signal to this process, cuts the grace short. Programs die with their shim.
    """
    impatient: list[int] = []
    for impatience in (signal.SIGTERM, signal.SIGINT):
        signal.signal(impatience, lambda got, _frame: impatient.append(got))
    shims = living(root)
    grace_s = max((grace for _, grace in shims), default=0.0)
    if not at_once and _end(shims, signal.SIGTERM, grace_s + SLACK_S, impatient):
        return
    if not _end(shims, signal.SIGQUIT, REAP_S + SLACK_S, []):
        _end(shims, signal.SIGKILL, SLACK_S, [])


def _end(
    shims: list[tuple[dict[str, Any], float]],
    ask: signal.Signals,
    patience_s: float,
    impatient: list[int],
) -> bool:
    """Signal the shims and wait; return whether all have ended."""
    for shim, _ in shims:
        signal_process(shim, ask)
    deadline = time.monotonic() + patience_s
    while any(is_alive(shim) for shim, _ in shims):
        if impatient or time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def living(root: Path) -> list[tuple[dict[str, Any], float]]:
    """Return the claims of running shims, and the grace of their programs in seconds."""
    shims = []
    for entry in active(root):
        folder = lease_folder(root, entry.name)
        shim = read_json(folder / "shim.json")
        if shim is not None and is_alive(shim):
            spec = read_json(folder / "spec.json", at_most=SPEC_BYTES) or {}
            shims.append((shim, number(spec.get("grace_s"), 0.0)))
    return shims
