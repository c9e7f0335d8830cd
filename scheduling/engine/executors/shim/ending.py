"""Ends every shim of a root folder: what the supervisor does at its own end."""

import signal
import time
from pathlib import Path
from typing import Any

from .files import active, lease_folder, read_json
from .processes import REAP_S, is_alive, signal_process

SLACK_S = 2.0


def end_all(root: Path) -> None:
    """Have every shim checkpoint and end; a signal to us takes their grace away.

    A shim that does not even end then is killed: its program dies with it.
    """
    impatient: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _frame: impatient.append(got))
    shims = living(root)
    grace_s = max((grace for _, grace in shims), default=0.0)
    limits = ((signal.SIGTERM, grace_s), (signal.SIGQUIT, REAP_S), (signal.SIGKILL, REAP_S))
    for number, patience_s in limits:
        for shim, _ in shims:
            signal_process(shim, number)
        began = time.monotonic()
        while time.monotonic() - began < patience_s + SLACK_S:
            if not any(is_alive(shim) for shim, _ in shims):
                return
            if impatient and number is signal.SIGTERM:
                break
            time.sleep(0.05)


def living(root: Path) -> list[tuple[dict[str, Any], float]]:
    """The claims of living shims with the grace of their programs, in seconds."""
    found = []
    for entry in active(root):
        folder = lease_folder(root, entry.name)
        shim = read_json(folder / "shim.json")
        if shim is not None and is_alive(shim):
            spec = read_json(folder / "spec.json", at_most=2**25) or {}
            found.append((shim, float(spec.get("grace_s", 0.0))))
    return found
