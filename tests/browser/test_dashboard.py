"""Test the dashboard in a real browser: it follows the rounds by itself, also on a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portal.demo.philly import seed_demo
from scheduling.engine.clock import read_clock
from scheduling.engine.rounds import execute_round
from scheduling.models import Pool
from tests.browser.complaints import complaints_of
from tests.tools import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def run_round() -> int:
    """Wait until the demo's next round is due, and run it; return its number."""
    pool = Pool.objects.get(name="philly")
    numbers: list[int] = []

    def due() -> bool:
        result = execute_round(pool.pk, now=read_clock(pool.pk))
        if result.round is not None:
            numbers.append(result.round.number)
        return bool(numbers)

    eventually(due, every_s=0.3)
    return numbers[0]


class TestDashboard:
    def test_follows_rounds_without_errors(self, site: str, browser: Browser) -> None:
        seed_demo()
        run_round()
        page = browser.new_page(viewport={"width": 390, "height": 844})
        complaints = complaints_of(page)
        page.goto(site)
        page.click("form[action='/demo/researcher/'] button >> nth=0")
        page.wait_for_url("**/t/vc-7f04ca/")
        shown = page.get_attribute("#round-line", "data-round")
        assert shown == "1"
        run_round()
        page.wait_for_selector("#round-line[data-round='2']")
        page.wait_for_selector("text=round 2")
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0
        assert complaints == []
        page.close()
