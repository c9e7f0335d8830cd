"""Test each role's common tasks by links and forms only; members start on the front page.

In the second turn axe checks each kind of page in a story.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from django.db import connection

from scheduling.models import Job
from tenants.models import ApiToken, Tenant
from tests.browser.complaints import complaints_of
from tests.browser.story import WIDE, Story
from tests.functional.two_clocks import TwoClocks

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Controls that a reader must not see, because the server would refuse the action. Forms of the
# class "filters" change only what the reader sees.
CHANGES = (
    "main form[method=post]:not([inert], .filters) button, main #cancel-ask,"
    " main a:text-is('Submit a job'), main a:text-is('Clone')"
)


@pytest.fixture
def there(clocks: TwoClocks) -> TwoClocks:
    return clocks


@pytest.fixture
def committed_db(there: TwoClocks) -> str:
    """Return the database of the stage, which `site` shows."""
    assert there.labs
    return str(connection.settings_dict["NAME"])


@pytest.fixture(scope="module")
def looked() -> dict[str, set[str]]:
    return {}


@pytest.fixture(params=range(2))
def turn(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def story(
    there: TwoClocks, site: str, browser: Browser, turn: int, looked: dict[str, set[str]]
) -> Iterator[Story]:
    assert there.labs
    context = browser.new_context(base_url=site, viewport=WIDE)  # type: ignore[arg-type]  # a literal of two numbers
    page = context.new_page()
    complaints = complaints_of(page)
    story = Story(page, site, looked if turn else None)
    yield story
    context.close()
    assert story.findings == []
    assert complaints == []


def queued_job(pool: str) -> str:
    """Return the name of north's queued job of a pool."""
    return Job.objects.get(pool__name=pool, tenant__slug="north", state="pending").name


class TestMember:
    def test_submits_jobs_and_reads_ledger_rounds_and_prices(self, story: Story) -> None:
        page = story.page
        story.sign_in("mo")
        story.sees("Below its fair share")
        story.follow("Submit a job")
        page.select_option("#f-pool", "pool-2")
        page.locator("#round-line[hx-get*='pool-2']").wait_for()
        page.fill("#f-command", "true")
        page.click("#group-deadlines summary")
        page.fill("#f-duration_s", "60")
        story.press("Submit the job")
        made = Job.objects.order_by("-pk")[0]
        assert page.url.endswith(f"/jobs/{made.uid}/")
        story.sees("Why it is queued", "Event log")
        story.follow("Clone")
        story.menu("Jobs")
        page.locator(f"main a[href='/jobs/{made.uid}/']").wait_for()
        story.pool("pool-1")
        story.follow(queued_job("pool-1"))
        story.sees("Why it is queued", "Decided in")
        page.click("#cancel-ask")
        story.press("Cancel the job")
        assert not Job.objects.filter(
            pool__name="pool-1", tenant__slug="north", state="pending"
        ).exists()
        story.menu("Ledger")
        story.opens("#t-ledger tbody a")
        story.sees("All sides (sum: zero)")
        story.menu("Rounds")
        with page.expect_navigation():
            page.locator("main tbody th a").first.click()
        story.look()
        page.locator("main .crumb >> text=Rounds of").wait_for()
        story.menu("Pool")
        story.follow("Price board")
        story.pool("pool-2")
        assert "/pools/pool-2/prices/" in page.url
        self.makes_and_revokes_a_token(story)

    def makes_and_revokes_a_token(self, story: Story) -> None:
        story.account("API tokens")
        story.page.fill("#token-name", "workstation")
        story.page.fill("#id_old_password", "a long enough password")
        story.press("Create token")
        assert story.page.locator("#new-token").inner_text().count("es_") == 1
        story.page.get_by_role("button", name="Revoke workstation").click()
        story.press("Revoke the token")
        assert not ApiToken.objects.exists()
        story.account("API documentation")
        story.page.go_back()
        story.account("Account and password")
        story.page.click("#account-menu > summary")
        with story.page.expect_navigation():
            story.page.click("#account-menu button")
        story.page.locator("header").get_by_role("link", name="Log in").wait_for()


