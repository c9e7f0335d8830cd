"""Test the operator's console in a browser: quotas by keyboard, a drained node, a paused pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from django.test import Client

from scheduling.engine.clock import read_clock
from scheduling.models import Job, LeaseSlot, Node, Pool, PoolClock
from scheduling.tasks import run_round
from tenants.models import AuditRecord, Quota
from tests.browser.arrival import follow
from tests.browser.complaints import complaints_of
from tests.browser.keyboard import tab_to
from tests.browser.session import give_session
from tests.functional.test_losses import freeze
from tests.functional.visitors import Town, town
from tests.stages import Copy, copied, name_of_copy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTHS = (1440, 390)


def busy_town() -> Town:
    made = town()
    made.cluster.pool.lease_s = 30
    made.cluster.pool.policy = "ltgf"  # allows leases this short
    made.cluster.pool.save(update_fields=["lease_s", "policy"])
    for tenant in ("north", "south"):
        for _ in range(6):
            made.submit(tenant=tenant, duration_s=100_000)
    made.play(1)
    return made


copy = copied(busy_town)
committed_db = name_of_copy


@pytest.fixture
def there(copy: Copy[Town]) -> Town:
    return copy.made


def opened(browser: Browser, site: str, client: Client) -> Page:
    """Return a page with this client's session."""
    context = browser.new_context(base_url=site, viewport={"width": 1440, "height": 900})
    give_session(context, client, site)
    return context.new_page()


@pytest.fixture
def page(there: Town, site: str, browser: Browser) -> Iterator[Page]:
    shown = opened(browser, site, there.operator)
    complaints = complaints_of(shown)
    yield shown
    shown.context.close()
    assert complaints == []


