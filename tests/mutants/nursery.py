"""Runs tests in forked processes, one after another, so that common modules are imported once.

Its arguments are libraries to import. A request is a line of JSON: the arguments of pytest, a part
of the environment, a limit in seconds, and a file for pytest's output. The response is a line with
pytest's status, or null after the limit. The program imports none of our code itself, so that each
process reads the current files.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from importlib import import_module

EVERY_S = 0.02


def main() -> None:
    for library in sys.argv[1:]:
        with suppress(Exception):
            import_module(library)
    for line in sys.stdin:
        request = json.loads(line)
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            os.environ.update(request["environment"])
            _run(request["arguments"], request["said"])
        status = _wait(pid, started + request["limit_s"])
        print(json.dumps({"status": status, "took_s": time.monotonic() - started}), flush=True)


def _run(arguments: list[str], said: str) -> None:
    """Run in a process with its own process group, so that all its children can be ended."""
    status = 3
    try:
        os.setsid()
        for source, target in ((os.devnull, 0), (said, 1), (said, 2)):
            opened = os.open(source, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            os.dup2(opened, target)
        import pytest

        status = int(pytest.main(arguments))
    except Exception:  # noqa: BLE001 - a plugin that cannot be imported: the change made it so
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait(pid: int, deadline: float) -> int | None:
    """Wait for the process, and end its group, because children may have outlived it."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    while not ended and time.monotonic() < deadline:
        time.sleep(EVERY_S)
        ended, status = os.waitpid(pid, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if ended:
        return os.waitstatus_to_exitcode(status)
    os.waitpid(pid, 0)
    return None


if __name__ == "__main__":
    main()
