"""A process that runs a pool's rounds once a second, as the worker does, until it is killed.

Usage: python -m benchmarks.rounds_process ROOT POOL; ROOT is the folder of the jobs' files.
"""

import sys
import time

import django

ROUND_S = 1.0


def main(root: str, pool_id: int) -> None:
    """Run rounds until the process is killed."""
    django.setup()
    from django.conf import settings

    from scheduling.engine.clock import read_clock
    from scheduling.engine.rounds import execute_round

    settings.LOCAL_ROOT = root
    while True:
        began = time.monotonic()
        execute_round(pool_id, now=read_clock(pool_id))
        time.sleep(max(0.0, ROUND_S - (time.monotonic() - began)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
