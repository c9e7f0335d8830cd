"""Test simulations in a browser: requested, watched, read; another is cancelled by keyboard."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from django.db import connection

from scheduling.models import Simulation
from scheduling.services.execute_simulation import execute_simulation
from scheduling.services.simulations import claim_simulations
from tests.browser.arrival import follow
from tests.browser.axe import serious
from tests.browser.charts import drawn
from tests.browser.complaints import complaints_of
from tests.browser.keyboard import tab_to
from tests.browser.test_operator import opened
from tests.functional.visitors import Town, town
from tests.stages import Copy, copied, name_of_copy
from tests.tools import PATIENCE_S, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route


class Runner:
    """Runs the queued simulation in a thread, pausing after a fiftieth until it is released."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.state = "not run"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Runner:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> str:
        """Release the simulation, and wait for its end."""
        self.go.set()
        self._thread.join(PATIENCE_S)
        return self.state

    def _hold(self) -> bool:
        if Simulation.objects.filter(progress_milli__gte=20).exists():
            self.go.wait(PATIENCE_S)
        return False

    def _run(self) -> None:
        try:
            ((number, claim),) = claim_simulations()
            timer = itertools.count(0, 0.25).__next__
            self.state = execute_simulation(number, claim, timer=timer, is_orphan=self._hold)
        finally:
            connection.close()


def busy_town() -> Town:
    made = town()
    for tenant, count in (("north", 7), ("south", 3)):
        for index in range(count):
            made.submit(gpus=1 + index % 2, tenant=tenant, duration_s=9000)
    made.play(3)
    return made


copy = copied(busy_town)
committed_db = name_of_copy


@pytest.fixture
def there(copy: Copy[Town]) -> Town:
    return copy.made


@pytest.fixture
def page(there: Town, site: str, browser: Browser) -> Iterator[Page]:
    shown = opened(browser, site, there.operator)
    complaints = complaints_of(shown)
    yield shown
    shown.context.close()
    assert complaints == []


def fits(page: Page) -> bool:
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        # Charts adapt to the window's width a moment later.
        eventually(lambda: page.evaluate("document.documentElement.scrollWidth") <= width)  # noqa: B023 - called at once
    twice = page.evaluate(
        "[...document.querySelectorAll('[id]')].map(e => e.id)"
        ".filter((id, n, all) => all.indexOf(id) !== n)"
    )
    return bool(twice == [])


def asked(page: Page, pool: str, policy: str) -> None:
    """Request a simulation from the pool's page, by keyboard in the form."""
    page.goto(f"/pools/{pool}/")
    follow(page, "text=What if …")
    page.wait_for_selector("h1 >> text=Simulate the next hours")
    page.select_option("#w-hours", "6")
    page.select_option("#w-policy", policy)
    page.wait_for_url(f"**policy={policy}**")
    assert page.input_value("#w-hours") == "6", "what was chosen before is kept"
    page.focus("#w-ask")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1 >> text=Queued.")


class TestEarlyChoice:
    """A choice that is made before the page's script has loaded is applied afterwards."""

    @pytest.mark.parametrize("where", ["what-if", "settings"])
    def test_is_applied_after_script_loads(self, there: Town, page: Page, where: str) -> None:
        held: list[Route] = []

        def hold(script: Route) -> None:
            held.append(script)

        def asked_for() -> list[Route]:
            page.wait_for_timeout(1)  # Playwright processes its events during this call
            return held

        page.route("**/operator*.js", hold, times=1)
        address = f"/operate/pools/{there.cluster.pool.name}/{where}/"
        page.goto(address, wait_until="commit")
        page.select_option("[data-reload]", "srtf")
        with page.expect_navigation(url="**policy=srtf**"):
            eventually(asked_for)[0].continue_()
        assert page.input_value("[data-reload]") == "srtf"


class TestSimulation:
    def test_is_requested_watched_and_read(self, there: Town, page: Page) -> None:
        asked(page, there.cluster.pool.name, "fifo")
        assert fits(page)
        with Runner() as runner:
            page.wait_for_selector("h1 >> text=are being simulated.")
            page.wait_for_selector("[role=progressbar]:not([aria-valuenow='0'])")
            assert serious(page) == []
            assert runner.end() == "done"
            page.wait_for_selector("#t-figures")
        assert page.inner_text("h1").startswith("Under fifo jobs would wait")
        assert "not applicable" in page.inner_text("#figures-deadline_miss_rate")
        for key in ("chart-gpus", "chart-completed", "chart-waits"):
            drawn(page, key)
        page.focus("#chart-gpus-table summary")
        page.keyboard.press("Enter")
        assert page.locator("#chart-gpus-rows tbody tr").count() == 24
        assert serious(page) == []
        assert fits(page)
        assert page.locator("#sim-watch").count() == 0, "it asks no more"
        page.goto(f"/operate/pools/{there.cluster.pool.name}/what-if/")
        assert "done" in page.inner_text("#t-simulations")
        page.click("#w-options summary")
        assert serious(page) == []
        assert fits(page)

    def test_is_cancelled_by_keyboard(self, there: Town, page: Page) -> None:
        asked(page, there.cluster.pool.name, "srtf")
        with Runner() as runner:
            page.wait_for_selector("h1 >> text=are being simulated.")
            tab_to(page, "#w-cancel")
            with page.expect_response(lambda answer: "what-if" in answer.url):
                pass  # wait for one more poll
            page.wait_for_selector("#w-cancel:focus")
            page.keyboard.press("Enter")
            page.wait_for_selector("h1 >> text=This simulation was cancelled.")
            assert runner.end() == ""
        assert Simulation.objects.get().state == "cancelled"
        assert serious(page) == []
        follow(page, "text=Simulate again")
        page.wait_for_selector("h1 >> text=Simulate the next hours")
        assert page.input_value("#w-policy") == "srtf"

    def test_failure_explains_cause(self, there: Town, page: Page) -> None:
        asked(page, there.cluster.pool.name, "srtf")
        Simulation.objects.update(options={"magic": 1})
        with Runner() as runner:
            assert runner.end() == "failed"
        page.wait_for_selector("h1 >> text=This simulation failed.")
        assert "magic: unknown option" in page.inner_text(".ban.bad")
        assert serious(page) == []
        assert fits(page)
