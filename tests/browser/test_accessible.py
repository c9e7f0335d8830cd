"""Test that pages outside of all stories have no serious violation of axe, in both themes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scheduling.models import Job
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


class TestAccessibility:
    def test_pages_have_no_serious_violations(
        self, stage: LocalStage, site: str, browser: Browser
    ) -> None:
        context = browser.new_context(base_url=site)
        page = context.new_page()
        found = visited(page, "/")
        done = stage.submit("sh", "-c", "seq 500; exit 3")
        runs = stage.submit("sleep", "6000", gpus=3)
        eventually(lambda: Job.objects.filter(pk=done.pk, state="failed").exists())
        eventually(lambda: Job.objects.filter(pk=runs.pk, state="running").exists())
        stage.sign_in(page, site)
        paths = [
            *("/t/north/jobs/?q=none", f"/jobs/{done.uid}/", f"/jobs/{runs.uid}/"),
            *(f"/t/north/jobs/new/?from={runs.uid}", f"/jobs/{done.uid}/log/", "/nowhere/"),
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

    def test_form_of_viewer_has_no_serious_violations(
        self, stage: LocalStage, site: str, browser: Browser
    ) -> None:
        context = browser.new_context(base_url=site)
        page = context.new_page()
        stage.sign_in(page, site, "bea")
        found = visited(page, "/t/north/jobs/new/")
        context.close()
        assert found == []