class TestViewer:
    def test_reads_without_controls_that_change_anything(self, story: Story) -> None:
        page = story.page
        story.begin("vera")
        for step in ("Pool", "Rounds", "Ledger", "Overview", "Jobs"):
            story.menu(step)
            assert page.locator(CHANGES).count() == 0, step
            if step == "Ledger":
                story.opens("#t-ledger tbody a")
                assert page.locator(CHANGES).count() == 0
        story.follow(queued_job("pool-1"))
        story.sees("Why it is queued")
        assert page.locator(CHANGES).count() == 0
        story.pool("All pools, side by side")
        story.follow("pool-2")
        story.follow("Price board")
        assert page.locator(CHANGES).count() == 0


class TestManager:
    def test_performs_tenant_tasks(self, story: Story) -> None:
        page = story.page
        story.begin("mag")
        page.click("#pools > summary")
        story.follow("pool-2")
        assert "pool=pool-2" in page.url
        story.menu("Jobs")
        page.click("#more-filters > summary")
        page.select_option("select[name=pool]", "pool-2")
        story.press("Show")
        assert page.locator("#t-jobs tbody tr").count() == 3
        story.follow(queued_job("pool-2"))
        page.click("#cancel-ask")
        story.press("Cancel the job")
        story.follow("Clone")
        page.locator("#answer-says").wait_for()
        story.press("Submit the job")
        story.sees("Why it is queued")
        story.menu("Ledger")
        story.pool("pool-2")
        story.sees("by settled hour")
        story.menu("Rounds")
        story.menu("Pool")
        story.account("Account and password")


class TestFinance:
    def test_reads_every_account_and_its_lines(self, story: Story) -> None:
        page = story.page
        story.begin("finn")
        assert page.url.endswith("/ledger/")
        story.sees("Book main", "Book replay")
        story.follow("north")
        story.sees("by settled hour")
        story.opens("#t-ledger tbody a")
        story.sees("All sides (sum: zero)")
        assert page.locator("main a[href^='/jobs/']").count() == 0
        assert not any(
            job.name in page.inner_text("main") for job in Job.objects.filter(tenant__slug="north")
        )
        story.menu("Ledger")
        page.locator("#book-replay").get_by_role("link", name="south").wait_for()
        story.follow("south", within="#book-replay")
        story.follow("Prices")
        story.menu("Pool")
        story.pool("All pools, side by side")
        story.menu("Operator")
        story.follow("Audit log")
        story.follow("Tenants")
        assert page.locator(CHANGES).count() == 0
        story.account("API tokens")


class TestOperator:
    def test_performs_site_tasks(self, story: Story) -> None:
        page = story.page
        story.begin("oda")
        story.menu("Operator")
        story.sees("Job quarantined")
        story.press("Release")
        assert Job.objects.exclude(quarantine="").count() == 1
        story.follow("pool-1", within=".op-nav")
        for step in ("Nodes", "Settings", "Round health", "What if"):
            story.follow(step, within=".op-nav")
            story.page.locator("#pool-clock").wait_for()
        story.pool("pool-2")
        assert page.url.endswith("/operate/pools/pool-2/what-if/")
        story.follow("fifo, 6 h")
        story.follow("Tenants", within=".op-nav")
        page.fill("main [name=slug]", "west")
        page.fill("main [name=name]", "West")
        page.fill("main [name=initials]", "W")
        story.press("Create tenant")
        assert Tenant.objects.filter(slug="west").exists()
        story.follow("People", within=".op-nav")
        story.follow("Audit log", within=".op-nav")
        story.sees("west")
        story.menu("Ledger")
        story.follow("north")


class TestAuditor:
    def test_reads_everything_and_changes_nothing(self, story: Story) -> None:
        page = story.page
        story.begin("aud")
        story.menu("Operator")
        story.sees("You have read-only access.")
        steps = ("pool-1", "Nodes", "Settings", "Round health", "What if", "People")
        for step in (*steps, "Audit log", "Tenants"):
            story.follow(step, within=".op-nav")
            assert page.locator(CHANGES).count() == 0, step
        story.follow("north")
        story.follow("Its dashboard")
        story.menu("Jobs")
        story.follow(queued_job("pool-1"))
        story.menu("Rounds")
        story.menu("Ledger")
        story.follow("south")
        story.opens("#t-ledger tbody a")
        assert page.locator(CHANGES).count() == 0
