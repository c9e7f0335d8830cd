"""Helpers of tests: polling, stopping processes, dropping databases, finding programs."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import psycopg
import pytest
from psycopg import sql

T = TypeVar("T")

# The longest wait for an expected event. Only a failing test waits this long, so the value is long
# enough for a busy machine. Processes that a test must end would run much longer than this.
PATIENCE_S = float(os.environ.get("EVENSHARE_TEST_PATIENCE_S", "300"))

# Packages with which `.ci/run` installs programs for tests; the message of a skip names them.
PACKAGES = {"chromium": "chromium", "caddy": "caddy"}


def require_tool(program: str) -> str:
    """Return the path of a program. If missing, skip the test, or fail it with REQUIRE_ALL=1."""
    path = shutil.which(program)
    if path:
        return path
    reason = f"{program} is not installed (apt-get install {PACKAGES.get(program, program)})"
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def eventually(probe: Callable[[], T], *, every_s: float = 0.05) -> T:
    """Call `probe` until its result is true, and return the result; fail after the longest wait."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > deadline:
            pytest.fail(f"still {answer!r} after {PATIENCE_S:g} s: {probe}")
        time.sleep(every_s)


def drop_database(connection: psycopg.Connection, name: str) -> None:
    connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """Stop processes during the block, and continue those that still exist afterwards."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            # Another test may have continued the process, which then ended.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
