"""Ports for the servers that tests start."""

import contextlib
import itertools
import os
import socket

# Ports below the kernel's ephemeral range, with a separate range for each process of a run.
FIRST, COUNT, RANGES = 12_000, 2_000, 10
_numbers = itertools.count(os.getpid())


def free_port() -> int:
    """Return a free port that no other process of this run will choose."""
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for number in itertools.islice(_numbers, COUNT):
        port = FIRST + process % RANGES * COUNT + number % COUNT
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("every port of this process's range is taken")
