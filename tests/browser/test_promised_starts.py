"""Test the story of a promised start in a real browser: promised, backfilled, lost, started."""

from __future__ import annotations

import re
from datetime import datetime, time
from typing import TYPE_CHECKING

import pytest

from scheduling.models import Lease, Node
from scheduling.selectors.rounds.promised_starts import pinned_until
from tests.browser.axe import serious
from tests.browser.complaints import complaints_of
from tests.browser.session import give_session
from tests.functional.pool_stage import Stage
from tests.functional.test_promised_starts import DUE, gang, promised_stage
from tests.stages import Copy, copied, name_of_copy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

copy = copied(promised_stage)
committed_db = name_of_copy


@pytest.fixture
def there(copy: Copy[Stage]) -> Stage:
    return copy.made


def shown(page: Page, path: str) -> str:
    page.goto(path)
    assert serious(page) == [], path
    return " ".join(page.inner_text("main").split())


def latest_start(words: str) -> str:
    """Return the time that a job's page promises."""
    (time,) = set(re.findall(r"Starts by (\d\d:\d\d:\d\d) at the latest", words))
    return str(time)


def test_gang_starts_by_the_time_that_its_page_states(
    there: Stage, site: str, browser: Browser
) -> None:
    context = browser.new_context(base_url=site)
    give_session(context, there.client("neighbour"), site)
    page = context.new_page()
    complaints = complaints_of(page)
    job = f"/jobs/{gang().uid}/"
    assert latest_start(shown(page, job)) == "00:15:00"
    assert "held back for the promised start of a job" in shown(page, there.url())
    # Small jobs run on the held GPU.
    small = [there.lab.submit("gamma", 1, 40_000) for _ in range(6)]
    there.lab.round(after_s=10)
    started = Lease.objects.filter(job__in=small).values_list("job_id", flat=True)
    pinned = [pinned_until(there.lab.pool.pk, job_id) for job_id in started]
    assert DUE in pinned
    # A node is lost, so the promise ends, and another node is promised.
    node = Lease.objects.filter(tenant__slug="alpha").earliest("id").placement[0][0]
    Node.objects.filter(pk=node).update(state="drained")
    there.lab.round(after_s=10)
    words = shown(page, job)
    assert "Promise ended: the start by 00:15:00 no longer holds" in words
    latest = latest_start(words)
    start = datetime.combine(there.lab.at, time.fromisoformat(latest), there.lab.at.tzinfo)
    there.lab.round(after_s=(start - there.lab.at).seconds)
    assert "Running" in shown(page, job)
    assert complaints == []
    context.close()
