"""Test a sweep in a browser: submit it by the form, watch it, run failed jobs again, cancel it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scheduling.models import Sweep
from tests.browser.complaints import complaints_of
from tests.browser.local_stage import LocalStage, local_stage
from tests.tools import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def stage(committed_db: str, tmp_path: Path) -> Iterator[LocalStage]:
    assert committed_db
    with local_stage(tmp_path / "jobs") as there:
        yield there


def submit(page: Page, name: str, command: str, matrix: str, exclude: str = "") -> Sweep:
    """Submit a sweep of at most two jobs at once by the form, and wait for its page."""
    page.goto("/t/north/jobs/new/")
    page.fill("#f-command", command)
    page.fill("#f-name", name)
    page.click("#group-many summary")
    page.fill("#f-matrix", matrix)
    page.fill("#f-exclude", exclude)
    page.fill("#f-at_once", "2")
    page.locator("#set-many", has_text="jobs at once: 2").wait_for()
    page.click("#submit")
    page.wait_for_url("**/sweeps/*/")
    return Sweep.objects.latest("pk")


def test_runs_few_at_once_and_failed_ones_again(
    stage: LocalStage, site: str, browser: Browser
) -> None:
    context = browser.new_context(base_url=site, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    complaints = complaints_of(page)
    stage.sign_in(page, site)
    command = "sh -c 'test {{ code }} = 0 || exit {{ code }}; sleep {{ s }}'"
    sweep = submit(page, "train", command, "code=0,3\ns=0,6000", "code=3,s=6000")
    assert sweep.jobs.count() == 3
    assert page.inner_text("tbody").count("train-") == 3
    page.locator("button", has_text="Resubmit failed (1)").click()
    page.locator(".deck", has_text="It runs the failed jobs of").wait_for()
    again = Sweep.objects.get(origin=sweep)
    assert [(job.parameters or {})["code"] for job in again.jobs.all()] == ["3"]

    long = submit(page, "long", "sleep 6000", "s=1,2,3,4,5")
    page.locator("h1", has_text="2 run now").wait_for()
    bar, column = page.locator("#states svg.states"), page.locator("#states")
    assert bar.evaluate("e => e.clientWidth") == column.evaluate("e => e.clientWidth")
    page.click("#cancel-ask")
    page.click("#cancel-yes")
    page.locator("h1", has_text="5 of 5 jobs were cancelled").wait_for()
    eventually(lambda: not long.jobs.exclude(state="cancelled").exists())
    assert long.jobs.exclude(first_started_at=None).count() == 2
    context.close()
    assert complaints == []
