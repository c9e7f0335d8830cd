"""The number of concurrent rounds of different pools: processes of the rounds worker.

`python -m portal.embedded.round_processes` prints it, for `deploy/entrypoint.sh`.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from portal.embedded.errors import StartError
from portal.embedded.web_size import CGROUP, cores

# The default's maximum: a round uses one core, and web processes need some.
MOST_BY_ITSELF, MOST = 4, 8


def round_processes(environment: Mapping[str, str], cgroup: Path = CGROUP) -> int:
    """Return `ROUND_PROCESSES`, by default one per two cores.

    Raises:
        StartError: the variable is not a valid number of processes.
    """
    given = environment.get("ROUND_PROCESSES", "")
    if given and not (given.isdecimal() and len(given) < 4 and 1 <= int(given) <= MOST):
        raise StartError(f"ROUND_PROCESSES must be a number from 1 to {MOST}, not {given!r}")
    return int(given) if given else max(1, min(cores(cgroup) // 2, MOST_BY_ITSELF))


if __name__ == "__main__":
    try:
        print(round_processes(os.environ))
    except StartError as error:
        sys.exit(f"refused: {error}")
