"""`evenshare-term -- program args`: for programs that know only SIGTERM.

The checkpoint signal becomes SIGTERM for the program. If the program ends because of it,
by the signal itself, with code 0 or with 143, the wrapper ends with 99: checkpointed. A
program cannot say whether it ended by itself at that moment; starting a finished one once
more loses nothing, counting an interrupted one as finished would. Every other code is
passed on, and a death by another signal becomes the wrapper's own death. No other signal
is forwarded, and no shell is used.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence

from evenshare.runtime.contract import CHECKPOINTED, ContractError, checkpoint_signal

USAGE = "usage: evenshare-term -- program [argument ...]"
NOT_STARTED = 127
ENDED_BY_TERM = (0, -signal.SIGTERM, 128 + signal.SIGTERM)


class Wrapper:
    """One program, and whether its checkpoint has been asked for."""

    def __init__(self, command: Sequence[str], wanted: signal.Signals) -> None:
        self._command = list(command)
        self._signal = wanted
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = self._forwarded = False

    def run(self) -> int:
        """The program's exit code (negative: its signal), or 99."""
        signal.signal(self._signal, self._on_signal)
        self._process = subprocess.Popen(
            self._command,
            # Safe: this process has one thread.
            preexec_fn=self._ignore_signal,  # noqa: PLW1509 - see above
        )
        self._forward()
        code = self._wait()
        return CHECKPOINTED if self._asked and code in ENDED_BY_TERM else code

    def _wait(self) -> int:
        assert self._process is not None
        while True:
            # The terminal sends Ctrl-C to the program as well; its end is awaited.
            with contextlib.suppress(KeyboardInterrupt):
                return self._process.wait()

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._asked = True
        self._forward()

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
    if len(argv) < 2 or argv[0] != "--":
        print(USAGE, file=sys.stderr)
        return 2
    try:
        code = Wrapper(argv[1:], checkpoint_signal(os.environ)).run()
    except (OSError, ContractError) as problem:
        print(f"evenshare-term: {argv[1]} could not be started: {problem}", file=sys.stderr)
        return NOT_STARTED
    if code < 0:
        _die_by(-code)
    return code


def _die_by(number: int) -> None:
    """End by the same signal, so that the executor sees what happened; without a core."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main())