def fits(page: Page, path: str) -> None:
    """Check that the page needs no horizontal scrolling at any width."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)


def base(there: Town) -> str:
    return f"/operate/pools/{there.cluster.pool.name}"


def held(node: str) -> int:
    return LeaseSlot.objects.filter(node__name=node, holding=True).count()


def field(there: Town, name: str, tenant: str = "north") -> str:
    return f"#{name}-{there.cluster.tenants[tenant].pk}-{there.cluster.gpu_type.pk}"


class TestOperator:
    def test_raises_quota_for_tomorrow_after_preview(self, there: Town, page: Page) -> None:
        page.goto(f"{base(there)}/quotas/")
        follow(page, "text=Tomorrow")
        page.wait_for_selector("th.draft")
        page.fill(field(there, "gpus"), "6")
        assert page.inner_text("td.draft:has(.changed-cell) s") == "4"
        assert page.inner_text("[data-sum] .short") == "2 too many: scaled down"
        page.fill(field(there, "gpus", "south"), "2")
        assert page.inner_text("[data-sum]").split("\n")[0] == "8 of 8"
        page.click("button:has-text('Preview')")
        page.wait_for_selector("#impact >> text=An estimate, not a promise.")
        assert Quota.objects.count() == 3, "nothing is saved by looking"
        said = page.inner_text("#t-impact")
        assert "4 → 6" in said
        assert "4 → 2" in said
        # The estimate is outdated as soon as the draft changes.
        page.fill(field(there, "gpus", "south"), "1")
        assert page.locator("#impact button[value=save]").is_disabled()
        page.fill(field(there, "gpus", "south"), "2")
        page.click("button:has-text('Preview')")
        page.click("#impact button[value=save]:not([disabled])")
        page.wait_for_selector(".toast >> text=You can undo this until round")
        quotas = Quota.objects.filter(tenant=there.tenant).order_by("valid_from")
        assert [quota.gpus for quota in quotas] == [4, 6]
        assert (quotas[1].valid_from.hour, quotas[1].valid_from.minute) == (0, 0)
        page.click(".toast >> button:has-text('Undo')")
        page.wait_for_selector("text=Undone: the old quotas are restored.")
        assert Quota.objects.count() == 3
        page.goto("/operate/audit/")
        assert "eve" in page.inner_text("#t-audit")

    def test_edits_quota_grid_by_keyboard(self, there: Town, page: Page) -> None:
        page.goto(f"{base(there)}/quotas/")
        target = field(there, "gpus")[1:]
        tab_to(page, field(there, "gpus"))
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.id") == field(there, "gpus", "south")[1:]
        page.keyboard.type("9")
        page.keyboard.press("Escape")
        assert page.input_value(field(there, "gpus", "south")) == "4"
        page.keyboard.press("ArrowUp")
        page.keyboard.type("3")
        assert page.inner_text("[data-sum] .short") == "1 unallocated"
        page.keyboard.press("Enter")
        page.wait_for_selector("#impact >> text=An estimate, not a promise.")
        assert page.evaluate("document.activeElement.id") == target
        tab_to(page, "[value=save]")
        page.keyboard.press("Enter")
        page.wait_for_selector(".toast >> text=Saved.")
        assert Quota.objects.get(tenant=there.tenant, valid_until=None).gpus == 3
        # The next round removes the undo button, without a reload.
        there.play(1)
        page.wait_for_selector("#undo .toast", state="detached")

    def test_invalid_cell_is_marked(self, there: Town, page: Page) -> None:
        page.goto(f"{base(there)}/quotas/")
        page.fill(field(there, "gpus"), "six")
        page.keyboard.press("Enter")
        page.wait_for_selector("#impact >> text=Enter a whole number.")
        assert page.get_attribute(field(there, "gpus"), "aria-invalid") == "true"
        page.click("#impact .errs a")
        assert page.evaluate("document.activeElement.id") == field(there, "gpus")[1:]

    def test_new_round_keeps_focus_on_link(self, there: Town, page: Page) -> None:
        page.goto(f"/pools/{there.cluster.pool.name}/")
        link = "document.querySelector('#live a[href]:not([id])')"
        page.evaluate(f"{link}.focus(); document.querySelector('#live').dataset.old = 'yes'")
        there.play(1)
        page.wait_for_selector("#live:not([data-old])")
        assert page.evaluate(f"document.activeElement === {link}")

    @pytest.mark.parametrize("stays", [True, False])
    def test_new_round_does_not_move_focus_to_other_button(
        self, there: Town, page: Page, stays: bool
    ) -> None:
        first, second = Job.objects.filter(state="pending").order_by("id")[:2]
        both = Job.objects.filter(pk__in=[first.pk, second.pk])
        both.update(quarantine="it made the policy fail")
        page.goto("/operate/")
        button = f"document.querySelector('form[action*=\"{second.uid}\"] button')"
        page.evaluate(f"{button}.focus(); document.querySelector('#live').dataset.old = 'yes'")
        gone = first if stays else second
        Job.objects.filter(pk=gone.pk).update(quarantine="")
        there.play(1)
        page.wait_for_selector("#live:not([data-old])")
        where = button if stays else "document.body"
        assert page.evaluate(f"document.activeElement === {where}")

    def test_drains_node_and_its_leases_move(self, there: Town, page: Page) -> None:
        page.goto(f"{base(there)}/nodes/")
        page.click("#node-n0000 >> text=Drain")
        page.wait_for_selector("h2 >> text=Drain n0000?")
        assert held("n0000") == 4
        page.fill("#drain-reason", "new fans")
        page.click("#drain >> button")
        page.wait_for_selector("h1 >> text=1 of 2 nodes are schedulable.")
        assert held("n0000") == 4
        assert page.inner_text("#node-n0000 td").split() == ["draining", "new", "fans"]
        assert "4 GPUs on nodes that take no new lease" in page.inner_text(".deck")
        for _ in range(5):
            there.play(1)
        assert (held("n0000"), held("n0001")) == (0, 4)
        page.reload()
        assert "the others are empty" in page.inner_text(".deck")
        assert page.inner_text("#node-n0000 td").split() == ["drained", "new", "fans"]
        page.goto("/operate/")
        page.wait_for_selector("text=n0000 of")
        page.goto(f"{base(there)}/nodes/")
        page.click("#node-n0000 >> text=Resume")
        page.wait_for_selector("h1 >> text=All 2 nodes")
        there.play(1)
        assert held("n0000") == 4
        assert Node.objects.get(pool=there.cluster.pool, name="n0000").state == "up"

    def test_pauses_and_resumes_pool(self, there: Town, page: Page) -> None:
        pool_id = there.cluster.pool.pk
        page.goto(f"{base(there)}/settings/")
        page.click("text=Pause pool-")
        page.wait_for_selector("h1 >> text=is paused.")
        assert PoolClock.objects.get(pool_id=pool_id).paused
        stood = read_clock(pool_id).pool_at
        assert run_round(pool_id) == "not_due"
        page.click("text=Resume pool-")
        page.wait_for_selector("h1 >> text=runs a round every 10 s.")
        assert read_clock(pool_id).pool_at >= stood
        actions = AuditRecord.objects.order_by("id").values_list("action", flat=True)
        assert list(actions) == ["clock.paused", "clock.resumed"]

    def test_draft_options_update_quota_promise(self, there: Town, page: Page) -> None:
        Pool.objects.update(policy="evenshare")
        page.goto(f"{base(there)}/settings/")
        promise = page.locator("#quota-promise")
        assert "Quota: guaranteed within 5 min 50 s." in promise.inner_text()
        page.click("#group-options summary")
        page.fill("[name=option-min_runtime_s]", "1200")
        page.click("text=Preview the next round")
        page.wait_for_selector("#quota-promise >> text=Now it is guaranteed within 5 min 50 s.")
        assert "Quota: guaranteed within 20 min 50 s." in promise.inner_text()
        page.fill("[name=option-min_runtime_s]", "")
        page.click("text=Preview the next round")
        page.wait_for_selector("#impact >> text=No preview")
        assert promise.inner_text().strip() == ""

    def test_filter_opens_group_of_named_setting(self, there: Town, page: Page) -> None:
        page.goto(f"{base(there)}/settings/")
        assert not page.locator("[name=grace_s]").is_visible()
        page.fill("#s-find", "grace")
        assert page.locator("[name=grace_s]").is_visible()
        assert not page.locator("[name=round_s]").is_visible()
        assert not page.locator("#group-2").is_visible()
        page.click("#s-grace_s-help")
        assert "Time for a checkpoint" in page.inner_text("#s-grace_s-hint")
        page.keyboard.press("Escape")
        page.fill("#s-find", "")
        assert not page.locator("[name=round_s]").is_visible()
        assert page.locator("#group-2").is_visible()

    def test_enter_key_does_not_confirm_lost_leases(self, there: Town, page: Page) -> None:
        freeze(there.cluster.pool)
        page.goto(f"{base(there)}/health/")
        page.click("#losses-ask")
        assert page.evaluate("document.activeElement.textContent").strip() == "Wait"
        page.fill("#losses-reason", "reinstallation")
        page.press("#losses-reason", "Enter")
        page.click("#losses-yes")
        page.wait_for_selector("text=Accepted: the next round")
        assert AuditRecord.objects.get().reason == "reinstallation"

    def test_executor_options_fit_window(self, there: Town, page: Page) -> None:
        Pool.objects.update(executor="slurm", executor_options={"partition": "gpu"})
        page.goto(f"{base(there)}/settings/")
        page.click("#group-executor summary")
        page.click("#x-known summary")
        page.wait_for_selector("#x-known >> text=submit_as")
        fits(page, "settings")

    def test_pages_fit_window_and_have_unique_ids(self, there: Town, page: Page) -> None:
        pool = base(there)
        for path in (
            *("/operate/", "/operate/tenants/", "/operate/tenants/north/", "/operate/people/"),
            *("/operate/audit/", f"{pool}/quotas/", f"{pool}/nodes/", f"{pool}/settings/"),
            *(f"{pool}/health/", "/account/"),
        ):
            page.goto(path)
            fits(page, path)
            twice = page.evaluate(
                "[...document.querySelectorAll('[id]')].map(e => e.id)"
                ".filter((id, n, all) => all.indexOf(id) !== n)"
            )
            assert twice == [], path


class TestTenant:
    def test_operator_pages_return_404(self, there: Town, site: str, browser: Browser) -> None:
        for client in (there.owner, there.neighbour, there.outsider):
            shown = opened(browser, site, client)
            for path in ("/operate/", "/operate/audit/", f"{base(there)}/quotas/"):
                answer = shown.goto(path)
                assert answer is not None
                assert answer.status == 404
            assert shown.locator("a[href^='/operate/']").count() == 0
            shown.context.close()
