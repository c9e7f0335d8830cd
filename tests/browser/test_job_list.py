"""Test the list of jobs in a real browser: from the menu to own jobs, and to a result for each."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from scheduling.models import Job
from tenants.models import User
from tenants.tokens import Scope, create_token
from tests.browser.axe import serious
from tests.browser.complaints import complaints_of
from tests.browser.session import give_session
from tests.functional.visitors import Town, town
from tests.stages import Copy, copied, name_of_copy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

JOBS = 3


def busy_town() -> Town:
    """Create a town in which ada and another person have jobs."""
    there = town()
    for number in range(2 * JOBS):
        name = "ada" if number < JOBS else "bea"
        Job.objects.filter(pk=there.submit(8).pk).update(
            name=f"{name}-{number}",
            submitted_by=User.objects.get(username=name),
            tags=["a-long-tag-of-thirty-characters"] * (number % 2),
        )
    there.play()
    return there


copy = copied(busy_town)
committed_db = name_of_copy


@pytest.fixture
def page(copy: Copy[Town], site: str, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(base_url=site, timezone_id="Asia/Tokyo", locale="en-GB")
    give_session(context, copy.made.owner, site)
    yield context.new_page()
    context.close()


class TestJobList:
    def test_finds_own_jobs_and_acts_on_them(self, page: Page) -> None:
        complaints = complaints_of(page)
        page.goto("/t/north/")
        page.get_by_role("navigation", name="Main").get_by_role("link", name="Jobs").click()
        assert page.url.endswith("/t/north/jobs/?submitter=me")
        boxes = page.locator("tbody input[name=job]")
        assert boxes.count() == JOBS
        shown = page.locator("#t-jobs time").first
        at = datetime.fromisoformat(shown.get_attribute("datetime") or "")
        assert shown.inner_text().endswith(f"{at.astimezone(ZoneInfo('Asia/Tokyo')):%H:%M}")
        assert "UTC" in (shown.get_attribute("title") or "")
        page.locator("summary", has_text="Columns").click()
        page.get_by_label("Tags").last.check()
        page.get_by_role("button", name="Show these columns").click()
        assert page.locator("th", has_text="Tags").count() == 1
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.documentElement.scrollHeight") <= 4000
        assert serious(page) == []
        assert not page.get_by_role("button", name="Compare").is_visible()
        page.get_by_role("button", name="Select all on this page").click()
        assert page.locator("input[name=job]:checked").count() == JOBS
        box = page.locator("#act-bar").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900
        page.get_by_role("button", name="Compare").click()
        assert page.url.count("job=") == JOBS
        page.goto("/t/north/jobs/?submitter=me")
        page.get_by_role("button", name="Select all on this page").click()
        boxes.first.uncheck()
        # A round must not take the selection away.
        page.evaluate("htmx.trigger(document.body, 'round-changed')")
        page.locator("#act-bar").get_by_label("Tags").fill("nightly")
        page.get_by_role("button", name="Add tags").click()
        page.wait_for_selector("#t-acted")
        assert page.inner_text("h1") == f"{JOBS - 1} jobs tagged."
        assert page.locator("#t-acted tbody tr").count() == JOBS - 1
        page.get_by_role("link", name="Back to the list").click()
        page.set_viewport_size({"width": 1440, "height": 900})
        page.get_by_role("link", name="nightly").first.click()
        assert page.inner_text("h1") == f"{JOBS - 1} jobs: tagged nightly."
        assert serious(page) == []
        assert complaints == []


class TestFirstPage:
    @pytest.mark.parametrize("path", ["/t/north/jobs/", "/account/tokens/"])
    def test_converts_times_that_the_server_wrote_in_utc(self, page: Page, path: str) -> None:
        ada = User.objects.get(username="ada")
        create_token(user=ada, name="notebook", scopes=(Scope.READ,), days=1, now=timezone.now())
        page.goto(path)
        first = page.locator("main time").first.inner_text()
        assert page.locator("time[data-zone]").count() == 0
        assert "UTC" not in first
        page.reload()
        assert page.locator("main time").first.inner_text() == first
