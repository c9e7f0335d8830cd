"""Ends the process tree when its supervisor is gone, even after a kill -9.

The supervisor starts this file as a child. Through a pipe it reports the live process groups: `+
GROUP STAGE SIGNAL` and `- GROUP`. The end of the pipe means that the supervisor is gone. The groups
are then ended by stage, lowest first, so that the database outlives its clients. It uses only the
standard library and imports no package: it must start fast and stay small.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

# Seconds that a stage has to end. Stage 1 writes its state and ends its own children, such as
# Slurm's jobs.
GRACE_S = {0: 3.0, 1: 20.0}


class Watchdog:
    """The supervisor's end of the pipe."""

    def __init__(self, held: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", __file__],
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=tuple(held),
        )

    def watch(self, group: int, stage: int, stop: signal.Signals) -> None:
        self._tell(f"+ {group} {stage} {int(stop)}")

    def forget(self, group: int) -> None:
        self._tell(f"- {group}")

    def __enter__(self) -> "Watchdog":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        # A killed watchdog must not end the portal.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    groups: dict[int, tuple[int, int]] = {}
    for line in sys.stdin:
        fields = line.split()
        if fields[0] == "+":
            groups[int(fields[1])] = (int(fields[2]), int(fields[3]))
        else:
            groups.pop(int(fields[1]), None)
    for stage in sorted({stage for stage, _ in groups.values()}):
        members = {group: stop for group, (at, stop) in groups.items() if at == stage}
        end_groups(members, GRACE_S.get(stage, 5.0))


def end_groups(groups: dict[int, int], grace_s: float) -> None:
    """Send each leader its own signal, wait, then kill the rest of its group."""
    for leader, stop in groups.items():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(leader, stop)
            # A stopped process would not receive its signal.
            os.killpg(leader, signal.SIGCONT)
    deadline = time.monotonic() + grace_s
    while any(alive(leader) for leader in groups) and time.monotonic() < deadline:
        time.sleep(0.02)
    for leader in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        # No /proc (macOS): there the parent collects zombies, and signal 0 is reliable.
        return not Path("/proc/self").is_dir()
    return state not in ("Z", "X")


if __name__ == "__main__":
    main()
