"""What tests share: polling, stopped processes, databases to drop, programs not installed."""

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

# How long a test waits for what must come. Only a test that fails waits so long: the number is
# for a machine with many other things to do, and asserts nothing. What a test has end would go
# on for much longer by itself.
PATIENCE_S = float(os.environ.get("EVENSHARE_TEST_PATIENCE_S", "300"))

# How `.ci/run` gets what a test may want; a skip names it.
PACKAGES = {"chromium": "chromium", "caddy": "caddy"}


def require_tool(program: str) -> str:
    """The path of a program; without it the test skips, or fails where REQUIRE_ALL=1."""
    path = shutil.which(program)
    if path:
        return path
    reason = f"{program} is not installed (apt-get install {PACKAGES.get(program, program)})"
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def eventually(probe: Callable[[], T], *, every_s: float = 0.05) -> T:
    """Call until the answer is true, and return it; out of patience, fail with the last one."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > deadline:
            pytest.fail(f"still {answer!r} after {PATIENCE_S:g} s: {probe}")
        time.sleep(every_s)


def drop_database(connection: psycopg.Connection, name: str) -> None:
    """Drop a database with whatever connections it still has."""
    connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """Stop processes, and let those that are left go on afterwards."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            # Somebody else may have let it go on, and it has ended.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
