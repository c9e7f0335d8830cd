"""Signals that wake a poll()."""

import os
import signal
from collections.abc import Callable, Iterable
from typing import Any


def wake_on_signals(handled: Iterable[int], handler: Callable[[int, Any], None]) -> int:
    """Run `handler` on signals, and return a pipe that becomes readable with each signal."""
    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in handled:
        signal.signal(number, handler)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    return wake_read
