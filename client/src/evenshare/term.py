"""`evenshare-term [--ok-codes 0,143] -- program args`: for programs that know only SIGTERM.

The checkpoint signal becomes SIGTERM for the program. If the program then ends with a code that
means saved, the wrapper ends with 99: checkpointed. These codes are 0 and 143 by default; a death
by the signal is 143. The program cannot report whether it ended by itself at this moment.
Restarting a finished program loses nothing; treating an interrupted one as finished would. Every
other code is passed on, and a death by another signal becomes the wrapper's own death. A program
that is still running shortly before the end of its grace is killed, and so are the processes that
it leaves. No other signal is forwarded, and no shell is used.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from evenshare.runtime.contract import (
    CHECKPOINTED,
    ContractError,
    checkpoint_signal,
    grace_seconds,
    margin_seconds,
)

USAGE = "usage: evenshare-term [--ok-codes 0,143] -- program [argument ...]"
NOT_STARTED = 127
OK_CODES = frozenset({0, 128 + signal.SIGTERM})
PR_SET_CHILD_SUBREAPER = 36


class Wrapper:
    """A running program, and whether it was asked to checkpoint."""

    def __init__(
        self,
        command: Sequence[str],
        wanted: signal.Signals,
        ok_codes: Collection[int] = OK_CODES,
        grace_s: float | None = None,
    ) -> None:
        self._command = list(command)
        self._signal = wanted
        self._ok_codes = ok_codes
        self._grace_s = grace_s
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = self._forwarded = False

    def run(self) -> int:
        """Return the program's exit code (negative: its signal), or 99."""
        signal.signal(self._signal, self._on_signal)
        signal.signal(signal.SIGALRM, self._on_time_up)
        adopt_orphans()
        self._process = subprocess.Popen(
            self._command,
            # Safe, because this process has one thread.
            preexec_fn=self._ignore_signal,  # noqa: PLW1509 - see above
        )
        self._forward()
        code = self._wait()
        signal.setitimer(signal.ITIMER_REAL, 0)
        end_orphans()
        said = 128 + signal.SIGTERM if code == -signal.SIGTERM else code
        return CHECKPOINTED if self._asked and said in self._ok_codes else code

    def _wait(self) -> int:
        assert self._process is not None
        while True:
            # The terminal sends Ctrl-C to the program as well, so wait for its end.
            with contextlib.suppress(KeyboardInterrupt):
                return self._process.wait()

    def _on_signal(self, _number: int, _frame: object) -> None:
        if not self._asked and self._grace_s is not None:
            left_s = self._grace_s - margin_seconds(self._grace_s)
            signal.setitimer(signal.ITIMER_REAL, max(left_s, 0.001))
        self._asked = True
        self._forward()

    def _on_time_up(self, _number: int, _frame: object) -> None:
        if self._process is not None:
            self._process.kill()

    def _forward(self) -> None:
        """Send SIGTERM once, because many programs exit immediately at a second one."""
        if self._asked and not self._forwarded and self._process is not None:
            self._forwarded = True
            self._process.terminate()

    def _ignore_signal(self) -> None:
        # If the whole process group gets the signal, the program must survive it.
        signal.signal(self._signal, signal.SIG_IGN)


def main(arguments: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv in (["--help"], ["-h"]):
        print(__doc__)
        return 0
    ok_codes = OK_CODES
    with contextlib.suppress(ValueError):
        if argv[:1] == ["--ok-codes"]:
            ok_codes = frozenset(int(code) for code in "".join(argv[1:2]).split(","))
            argv = argv[2:]
    if len(argv) < 2 or argv[0] != "--":
        print(USAGE, file=sys.stderr)
        return 2
    try:
        wanted, grace_s = checkpoint_signal(os.environ), grace_seconds(os.environ)
        code = Wrapper(argv[1:], wanted, ok_codes, grace_s).run()
    except (OSError, ContractError) as problem:
        print(f"evenshare-term: {argv[1]} could not be started: {problem}", file=sys.stderr)
        return NOT_STARTED
    if code < 0:
        _die_by(-code)
    return code


def adopt_orphans() -> None:
    """Adopt processes that the program leaves running, if the system supports it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """Kill the processes that the program has left running, and their children."""
    while children := _children():
        for pid in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()]
    except OSError:
        return []


def _die_by(number: int) -> None:
    """End by the same signal without a core dump, so that the executor sees the cause."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main())
