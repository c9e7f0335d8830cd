"""Run a round, meter, settle and archive files, and fail at a named point.

Usage: round_process.py POOL INSTANT POINT:(kill|stop) HOLD_S [MODULE]; prints the point, then the
outcome. MODULE defines a POLICY for tests.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import datetime
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import django

django.setup()

# Models need Django's set-up, so the import is here.
from billing.metering import (  # noqa: E402 - after django.setup()
    log_transfers,
    meter_pool,
    settle_pool,
)
from billing.models import Book  # noqa: E402 - the same
from evenshare_core.policies import registry  # noqa: E402 - after django.setup()
from scheduling.engine.clock import PoolNow  # noqa: E402 - after django.setup()
from scheduling.engine.rounds import execute_round  # noqa: E402 - after django.setup()
from scheduling.engine.seal import seal_rounds  # noqa: E402 - after django.setup()
from scheduling.models import Pool  # noqa: E402 - the same
from tenants.faults import arm_faults  # noqa: E402 - after django.setup()
from tests.integration.archive_stage import keep_files  # noqa: E402 - the same
from tests.integration.outbox_stage import notify  # noqa: E402 - the same


def main(pool: str, instant: str, where: str, hold_s: str, module: str = "") -> None:
    """Run the round with its fault injected."""
    if module:
        policy = import_module(module).POLICY
        registry.POLICIES[policy.name] = policy
    point, _, how = where.partition(":")
    reached = False

    def fail(name: str) -> None:
        nonlocal reached
        if name == point and not reached:
            reached = True
            print(point, flush=True)
            os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)

    at = datetime.fromisoformat(instant)
    now = PoolNow(at, at, 1, paused=False)
    with arm_faults(fail):
        print(execute_round(int(pool), now=now, hold_s=float(hold_s)).outcome.value)
        seal_rounds(int(pool))
        meter_pool(int(pool))
        settle_pool(int(pool))
        for book in Book.objects.all():
            log_transfers(book)
        keep_files(Pool.objects.get(pk=int(pool)))
        notify(int(pool), at)


if __name__ == "__main__":
    main(*sys.argv[1:])
