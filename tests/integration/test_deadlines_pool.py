"""The demo pool `deadlines`: who asks is answered, plans move, some deadlines are met and missed."""

from __future__ import annotations

import csv
import gzip

import pytest

from billing.checks import run_checks
from evenshare_core.domain.deadlines import DeadlineState
from portal.demo.data import DATA
from portal.demo.deadlines import BEGIN, MAINTAINED, POOL, QUOTAS
from portal.demo.deadlines_trace import COLUMNS, deadline_rows
from portal.demo.philly import seed_demo
from scheduling.models import Job, MaintenanceWindow, Pool, Quota
from scheduling.selectors.replay import round_decision
from tests.factories import Cluster

STEP_S = POOL.round_s * POOL.scale
# Four hours of pool time: a whole cycle and the next one's calm.
ROUNDS = 4 * 3600 // STEP_S


@pytest.fixture
def pool(committed_db: str) -> Pool:  # noqa: ARG001 - the fixture is what is wanted of it
    seed_demo()
    return Pool.objects.get(name=POOL.name)


class TestTheTrace:
    def test_is_what_its_seed_draws(self) -> None:
        with gzip.open(DATA / f"{POOL.trace}.csv.gz", "rt", newline="") as file:
            rows = list(csv.reader(file))
        assert rows == [list(COLUMNS), *([str(cell) for cell in row] for row in deadline_rows())]
