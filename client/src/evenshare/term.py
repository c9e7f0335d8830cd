"""`evenshare-term [--ok-codes 0,143] -- program args`: for programs that know only SIGTERM.

The checkpoint signal becomes SIGTERM for the program. If the program ends because of it, with
one of the codes that say it saved (0 and 143 unless named; the signal itself is 143), the wrapper
ends with 99: checkpointed. A program cannot say whether it ended by itself at that moment;
starting a finished one once more loses nothing, counting an interrupted one as finished would.
Every other code is passed on, and a death by another signal becomes the wrapper's own death. A
program that is not done a little before its grace is over is killed. What it leaves running is
killed with it. No other signal is forwarded, and no shell is used.
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
    """One program, and whether its checkpoint has been asked for."""

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
        """The program's exit code (negative: its signal), or 99."""
        signal.signal(self._signal, self._on_signal)
        signal.signal(signal.SIGALRM, self._on_time_up)
        adopt_orphans()
        self._process = subprocess.Popen(
            self._command,
            # Safe: this process has one thread.
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
            # The terminal sends Ctrl-C to the program as well; its end is awaited.
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
        """Once: many programs take a second SIGTERM as an order to drop everything."""
        if self._asked and not self._forwarded and self._process is not None:
            self._forwarded = True
            self._process.terminate()

    def _ignore_signal(self) -> None:
        # Where the whole process group is signalled, the program must not die of it.
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
    """Have what the program leaves running become ours, where the system can do that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """Kill what the program has left running, and what that leaves in turn."""
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
    """End by the same signal, so that the executor sees what happened; without a core."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main())
