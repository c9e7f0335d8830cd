"""Checks of docs/features.md that need a real browser, each as a whole.

A class is a feature; its docstring has the number and the text of its check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from scheduling.models import Job
from tenants.models import Membership, Quota
from tests.browser.axe import serious
from tests.browser.keyboard import tab_to
from tests.browser.session import give_session
from tests.functional.visitors import Town, town, visitor
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
        says = re.compile(r"stale\s+since \d\d:\d\d, wall clock")
        eventually(lambda: says.search(line.inner_text()) is not None)


ZONE = "Asia/Kolkata"


class TestAccess:
    """36. In German and in local time with UTC on hover, a job is submitted by keyboard.

    So a request for quota is made and approved. Axe finds nothing serious in light or dark.
    """

    def test_submits_requests_and_approves_by_keyboard_in_german(
        self, there: Town, site: str, browser: Browser
    ) -> None:
        boss = abroad(browser, site, visitor("nia", there.tenant, Membership.Role.MANAGER))
        boss.goto("/t/north/jobs/new/")
        found = serious(boss)
        tab_to(boss, "#group-deadlines summary")
        boss.keyboard.press("Enter")
        tab_to(boss, "#f-duration_s")
        boss.keyboard.type("60")
        tab_to(boss, "#submit")
        boss.keyboard.press("Enter")
        boss.wait_for_url("**/jobs/*-*/")
        assert Job.objects.filter(tenant=there.tenant, state="pending").exists()
        found += serious(boss)

        boss.goto("/t/north/")
        tab_to(boss, "main a[href*='/quota/']")
        boss.keyboard.press("Enter")
        boss.wait_for_selector("#ask")
        tab_to(boss, "#q-gpus")
        boss.keyboard.type("6")
        tab_to(boss, "#q-reason")
        boss.keyboard.type("Frist")
        boss.keyboard.press("Enter")  # the first button: the preview
        boss.wait_for_selector("#impact")
        found += serious(boss)
        tab_to(boss, "button[value=ask]")
        boss.keyboard.press("Enter")
        boss.wait_for_selector(".toast")
        found += serious(boss)
        boss.context.close()

        page = abroad(browser, site, there.operator)
        page.goto("/operate/")
        tab_to(page, "#t-requests a")
        page.keyboard.press("Enter")
        page.wait_for_selector("#impact")
        found += serious(page)
        asked = page.locator("main dd time").first
        at = datetime.fromisoformat(asked.get_attribute("datetime") or "")
        assert asked.inner_text() == f"{at.astimezone(ZoneInfo(ZONE)):%Y-%m-%d %H:%M:%S}"
        assert "UTC" in (asked.get_attribute("title") or "")
        tab_to(page, "#d-answer")
        page.keyboard.type("ja")
        tab_to(page, "button[value=approve]")
        page.keyboard.press("Enter")
        page.wait_for_selector(".toast")
        found += serious(page)
        page.context.close()
        assert found == []
        assert Quota.objects.get(tenant=there.tenant, valid_until=None).gpus == 6


def abroad(browser: Browser, site: str, client: Client) -> Page:
    """Return a page of a signed-in German browser in another time zone."""
    context = browser.new_context(base_url=site, locale="de-DE", timezone_id=ZONE)
    give_session(context, client, site)
    page = context.new_page()
    page.goto("/account/")
    assert page.get_attribute("html", "lang") == "de"
    return page
