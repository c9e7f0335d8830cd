"""Test that the books are right when the demo's real rounds are metered and settled in between."""

from __future__ import annotations

import threading
from datetime import timedelta

from django.db import connection
from django.db.models import F

from billing.checks import run_checks
from billing.models import Entry, PostedPrice, Transfer, UsageLine
from billing.tasks import meter
from portal.demo.philly import seed_demo
from scheduling.engine.clock import read_clock
from scheduling.engine.rounds import RoundOutcome, execute_round
from scheduling.models import Pool, PoolClock
from tests.round_states import left_by

ROUNDS = 30
STEP = timedelta(seconds=300)
CHECKS = 8


class TestDemo:
    def test_keeps_sound_books_over_hours_of_rounds(self, committed_db: str) -> None:
        seed_demo()
        pool = Pool.objects.get(name="philly")
        for number in range(ROUNDS):
            PoolClock.objects.update(anchor_pool=F("anchor_pool") + STEP)
            assert execute_round(pool.pk, now=read_clock(pool.pk)).outcome is RoundOutcome.COMMITTED
            if number % 3 == 0:
                meter("unknown", argument=True)
        meter()
        assert left_by(pool).number == ROUNDS
        assert [v for result in run_checks() for v in result.violations] == []
        assert PostedPrice.objects.count() == ROUNDS
        assert UsageLine.objects.filter(meter="own").count() > 100
        assert UsageLine.objects.filter(meter="borrowed", amount__gt=0).count() > 50
        assert Transfer.objects.count() > 5
        assert Entry.objects.filter(amount__gt=0).count() > 20

    def test_passes_checks_while_rounds_and_meters_run(self, committed_db: str) -> None:
        seed_demo()
        pool = Pool.objects.get(name="philly")
        done, enough = threading.Event(), threading.Event()

        def live() -> None:
            try:
                while not enough.is_set():
                    PoolClock.objects.update(anchor_pool=F("anchor_pool") + STEP)
                    execute_round(pool.pk, now=read_clock(pool.pk))
                    meter()
            finally:
                done.set()
                connection.close()

        thread = threading.Thread(target=live)
        thread.start()
        violations: list[str] = []
        checked = 0
        while not done.is_set() and not violations:
            violations = [v for result in run_checks() for v in result.violations]
            checked += 1
            if checked == CHECKS:
                enough.set()
        enough.set()
        thread.join()
        assert violations == []
