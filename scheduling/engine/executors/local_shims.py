"""Running shims of `local`, identified through the kernel's list of processes.

A job can write any pid into the files of its lease. So a process counts as a shim only if its
command line names the lease's folder. Without a hint all of /proc is searched, once.
"""

import os
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from evenshare_core.units import MICROSECOND_NS, MILLISECOND_NS
from scheduling.engine.executors.shim.processes import (
    boot_id,
    is_alive,
    is_leader,
    shim_folder,
    start_of_process,
)

_TICK_NS = 1000 * MILLISECOND_NS // os.sysconf("SC_CLK_TCK")


class LivingShim(NamedTuple):
    """A shim's process, with its start in microseconds of wall time.

    `record` distinguishes it from other processes that have had the same pid.
    """

    record: dict[str, Any]
    began_us: int


class LivingShims:
    """The shims that run on this machine, searched at most once per object."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of(self, folder: Path, *hints: Mapping[str, Any] | None) -> LivingShim | None:
        """Return the running shim of a lease's folder; `hints` are records that may name it."""
        for hint in hints:
            if hint is not None and is_alive(hint) and is_shim(int(hint["pid"]), folder):
                return _living(int(hint["pid"]))
        pid = self._searched.get(str(folder))
        return None if pid is None else _living(pid)

    @cached_property
    def _searched(self) -> dict[str, int]:
        """Return the shim of each folder below the root; if there are several, the earliest."""
        shims: dict[str, int] = {}
        below = f"{self._root}/"
        for name in os.listdir("/proc"):  # noqa: PTH208 - names only, many of them
            if name.isdecimal():
                folder = shim_folder(int(name))
                if folder.startswith(below) and is_leader(int(name)):
                    first = shims.setdefault(folder, int(name))
                    shims[folder] = min(first, int(name), key=start_of_process)
        return shims


def is_shim(pid: int, folder: Path) -> bool:
    """Return whether a process is the shim of a lease's folder, and not a helper that it forked."""
    return shim_folder(pid) == str(folder) and is_leader(pid)


def _living(pid: int) -> LivingShim | None:
    start = start_of_process(pid)
    if not start:
        return None
    record = {"pid": pid, "start": start, "boot": boot_id()}
    ago_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - start * _TICK_NS
    return LivingShim(record, (time.time_ns() - ago_ns) // MICROSECOND_NS)
