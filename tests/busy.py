"""Run a command next to busy processes: `python -m tests.busy 16 make test`.

Each busy process has its own session. Linux may share processors between sessions (autogroup). Then
many processes of one shell would together get no more than the command does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# The endless loop ends with its parent process, whatever ends that process.
BUSY = "import os\nwhile os.getppid() == {parent}: pass"


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Run `processes` endless loops until the block ends."""
    command = [sys.executable, "-S", "-E", "-c", BUSY.format(parent=os.getpid())]
    started = [subprocess.Popen(command, start_new_session=True) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def main(processes: str, *command: str) -> int:
    """Run the command next to busy processes; return its exit status."""
    with busy(int(processes)):
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
