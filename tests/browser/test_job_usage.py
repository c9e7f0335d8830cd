"""Test resource usage in a real browser: charts appear and update themselves, in both themes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from portal.jobs.text import usage
from scheduling.engine.clock import read_clock
from scheduling.models import Job
from scheduling.services.jobs import cancel_job
from tests.browser.axe import serious
from tests.browser.charts import drawn
from tests.browser.complaints import complaints_of
from tests.browser.local_stage import LocalStage, local_stage
from tests.tools import eventually
from tests.unit.scheduling.shim_stage import fake_tool

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROWS = "; ".join(f'echo "{n}, GPU-{n}, {60 + 10 * n}, {4000 * (n + 1)}, 81559"' for n in range(4))
# A script that waits until the region has polled `times` times.
DUE = """times => new Promise(done => {
  document.body.addEventListener("htmx:beforeRequest", event => {
    if (event.detail.elt.id === "usage" && --times === 0) done();
  });
})"""
KEYS = ("gpu", "gpu-memory", "cpu", "memory")


@pytest.fixture
def stage(
    committed_db: str, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LocalStage]:
    assert committed_db
    settings.LOCAL_USAGE_EVERY_S = 0.1
    monkeypatch.setattr(usage, "POLL_S", 1)
    tool = fake_tool(tmp_path / "bin", ROWS)
    monkeypatch.setenv("PATH", f"{tool}:{os.environ['PATH']}")
    with local_stage(tmp_path / "jobs") as there:
        yield there


@pytest.fixture
def page(stage: LocalStage, site: str, browser: Browser) -> Iterator[Page]:
    """Yield a page, signed in as ada, without messages of the browser."""
    context = browser.new_context(base_url=site, viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    complaints = complaints_of(opened)
    stage.sign_in(opened, site)
    yield opened
    context.close()
    assert complaints == []


class TestJobUsage:
    def test_appears_updates_and_stops_with_job(self, stage: LocalStage, page: Page) -> None:
        job = stage.submit("sleep", "6000", gpus=2)
        # Open the page before the first sample exists.
        page.goto(f"/jobs/{job.uid}/")
        for key in KEYS:
            drawn(page, f"usage-{key}")
        page.locator("#usage h2", has_text="GPUs at").wait_for()
        assert serious(page) == []
        # The job has the first two of the node's four GPUs.
        assert "Mean over the job's 2 GPUs" in page.inner_text("#usage-gpu figcaption")
        lines = page.eval_on_selector(
            "#usage-gpu .chart-plot", "plot => plot.data.map(one => [one.name, one.y[0]])"
        )
        assert lines == [["mean", 65], ["lowest GPU", 60]]
        # Compare the newest samples and not their number, because above a maximum half of them are
        # dropped.
        newest = page.locator("#usage-cpu-rows tbody tr").first
        before = newest.text_content()
        eventually(lambda: newest.text_content() != before)
        drawn(page, "usage-cpu", 2)
        page.click("#usage-cpu-table summary")
        assert "mean, cores" in page.inner_text("#usage-cpu-rows thead")
        cancel_job(job=Job.objects.get(pk=job.pk), now=read_clock(job.pool_id))
        eventually(lambda: page.get_attribute("#usage", "hx-get") is None)
        assert page.locator("#usage h2").inner_text().startswith("Used")

    def test_hidden_tab_does_not_poll(self, stage: LocalStage, page: Page) -> None:
        job = stage.submit("sleep", "6000")
        page.goto(f"/jobs/{job.uid}/")
        drawn(page, "usage-cpu")
        page.evaluate(
            "Object.defineProperty(document, 'hidden', {value: true, configurable: true})"
        )
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.evaluate(DUE, 3)
        assert not [url for url in asked if "/usage/" in url]
        page.evaluate("delete document.hidden")
        with page.expect_request("**/usage/**"):
            pass
