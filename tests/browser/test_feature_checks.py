"""Checks of docs/features.md that need a real browser, each as a whole.

A class is a feature; its docstring has the number and the text of its check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from scheduling.models import Job
from tests.browser.session import give_session
from tests.functional.visitors import Town, town
from tests.tools import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def there(committed_db: str) -> Town:
    """Return a pool whose rounds the test runs."""
    assert committed_db
    made = town()
    made.submit(tenant="south")
    made.play(1)
    return made


@pytest.fixture
def page(there: Town, site: str, browser: Browser) -> Iterator[Page]:
    """Yield a page, signed in as a member of north."""
    context = browser.new_context(base_url=site, viewport={"width": 1280, "height": 900})
    give_session(context, there.owner, site)
    yield context.new_page()
    context.close()


class TestFormAndYaml:
    """1. A GPU count changed in one changes in both; submitting lands on /jobs/<id> as queued."""

    def test_stay_in_sync_and_submit_queued_job(self, there: Town, page: Page) -> None:
        page.goto("/t/north/jobs/new/")
        page.fill("#f-gpus", "3")
        eventually(lambda: "gpus: 3\n" in page.input_value("#yaml"))
        page.fill("#yaml", page.input_value("#yaml").replace("gpus: 3", "gpus: 2"))
        eventually(lambda: page.input_value("#f-gpus") == "2")
        page.click("#group-deadlines summary")
        page.fill("#f-duration_s", "60")
        page.locator("#answer-says", has_text="It fits now").wait_for()
        page.click("#submit")
        page.wait_for_url("**/jobs/*-*/")
        job = Job.objects.get(tenant=there.tenant)
        assert page.url.endswith(f"/jobs/{job.uid}/")
        assert (job.state, job.gpus) == ("pending", 2)
        page.locator("h1", has_text="Queued").wait_for()


class TestOpenPage:
    """16. Without reload, an open page shows a job's start within one round.

    With the server stopped, the page says "stale since hh:mm".
    """

    def test_shows_start_within_one_round_and_server_outage(self, there: Town, page: Page) -> None:
        job = there.submit()
        page.goto(f"/jobs/{job.uid}/")
        page.evaluate("window.sameDocument = true")
        page.locator("h1", has_text="Queued").wait_for()
        there.play(1)
        # No other round runs before the page shows "Running".
        page.locator("h1", has_text="Running").wait_for()
        assert there.cluster.pool.rounds.count() == 2
        assert page.evaluate("window.sameDocument") is True
        page.route("**/*", lambda route: route.abort("connectionrefused"))
        line = page.locator("#round-line")
        says = re.compile(r"stale\s+since \d\d:\d\d")
        eventually(lambda: says.search(line.inner_text()) is not None)
