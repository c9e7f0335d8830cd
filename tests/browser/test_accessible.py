"""Every page of the site, in both themes, before axe: nothing serious."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scheduling.models import Job, Round
from tests.browser.axe import serious, visited
from tests.browser.local_stage import LocalStage, local_stage
from tests.tools import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def stage(committed_db: str, tmp_path: Path) -> Iterator[LocalStage]:
    assert committed_db
    with local_stage(tmp_path / "jobs") as there:
        yield there


class TestEveryPage:
    def test_has_nothing_serious(self, stage: LocalStage, site: str, browser: Browser) -> None:
        context = browser.new_context(base_url=site)
        page = context.new_page()
        found = visited(page, "/") + visited(page, "/login/")
        done = stage.submit("sh", "-c", "seq 500; exit 3")
        runs = stage.submit("sleep", "6000", gpus=3)
        waits = stage.submit("sleep", "6000", gpus=4)
        eventually(lambda: Job.objects.filter(pk=done.pk, state="failed").exists())
        eventually(lambda: Job.objects.filter(pk=runs.pk, state="running").exists())
        last = Round.objects.order_by("-number").values_list("number", flat=True)[0]
        stage.sign_in(page)
        pool = f"/pools/{stage.pool}/"
        paths = [
            *("/t/north/", "/t/north/jobs/", "/t/north/jobs/?q=none", "/t/north/ledger/"),
            *(f"/jobs/{job.uid}/" for job in (done, runs, waits)),
            *("/t/north/jobs/new/", f"/t/north/jobs/new/?from={waits.uid}"),
            *(f"/jobs/{done.uid}/log/", "/ledger/", "/account/", "/nowhere/"),
            *(pool, f"{pool}prices/", f"{pool}rounds/", f"{pool}rounds/{last}/"),
        ]
        for path in paths:
            found += visited(page, path)
        page.goto("/t/north/jobs/new/")
        page.fill("#f-gpus", "0")
        page.fill("#yaml", "gpus: {}\nodd: 1\n")
        page.locator("#yaml-note .err").first.wait_for()
        found += serious(page)
        context.close()
        assert found == []

    def test_of_a_viewer_has_nothing_serious(
        self, stage: LocalStage, site: str, browser: Browser
    ) -> None:
        context = browser.new_context(base_url=site)
        page = context.new_page()
        stage.sign_in(page, "bea")
        found = visited(page, "/t/north/jobs/new/")
        context.close()
        assert found == []
