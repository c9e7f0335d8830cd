"""Test two workers that meter and settle the same pool at the same time."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from billing.metering import Metered, Settled, meter_pool, settle_pool
from billing.metering.cursor import lock_cursor
from billing.models import UsageLine
from tenants.scopes import engine_scope
from tests.integration.metering_story import Story, at
from tests.tools import PATIENCE_S


@pytest.mark.usefixtures("committed_db")
def test_pool_locked_by_other_worker_is_skipped() -> None:
    story = Story()
    story.end(10, story.run(0, "a", own=4, borrowed=2, price="3.000000"))
    story.post_round(60)
    has, done = threading.Event(), threading.Event()

    def hold() -> None:
        with engine_scope(story.pool.pk):
            lock_cursor(story.pool.pk)
            has.set()
            done.wait(PATIENCE_S)
        connection.close()

    meter_pool(story.pool.pk, limit=1)  # this creates the cursor
    thread = threading.Thread(target=hold)
    thread.start()
    assert has.wait(PATIENCE_S)
    assert meter_pool(story.pool.pk) == Metered(events=0, lines=0, busy=True)
    assert settle_pool(story.pool.pk) == Settled(transfers=0, until=None, busy=True)
    done.set()
    thread.join()
    assert not UsageLine.objects.exists()
    assert story.meter().lines == 2
    assert story.settle() == Settled(transfers=1, until=at(60), busy=False)
