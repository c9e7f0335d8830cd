"""Test metrics, comparisons and files in a real browser, in both themes and on a phone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from portal.common.compare_links import compare_url
from scheduling.models import Job
from tests.browser.axe import serious
from tests.browser.charts import drawn
from tests.browser.complaints import complaints_of
from tests.browser.local_stage import LocalStage, local_stage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LINE = "plot => plot.data.map(one => [one.name, one.x, one.y])"


@pytest.fixture
def stage(committed_db: str, tmp_path: Path) -> Iterator[LocalStage]:
    assert committed_db
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


def run(stage: LocalStage, scale: float) -> Job:
    """Return a job whose folder has metrics and a file."""
    job = stage.submit("true")
    folder = stage.root / str(job.pk)
    (folder / "models").mkdir(parents=True, exist_ok=True)
    (folder / "models" / "best.pt").write_bytes(b"weights")
    loss = [[n, scale / n, 1_767_225_600_000 + 60_000 * n] for n in range(1, 6)]
    said = {"version": 1, "series": {"loss": loss, "lr": [[1, 3e-5]]}}
    (folder / "metrics.json").write_text(json.dumps(said))
    return job


def fits(page: Page) -> bool:
    """Return whether the page fits a phone's width."""
    page.set_viewport_size({"width": 390, "height": 800})
    width = page.evaluate("document.documentElement.scrollWidth")
    page.set_viewport_size({"width": 1280, "height": 900})
    return bool(width <= 390)


class TestRuns:
    def test_are_drawn_compared_and_downloaded(self, stage: LocalStage, page: Page) -> None:
        jobs = [run(stage, 1.0), run(stage, 2.0)]
        page.goto(f"/jobs/{jobs[0].uid}/")
        drawn(page, "curve-0")
        lines = page.eval_on_selector("#curve-0 .chart-plot", LINE)
        assert lines == [["loss", [1, 2, 3, 4, 5], [1, 0.5, 0.333333, 0.25, 0.2]]]
        assert serious(page) == []
        page.click("#curves >> text=Over time")
        drawn(page, "curve-0")
        ((_, minutes, _),) = page.eval_on_selector("#curve-0 .chart-plot", LINE)
        assert minutes == [0, 1, 2, 3, 4]
        page.goto(compare_url(job.uid for job in jobs))
        drawn(page, "curve-0")
        assert len(page.eval_on_selector("#curve-0 .chart-plot", LINE)) == 2
        assert serious(page) == []
        assert fits(page)
        page.goto(f"/jobs/{jobs[0].uid}/")
        page.click("text=Files")
        assert serious(page) == []
        assert fits(page)
        with page.expect_download() as download:
            page.click("text=models/best.pt")
        assert download.value.path().read_bytes() == b"weights"
