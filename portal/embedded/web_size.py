"""The number of web processes for this machine, and the database connections of each.

`python -m portal.embedded.web_size` prints both, for `deploy/entrypoint.sh`.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from portal.embedded.errors import StartError

# The default's maximum: one database cannot serve more.
MOST_BY_ITSELF, MOST = 4, 12
# The machine's memory per web process, which itself uses about a third of it.
MEMORY_EACH = 512 * 2**20
# Eight for pages, two for log-ins, three in reserve (portal/site/lanes.py). If there are many
# processes, each has fewer.
CONNECTIONS, CONNECTIONS_LEAST = 13, 6
# Maximum of all web processes together. PostgreSQL has 100; workers and people use the others.
CONNECTIONS_OF_ALL = 72
CGROUP = Path("/sys/fs/cgroup")


class WebSize(NamedTuple):
    """Web processes, and the connections of each."""

    processes: int
    connections: int


def web_size(environment: Mapping[str, str], cgroup: Path = CGROUP) -> WebSize:
    """Return `WEB_PROCESSES`, by default what fits the machine.

    Raises:
        StartError: the variable is not a valid number of processes.
    """
    given = environment.get("WEB_PROCESSES", "")
    if given and not (given.isdecimal() and len(given) < 4 and 1 <= int(given) <= MOST):
        raise StartError(f"WEB_PROCESSES must be a number from 1 to {MOST}, not {given!r}")
    processes = int(given) if given else min(cores(cgroup), _fit(cgroup), MOST_BY_ITSELF)
    connections = min(CONNECTIONS, CONNECTIONS_OF_ALL // processes)
    return WebSize(processes, max(CONNECTIONS_LEAST, connections))


def cores(cgroup: Path = CGROUP) -> int:
    """Return the cores that this process may use, by its affinity and its container's limit."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limit, _, period = _read(cgroup / "cpu.max").partition(" ")
    if limit.isdecimal() and period.isdecimal() and int(period):
        usable = min(usable or 1, max(1, int(limit) // int(period)))
    return usable or 1


def memory(cgroup: Path = CGROUP) -> int:
    """Return the memory of this machine, or its container's limit if that is less, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read(cgroup / "memory.max")
    return min(total, int(limit)) if limit.isdecimal() else total


def _fit(cgroup: Path) -> int:
    return max(1, memory(cgroup) // MEMORY_EACH)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


if __name__ == "__main__":
    try:
        print(*web_size(os.environ))
    except StartError as error:
        sys.exit(f"refused: {error}")
