"""Processes by pid and start time, and their descendants, as /proc shows them."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# The longest wait for a killed process. A process that takes longer hangs in the kernel.
REAP_S = 10.0


def end_descendants(reaped: Callable[[int, int], None]) -> bool:
    """Kill every process below this one, in any session; return False if some remain.

    This process is a subreaper and inherits every orphan, so if it has no child, it has no
    descendant.
    """
    deadline = time.monotonic() + REAP_S
    while time.monotonic() < deadline:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                reaped(*ended)
        except ChildProcessError:
            return True
        time.sleep(0.005)
    return False


def descendants(root: int) -> list[int]:
    """Return every process below `root`, by the parents in /proc."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names only, many of them
        if entry.isdecimal() and (fields := _stat(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    pids, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        pids += below
        todo += below
    return pids


def start_of_process(pid: int) -> int:
    """Return a process's start in ticks since boot; 0 if it is gone, or a zombie."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else 0


def boot_id() -> str:
    """Return the id of this boot: pids and start times are valid only within one boot."""
    with contextlib.suppress(FileNotFoundError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def is_alive(record: Mapping[str, Any]) -> bool:
    """Return whether the process of a claim still runs: the same pid, start and boot."""
    try:
        pid, start = int(record["pid"]), int(record["start"])
    except (KeyError, TypeError, ValueError):
        return False
    return start > 0 and record.get("boot") == boot_id() and start_of_process(pid) == start


def signal_process(record: Mapping[str, Any], number: signal.Signals) -> bool:
    """Signal the process of a claim, never a later process with its pid."""
    try:
        descriptor = os.pidfd_open(int(record["pid"]))
    except (OSError, KeyError, TypeError, ValueError):
        return False
    try:
        if not is_alive(record):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def shim_folder(pid: int) -> str:
    """Return the folder whose shim a process is; empty if it is no shim."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    is_one = len(command) > 5 and command[1:3] == [b"-I", b"-S"]
    return os.fsdecode(command[-2]) if is_one else ""


def is_leader(pid: int) -> bool:
    """Return whether a process leads its session, as a shim's program does."""
    fields = _stat(pid)
    return bool(fields) and fields[3] == str(pid)


def marked(environment: Mapping[str, str]) -> list[int]:
    """Return the processes whose readable environment contains all of these variables."""
    marks = [f"{key}={value}".encode() for key, value in environment.items()]
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if set(marks) <= set((entry / "environ").read_bytes().split(b"\0")):
                    pids.append(int(entry.name))
    return pids


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
