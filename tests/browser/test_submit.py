"""Test submission in a browser: form, YAML, keyboard and phone; watch, read and cancel a job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.db.models import F

from scheduling.models import Job, Lease
from tests.browser.arrival import follow
from tests.browser.complaints import complaints_of
from tests.browser.keyboard import tab_to
from tests.browser.local_stage import LocalStage, local_stage
from tests.tools import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

NEW = "/t/north/jobs/new/"
# Prints numbers until it is stopped.
COUNTS = (
    "import itertools, time\n"
    "for n in itertools.count():\n"
    "    print('line', n, flush=True)\n"
    "    time.sleep(0.1)\n"
)
REPORTS = (
    "import json, os, time\n"
    "json.dump({'step': 3, 'total': 4, 'metrics': {'loss': 0.125}},"
    " open(os.environ['EVENSHARE_PROGRESS'], 'w'))\n"
    "print('begun', flush=True)\ntime.sleep(6000)\n"
)
HOSTILE = (
    "import sys, time\n"
    "w = sys.stdout.buffer.write\n"
    "w(b'<script>window.hit = 1</script><img src=x onerror=\"window.hit = 1\">\\n')\n"
    "w(b'\\x1b[31mred\\x1b[0m \\xff\\xfe\\n')\n"
    "w(b'x' * 20_000_000 + b'\\nthe end\\n')\n"
    "sys.stdout.flush(); time.sleep(6000)\n"
)
# Records that the answer to the complete input is on the page.
ANSWERED = """
document.body.addEventListener("htmx:afterSettle", (event) => {
  const asked = event.detail.requestConfig;
  if (asked.elt.id === "answer" && asked.formData.get("yaml").includes("# mine\\n")) {
    window.answered = true;
  }
})
"""
# The start and end of the timeline's box on the screen, and the current time in it.
SEEN = """
() => {
  const box = document.getElementById("tl"), place = box.getBoundingClientRect();
  return [place.left, box.querySelector(".now").getBoundingClientRect().left, place.right];
}
"""


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
    opened.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    stage.sign_in(opened, site)
    yield opened
    context.close()
    assert complaints == []


def answer(page: Page, words: str) -> None:
    page.locator("#answer-says", has_text=words).wait_for()


def headline(page: Page, words: str) -> None:
    page.locator("h1", has_text=words).wait_for()


def yaml_says(page: Page, words: str) -> None:
    eventually(lambda: words in page.input_value("#yaml"))


class TestSubmission:
    def test_submits_watches_and_cancels_without_reload(
        self, stage: LocalStage, page: Page
    ) -> None:
        page.goto("/t/north/")
        follow(page, "text=Submit a job")
        page.wait_for_url(f"**{NEW}*")
        page.fill("#f-gpus", "2")
        page.fill("#f-command", f"{stage.python} -c '{COUNTS}'".replace("'line'", '"line"'))
        answer(page, "It fits now, on 2 own GPUs")
        yaml_says(page, "gpus: 2\n")
        page.click("#submit")
        page.wait_for_url("**/jobs/*-*/")
        page.evaluate("window.sameDocument = true")
        headline(page, "Running on n0000")
        lines = page.locator("#log-lines")
        lines.locator("text=line 5").wait_for()
        page.click("#cancel-ask")
        page.click("#cancel-yes")
        page.locator(".toast").wait_for()
        headline(page, "Cancelled")
        assert Job.objects.get().state == Job.State.CANCELLED

    def test_running_job_shows_progress(self, stage: LocalStage, page: Page) -> None:
        job = stage.submit(stage.python, "-c", REPORTS)
        page.goto(f"/jobs/{job.uid}/")
        page.evaluate("window.sameDocument = true")
        page.locator("#job-log h2", has_text="Step 3 of 4").wait_for()
        assert "75%" in page.inner_text("#job-log header")
        assert page.inner_text("#job-log .metrics").split() == ["loss", "0.125"]
        assert page.evaluate("window.sameDocument") is True


class TestFormAndYaml:
    def test_stay_in_sync(self, stage: LocalStage, page: Page) -> None:
        page.goto(NEW)
        page.fill("#f-gpus", "3")
        yaml_says(page, "gpus: 3\n")
        assert page.inner_text("#gutter .hot") == "3"
        page.locator(
            "#in-step", has_text="Line 3 now has the value of “GPUs, all at once”"
        ).wait_for()
        text = page.input_value("#yaml")
        page.fill("#yaml", text.replace("gpus: 3", "gpus: 1") + "command: [echo, a b]\n")
        eventually(lambda: page.input_value("#f-gpus") == "1")
        assert page.input_value("#f-command") == "echo 'a b'"
        page.fill("#f-gpus", "2")
        yaml_says(page, "gpus: 2\n")
        assert "a b" in page.input_value("#yaml")

    def test_group_shows_its_values_and_help_opens_by_keyboard(
        self, stage: LocalStage, page: Page
    ) -> None:
        page.goto(NEW)
        page.click("#group-order summary")
        page.check("#f-held")
        yaml_says(page, "held: true\n")
        page.locator("#set-order", has_text="hold").wait_for()
        tab_to(page, "#help-priority")
        assert not page.is_visible("#hint-priority")
        page.keyboard.press("Enter")
        page.locator("#hint-priority", has_text="Orders only").wait_for()
        page.keyboard.press("Escape")
        page.wait_for_selector("#hint-priority", state="hidden")
        box = page.locator("#submit").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900

    def test_submit_job_from_yaml(self, stage: LocalStage, page: Page) -> None:
        page.goto(NEW)
        page.fill("#yaml", f"pool: {stage.pool}\ngpus: 1\nname: by-yaml\ncommand: [sleep, 6000]\n")
        answer(page, "It fits now")
        page.click("#submit")
        page.wait_for_url("**/jobs/*-*/")
        headline(page, "Running")
        assert Job.objects.get().name == "by-yaml"

    def test_late_answer_keeps_typed_text(self, stage: LocalStage, page: Page) -> None:
        page.goto(NEW)
        page.evaluate(ANSWERED)
        page.fill("#f-gpus", "2")
        page.locator("#yaml").press_sequentially("# mine\n", delay=60)
        eventually(lambda: page.evaluate("window.answered === true"))
        assert "# mine\n" in page.input_value("#yaml")

    def test_edit_during_a_request_is_no_error_in_the_console(
        self, stage: LocalStage, page: Page
    ) -> None:
        page.goto(NEW)
        assert "Runs without a shell" in page.inner_text("#note-command")
        logged: list[str] = []
        page.on("console", lambda message: logged.append(message.text))
        # A person who resizes the text sets its style.
        page.evaluate("document.getElementById('yaml').style.height = '300px'")
        waiting: list[Route] = []

        def hold_first(route: Route) -> None:
            waiting.append(route)
            if len(waiting) > 1:
                route.continue_()

        page.route("**/dry-run/", hold_first)
        with page.expect_request("**/dry-run/"):
            page.fill("#f-gpus", "2")
        page.fill("#f-gpus", "3")
        eventually(lambda: page.evaluate("1") and waiting)
        waiting[0].continue_()
        yaml_says(page, "gpus: 3\n")
        assert logged == []

    def test_show_errors_at_their_field(self, stage: LocalStage, page: Page) -> None:
        page.goto(NEW)
        page.fill("#yaml", "gpus: [")
        answer(page, "The YAML cannot be read")
        page.fill("#f-gpus", "64")
        page.fill("#f-name", "Bad Name")
        page.locator("#err-name .err").wait_for()
        assert page.get_attribute("#f-name", "aria-invalid") == "true"
        page.fill("#f-name", "")
        page.fill("#f-command", "sleep 1")
        answer(page, "It cannot start: larger than the pool")
        page.click("button[name=use][value='4']")
        answer(page, "2 own GPUs and 2 borrowed")
        assert page.input_value("#f-gpus") == "4"


class TestLog:
    def test_hostile_output_is_escaped_and_bounded(self, stage: LocalStage, page: Page) -> None:
        job = stage.submit(stage.python, "-c", HOSTILE)
        page.goto(f"/jobs/{job.uid}/")
        page.locator("#log-lines", has_text="the end").wait_for()
        assert page.evaluate("document.querySelector('#log-lines pre').children.length") == 0
        assert len(page.inner_text("#log-lines")) < 300_000
        follow(page, "text=Full log")
        follow(page, "text=Beginning")
        text = page.inner_text("#log-lines")
        assert "<script>window.hit = 1</script>" in text
        assert "\x1b" not in text
        assert page.evaluate("window.hit") is None

    def test_follows_end_and_stops_if_scrolled_up(self, stage: LocalStage, page: Page) -> None:
        job = stage.submit(stage.python, "-c", COUNTS.replace("0.1", "0.02"))
        page.goto(f"/jobs/{job.uid}/")
        lines = page.locator("#log-lines")
        lines.locator("text=line 120").wait_for()
        gap = "e => e.scrollHeight - e.scrollTop - e.clientHeight"
        eventually(lambda: lines.evaluate(gap) < 30)
        # In one step, because a poll could replace an element after a locator found it.
        page.evaluate("document.getElementById('log-lines').scrollTop = 40")
        before = lines.inner_text()
        page.locator("#log-held").wait_for()
        assert (lines.inner_text(), lines.evaluate("e => e.scrollTop")) == (before, 40)
        page.evaluate("document.getElementById('log-lines').scrollTop = 1e6")
        eventually(lambda: lines.inner_text() != before)


class TestKeyboard:
    def test_submits_and_cancels(self, stage: LocalStage, page: Page) -> None:
        page.goto(NEW)
        tab_to(page, "#f-gpus")
        page.keyboard.press("Control+a")
        page.keyboard.type("1")
        tab_to(page, "#f-command")
        page.keyboard.type("sleep 6000")
        answer(page, "It fits now")
        tab_to(page, "#submit")
        page.keyboard.press("Enter")
        page.wait_for_url("**/jobs/*-*/")
        headline(page, "Running")
        tab_to(page, "#cancel-ask")
        page.keyboard.press("Enter")
        tab_to(page, "#cancel-yes")
        page.keyboard.press("Enter")
        page.wait_for_selector("#cancelled:focus")
        headline(page, "Cancelled")


class TestPhone:
    def test_answer_stays_visible_without_horizontal_scroll(
        self, stage: LocalStage, page: Page
    ) -> None:
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(NEW)
        page.fill("#f-command", "sleep 1 " + "x" * 300)
        answer(page, "It fits now")
        page.evaluate("window.scrollTo(0, 0)")
        box = page.locator("#submit").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 844
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        pinned = page.locator(".pinned")
        assert pinned.evaluate("e => e.offsetHeight") <= 844 / 4
        page.evaluate("window.scrollTo(0, 1e6)")
        pinned.locator("text=not a reservation").wait_for()
        page.evaluate("window.scrollTo(0, 0)")
        page.wait_for_selector(".pinned.stuck")
        job = stage.submit("echo", "x" * 500)
        page.goto(f"/jobs/{job.uid}/")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        job = stage.submit("sleep", "6000")
        page.goto(f"/jobs/{job.uid}/")
        headline(page, "Running")
        # A long lease ends far to the right of the current time.
        Lease.objects.filter(job=job).update(expires_at=F("expires_at") + timedelta(hours=1))
        page.reload()
        page.wait_for_selector("#tl .now", state="attached")
        left, now, right = page.evaluate(SEEN)
        assert left <= now <= right


class TestWithoutJavaScript:
    def test_submits_and_cancels(self, stage: LocalStage, site: str, browser: Browser) -> None:
        context = browser.new_context(base_url=site, java_script_enabled=False)
        page = context.new_page()
        stage.log_in(page)
        page.goto(NEW)
        page.fill("#f-command", "sleep 6000")
        page.click("button.ask")
        assert "It fits now" in page.inner_text("#answer-says")
        text = page.input_value("#yaml")
        assert "sleep" in text
        page.fill("#yaml", text.replace("gpus: 1", "gpus: 2"))
        page.check("[name=side][value=yaml]")
        page.click("#submit")
        page.wait_for_url("**/jobs/*-*/")
        job = Job.objects.get()
        assert (job.gpus, job.command) == (2, ["sleep", "6000"])
        page.click("#cancel-ask")
        page.click("#cancel-yes")
        job.refresh_from_db()
        assert job.cancel_asked_at is not None
        context.close()
