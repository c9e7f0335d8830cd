"""Every linked page of each area, in a browser, without console errors.

Violations of the Content-Security-Policy (an inline style, a script) also count. Their source may
be the page as sent, the parts that htmx swaps in, or scripts.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pytest

from billing.metering import meter_pool
from scheduling.models import Job
from tests.browser.complaints import complaints_of
from tests.browser.test_operator import opened
from tests.functional.visitors import Town, town
from tests.stages import Copy, copied, name_of_copy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = 100
REFUSED = """
addEventListener("securitypolicyviolation", (event) => console.error(
  "refused by policy: " + event.violatedDirective + " " + event.sourceFile + " " + event.sample));
"""
LINKS = "links => links.map(link => link.getAttribute('href').split('#')[0])"


def busy_town() -> Town:
    made = town()
    for tenant in ("north", "south"):
        for _ in range(6):
            made.submit(tenant=tenant, duration_s=2000)
    made.play(3, every_s=900)
    meter_pool(made.cluster.pool.pk)  # a posted price has a page once it is metered
    return made


copy = copied(busy_town)
committed_db = name_of_copy


@pytest.fixture
def there(copy: Copy[Town]) -> Town:
    return copy.made


def kind_of(link: str) -> str:
    """Return a link without its numbers and names, because one page per kind is enough."""
    return "/".join("x" if any(c.isdigit() for c in part) else part for part in link.split("/"))


def walked(page: Page, *starts: str) -> list[str]:
    """Open linked pages from these starts, one of each kind; return the URLs."""
    queue, seen, kinds = deque(starts), list[str](), set[str]()
    known = set(starts)
    while queue:
        assert len(seen) < PAGES, "links to links without end"
        address = queue.popleft()
        answered = page.goto(address)
        assert answered is not None
        assert answered.status == 200, f"{address}: {answered.status}"
        seen.append(address)
        for link in page.locator("a[href^='/']").evaluate_all(LINKS):
            kind = kind_of(link.split("?")[0])
            skip = link.startswith(("/static/", "/api/")) or link in known or ".csv" in link
            if skip or kind in kinds:
                continue
            kinds.add(kind)
            known.add(link)
            queue.append(link)
    return seen


def heard(page: Page) -> list[str]:
    page.add_init_script(REFUSED)
    return complaints_of(page)


class TestConsole:
    def test_stays_empty_on_member_pages(self, there: Town, site: str, browser: Browser) -> None:
        page = opened(browser, site, there.owner)
        complaints = heard(page)
        job = Job.objects.filter(tenant=there.tenant).earliest("id")
        seen = walked(page, "/t/north/", f"/jobs/{job.uid}/", "/t/north/jobs/new/")
        assert len(seen) > 10
        # htmx loads the answer and the other side after each edit.
        page.goto("/t/north/jobs/new/")
        page.fill("#f-gpus", "64")
        page.wait_for_selector("text=It cannot start")
        page.fill("#yaml", f"pool: {there.cluster.pool.name}\ngpus: 3\n")
        page.wait_for_selector("#f-gpus[value='3']")
        page.fill("#yaml", "gpus: {}\nodd: 1\n")
        page.locator("#yaml-note .err").first.wait_for()
        page.context.close()
        assert complaints == []

    def test_stays_empty_on_operator_pages(self, there: Town, site: str, browser: Browser) -> None:
        page = opened(browser, site, there.operator)
        complaints = heard(page)
        base = f"/operate/pools/{there.cluster.pool.name}"
        seen = walked(page, "/operate/", f"{base}/nodes/?drain=n0000", f"{base}/quotas/")
        assert len(seen) > 10
        page.goto(f"{base}/quotas/")
        cell = f"#gpus-{there.tenant.pk}-{there.cluster.gpu_type.pk}"
        page.fill(cell, "3")
        page.click("button:has-text('Preview')")
        page.wait_for_selector("#impact >> text=An estimate, not a promise.")
        page.context.close()
        assert complaints == []
