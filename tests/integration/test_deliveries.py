"""Test wake-ups of the meter delivered repeatedly, in any order, to four workers at once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from billing.checks import run_checks
from billing.metering import meter_pool, settle_pool
from billing.models import Account, Entry, Transfer
from tenants.models import Budget, DailySpend
from tests.integration.metering_story import Story, lines_and_shares

WORKERS, SEED = 4, 20260504
pytestmark = pytest.mark.usefixtures("committed_db")


def busy_hours() -> Story:
    """Write 24 leases of three tenants in two hours, some renewed; a round in the third hour."""
    story = Story({"a": 1, "b": 3, "c": 4})
    story.limit("a", 50)
    running = []
    for minute in range(0, 110, 5):
        price = f"0.{100 + minute}00{minute % 7}"
        story.post_round(minute, price=price)
        terms = {"own": minute % 2, "borrowed": 1 + minute % 3, "price": price}
        running.append(story.run(minute, "abc"[minute // 5 % 3], **terms))
        if len(running) > 3:
            story.end(minute + 1, running.pop(0))
        if minute % 15 == 10:
            story.renew(minute + 2, running[0], price=price)
    for lease in running:
        story.end(115, lease)
    story.post_round(180)
    return story


def books() -> dict[str, Any]:
    """Return all rows of billing, without row ids and wall times."""
    return {
        "lines": lines_and_shares(),
        "transfers": sorted(Transfer.objects.values_list("id", "code", "tenant_id", "hour")),
        "entries": [
            *Entry.objects.order_by("transfer_id", "account__tenant_id", "amount").values_list(
                "transfer_id", "account__tenant_id", "amount"
            )
        ],
        "accounts": [
            *Account.objects.order_by("tenant_id").values_list("tenant_id", "balance", "overrun")
        ],
        "budgets": sorted(Budget.objects.values_list("tenant_id", "spendable", "reserved")),
        "spend": sorted(DailySpend.objects.values_list("tenant_id", "day", "amount")),
    }


def once(story: Story) -> dict[str, Any]:
    """Return the books after each event was delivered once and in order; roll back."""
    with transaction.atomic():
        story.meter()
        story.settle()
        expected = books()
        transaction.set_rollback(True)
    return expected


def in_four_threads(deliveries: list[Callable[[], object]]) -> list[Exception]:
    """Divide the deliveries among four threads; return the errors."""
    errors: list[Exception] = []
    barrier = threading.Barrier(WORKERS)

    def work(mine: list[Callable[[], object]]) -> None:
        try:
            barrier.wait()
            for deliver in mine:
                deliver()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)
        finally:
            connection.close()

    workers = [
        threading.Thread(target=work, args=(deliveries[index::WORKERS],))
        for index in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return errors


def test_repeated_deliveries_leave_same_books_as_one() -> None:
    """The test makes 1,000 deliveries, a tenth of the number before a release."""
    story = busy_hours()
    pool = story.pool.pk
    expected = once(story)
    assert not Entry.objects.exists()
    chance = random.Random(SEED)  # noqa: S311 - a seeded order
    deliveries: list[Callable[[], object]] = []
    for _ in range(200):
        limit = chance.choice([1, 2, 3, 5, 8])
        deliveries += [partial(meter_pool, pool, limit=limit)] * chance.randint(1, 5)
        deliveries += [partial(settle_pool, pool)] * chance.randint(1, 5)
    chance.shuffle(deliveries)
    assert len(deliveries) >= 1000
    errors = in_four_threads(deliveries)
    assert errors == []
    # A busy worker may leave the rest to its next wake-up.
    story.meter()
    story.settle()
    assert books() == expected
    assert [(result.name, result.violations) for result in run_checks() if not result.ok] == []
