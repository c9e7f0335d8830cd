"""Test interactive charts in a real browser, under production's Content-Security-Policy."""

from __future__ import annotations

import csv
import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from scheduling.models import Round
from tenants.models import Tenant
from tests.browser.axe import serious
from tests.browser.charts import drawn
from tests.browser.complaints import complaints_of
from tests.browser.session import give_session
from tests.functional.pool_stage import Stage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

# Everything that the policy blocks is recorded here, whether or not the console shows it.
WATCH = """
window.refused = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.refused.push(event.violatedDirective + " " + event.blockedURI + " " + event.sample);
});
"""
PAGES = (
    ("/pools/{pool}/history/", 2),
    ("/pools/{pool}/prices/", 1),
    ("/t/alpha/", 2),
    ("/t/alpha/ledger/", 1),
)
WITHOUT = (
    "/t/alpha/jobs/",
    "/pools/{pool}/",
    "/pools/{pool}/rounds/",
    "/pools/{pool}/rounds/1/",
    "/account/",
)


@pytest.fixture
def there(settled: Stage) -> Stage:
    return settled


@pytest.fixture
def committed_db(there: Stage) -> str:
    """Return the database of the stage, which `site` shows."""
    assert there.pool
    return str(connection.settings_dict["NAME"])


@pytest.fixture
def page(there: Stage, site: str, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(base_url=site, accept_downloads=True)
    context.add_init_script(WATCH)
    give_session(context, there.client("owner"), site)
    opened = context.new_page()
    yield opened
    context.close()


def plot(page: Page, key: str, expression: str) -> Any:
    """Return a value of Plotly's chart, which its element has as `plot`."""
    return page.eval_on_selector(f"#{key} .chart-plot", f"plot => {expression}")


def redrawn(page: Page, key: str, act: Any) -> None:
    """Call `act`, and wait until the chart was drawn again."""
    before = int(page.get_attribute(f"#{key} .chart-plot", "data-drawn") or 0)
    act()
    drawn(page, key, before + 1)


def saved(page: Page, chart: Locator, kind: str, folder: Path) -> Path:
    with page.expect_download() as download:
        chart.get_by_role("button", name=f"Download as {kind}").click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


class TestCharts:
    def test_render_without_errors(self, there: Stage, page: Page) -> None:
        page.set_viewport_size({"width": 1280, "height": 844})
        complaints = complaints_of(page)
        for path, count in PAGES:
            page.goto(path.format(pool=there.pool))
            keys = page.eval_on_selector_all("[data-chart]", "all => all.map(one => one.id)")
            assert len(keys) == count, path
            for key in keys:
                drawn(page, key)
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
            assert page.evaluate("window.refused") == [], path
            assert serious(page) == [], path
        assert complaints == []

    def test_add_no_inline_style_elements(self, there: Stage, page: Page) -> None:
        page.goto(f"/pools/{there.pool}/history/")
        drawn(page, "chart-use")
        assert page.locator("style").count() == 0
        over = "getComputedStyle(plot.querySelector('.main-svg')).position"
        assert plot(page, "chart-use", over) == "absolute"
        # Nor are Plotly's rules added to the sheet a second time.
        sheet = "document.getElementById('plotly.js-style-global').sheet.cssRules.length"
        assert page.evaluate(sheet) == 66
        assert page.evaluate("window.refused") == []

    def test_do_not_widen_narrow_page(self, there: Stage, page: Page) -> None:
        """A drawn chart keeps its width, for example after a tablet is turned."""
        page.set_viewport_size({"width": 390, "height": 844})
        complaints = complaints_of(page)
        wide = {}
        for path, charts in PAGES:
            page.goto(path.format(pool=there.pool))
            keys = page.eval_on_selector_all("[data-chart]", "all => all.map(one => one.id)")
            assert len(keys) == charts
            for key in keys:
                drawn(page, key)
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
            assert page.evaluate("window.refused") == [], path
            wide[path] = page.evaluate(
                """() => {
                  for (const part of document.querySelectorAll(".svg-container, .main-svg"))
                    part.style.width = "1200px";
                  return document.documentElement.scrollWidth;
                }"""
            )
        assert wide == {path: 390 for path, _ in PAGES}
        assert complaints == []


class TestPageWithoutVisibleChart:
    def test_loads_no_chart_code(self, there: Stage, page: Page) -> None:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        for path in WITHOUT:
            page.goto(path.format(pool=there.pool))
        assert asked
        assert [url for url in asked if "plotly" in url or "charts.js" in url] == []

    def test_loads_chart_library_only_when_charts_are_opened(self, page: Page) -> None:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto("/t/alpha/")
        page.locator("#chart-rho-v100 .chart-plot").wait_for(state="attached")
        assert [url for url in asked if "plotly-basic" in url] == []
        drawn(page, "chart-use-v100")
        assert len([url for url in asked if "plotly-basic" in url]) == 1


class TestStillPicture:
    def test_is_shown_without_script(self, there: Stage, site: str, browser: Browser) -> None:
        context = browser.new_context(base_url=site, java_script_enabled=False)
        give_session(context, there.client("owner"), site)
        page = context.new_page()
        page.goto(f"/pools/{there.pool}/history/")
        pictures = page.locator(".chart-still")
        heights = pictures.evaluate_all("all => all.map(one => one.getBoundingClientRect().height)")
        context.close()
        assert heights == [300, 300]

    def test_is_removed_when_chart_is_drawn(self, there: Stage, page: Page) -> None:
        page.goto(f"/pools/{there.pool}/history/")
        assert drawn(page, "chart-use").locator(".chart-still").count() == 0


class TestTimeAxis:
    def test_is_utc_in_other_zones(self, there: Stage, site: str, browser: Browser) -> None:
        """Regression: axes were in the browser's zone, unlike the table and the CSV."""
        context = browser.new_context(base_url=site, timezone_id="Asia/Kolkata")
        give_session(context, there.client("owner"), site)
        page = context.new_page()
        page.goto(f"/pools/{there.pool}/history/")
        data = json.loads(drawn(page, "chart-use").locator(".chart-data").text_content() or "")
        drawn_at = plot(page, "chart-use", "plot.calcdata[0][0].x")
        assert drawn_at == data["axes"][data["figure"]["data"][0]["x"]][0]
        assert plot(page, "chart-use", "plot.layout.xaxis.title.text") == "UTC"
        context.close()


class TestInteraction:
    def test_selects_time_range_and_resets(self, there: Stage, page: Page) -> None:
        page.goto(f"/pools/{there.pool}/history/")
        key = "chart-use"
        chart = drawn(page, key)
        span = "[plot._fullLayout.xaxis.range].flat().map(Date.parse).reduce((a, b) => b - a)"
        whole = plot(page, key, span)
        assert whole > 2 * 3600 * 1000
        redrawn(page, key, chart.get_by_role("button", name="1 h", exact=True).click)
        assert plot(page, key, span) == 3600 * 1000
        assert chart.locator("[aria-pressed=true][data-span]").inner_text() == "1 h"
        redrawn(page, key, chart.get_by_role("button", name="All", exact=True).click)
        assert plot(page, key, span) == whole

    def test_toggles_series(self, there: Stage, page: Page) -> None:
        page.goto("/t/alpha/")
        chart = drawn(page, "chart-use-v100")
        quota = chart.get_by_role("button", name="quota", exact=True)
        assert quota.get_attribute("aria-pressed") == "true"
        redrawn(page, "chart-use-v100", quota.click)
        assert quota.get_attribute("aria-pressed") == "false"
        assert plot(page, "chart-use-v100", "plot.data[2].visible") == "legendonly"
        redrawn(page, "chart-use-v100", quota.click)
        assert plot(page, "chart-use-v100", "plot.data[2].visible") is True

    def test_toggles_one_of_two_series_with_same_name(self, there: Stage, page: Page) -> None:
        """Initials distinguish two tenants of the same name, unless a third has such a name."""
        names = {"alpha": "Vision", "beta": "Vision (AL)", "gamma": "Vision"}
        for slug, name in names.items():
            Tenant.objects.filter(slug=slug).update(name=name)
        page.goto(f"/pools/{there.pool}/history/")
        chart = drawn(page, "chart-use")
        keys = chart.locator(".chart-key")
        assert keys.all_inner_texts() == ["Vision (AL)", "Vision (AL)", "Vision (GA)"]
        redrawn(page, "chart-use", keys.nth(1).click)
        shown = plot(page, "chart-use", "plot.data.map(one => one.visible)")
        assert shown == [True, "legendonly", True]

    def test_hover_shows_values(self, there: Stage, page: Page) -> None:
        page.goto(f"/pools/{there.pool}/history/")
        chart = drawn(page, "chart-use")
        chart.locator(".nsewdrag").hover()
        page.locator("#chart-use .hoverlayer text").first.wait_for(state="attached")
        assert "alpha" in (page.text_content("#chart-use .hoverlayer") or "")

    def test_arrow_key_announces_values(self, there: Stage, page: Page) -> None:
        page.goto(f"/pools/{there.pool}/history/")
        chart = drawn(page, "chart-use")
        chart.locator(".chart-plot").focus()
        page.keyboard.press("ArrowLeft")
        said = page.inner_text("#say")
        last = Round.objects.filter(pool=there.lab.pool).latest("number")
        held = sum(row["own"] + row["borrowed"] for row in last.shares)
        assert sum(int(part.split()[-1]) for part in said.split(": ", 1)[1].split(", ")) == held
        page.locator("#chart-use .hoverlayer text").first.wait_for(state="attached")

    def test_theme_switch_redraws_chart(self, there: Stage, page: Page) -> None:
        page.goto(f"/pools/{there.pool}/history/")
        drawn(page, "chart-use")
        paper = "getComputedStyle(document.body).backgroundColor"
        ground = "plot.layout.paper_bgcolor"
        seen = []
        for _ in range(2):
            redrawn(page, "chart-use", lambda: page.click("[data-act=theme]"))
            seen.append(plot(page, "chart-use", ground))
            assert seen[-1] == page.evaluate(paper).replace(" ", "")
        assert seen[0] != seen[1]


class TestDownload:
    def test_png_has_expected_size(self, there: Stage, page: Page, tmp_path: Path) -> None:
        complaints = complaints_of(page)
        page.goto(f"/pools/{there.pool}/history/")
        path = saved(page, drawn(page, "chart-use"), "PNG", tmp_path)
        assert path.name == f"use-{there.pool}.png"
        data = path.read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", data[16:24]) == (2400, 1280)
        assert page.evaluate("window.refused") == []
        assert complaints == []

    def test_png_title_names_hidden_series(self, there: Stage, page: Page, tmp_path: Path) -> None:
        Tenant.objects.filter(slug="beta").update(name="R & <D>")
        page.goto(f"/pools/{there.pool}/history/")
        chart = drawn(page, "chart-use")
        page.evaluate(
            """() => {
              const draw = Plotly.toImage;
              Plotly.toImage = (figure, ...rest) => {
                window.titled = figure.layout.title.text;
                return draw(figure, ...rest);
              };
            }"""
        )
        titles = []
        for number in range(4):
            if number:
                redrawn(page, "chart-use", chart.locator(".chart-key").nth(number - 1).click)
            saved(page, chart, "PNG", tmp_path)
            titles.append(page.evaluate("window.titled"))
        whole = titles[0]
        assert whole
        assert titles[1:] == [
            f"{whole}, without alpha",
            f"{whole}, without alpha and R &amp; &lt;D>",
            f"{whole}, without 3 series",
        ]

    def test_csv_contains_hidden_series_and_whole_range(
        self, there: Stage, page: Page, tmp_path: Path
    ) -> None:
        page.goto(f"/pools/{there.pool}/history/")
        chart = drawn(page, "chart-use")
        whole = saved(page, chart, "CSV", tmp_path).read_text()
        redrawn(page, "chart-use", chart.locator(".chart-key").first.click)
        redrawn(page, "chart-use", chart.get_by_role("button", name="1 h", exact=True).click)
        assert saved(page, chart, "CSV: all series, whole range", tmp_path).read_text() == whole

    def test_csv_matches_rounds_and_names_units(
        self, there: Stage, page: Page, tmp_path: Path
    ) -> None:
        page.goto(f"/pools/{there.pool}/history/")
        path = saved(page, drawn(page, "chart-use"), "CSV", tmp_path)
        head, *rows = csv.reader(io.StringIO(path.read_text()))
        assert head[:2] == ["at, UTC on the pool's clock", "GPUs in use by alpha"]
        used = {
            f"{round_.at:%Y-%m-%dT%H:%M:%SZ}": sum(
                row["own"] + row["borrowed"] for row in round_.shares
            )
            for round_ in Round.objects.filter(pool=there.lab.pool)
        }
        found = {row[0]: sum(map(int, row[1:])) for row in rows}
        assert {at: found[at] for at in used} == used


class TestLivePage:
    def test_keeps_zoom_and_hidden_series_on_new_round(self, there: Stage, page: Page) -> None:
        complaints = complaints_of(page)
        page.goto(f"/pools/{there.pool}/history/")
        chart = drawn(page, "chart-use")
        page.evaluate("window.same = document.querySelector('#chart-use .chart-plot')")
        box = chart.locator(".nsewdrag").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 45, steps=4)
        page.mouse.up()
        ranged = "JSON.stringify(plot.layout.xaxis.range)"
        page.wait_for_selector("#chart-use [data-span='0'][aria-pressed=false]")
        zoomed = plot(page, "chart-use", ranged)
        beta = chart.get_by_role("button", name="beta", exact=True)
        redrawn(page, "chart-use", beta.click)
        points = plot(page, "chart-use", "plot.data[0].x.length")
        traces = page.locator("#chart-use .main-svg").count()

        # Regression: a refresh without a new round removed the count of drawings.
        with page.expect_response(f"**/pools/{there.pool}/history/"):
            page.evaluate("document.querySelector('#chart-use').title = 'before'")
            page.evaluate("htmx.trigger(document.body, 'round-changed')")
        page.locator("#chart-use:not([title])").wait_for()
        drawn(page, "chart-use", 2)

        def next_round() -> None:
            there.lab.round(after_s=900)
            page.evaluate("htmx.trigger(document.body, 'round-changed')")

        redrawn(page, "chart-use", next_round)
        assert plot(page, "chart-use", "plot.data[0].x.length") == points + 1
        assert plot(page, "chart-use", ranged) == zoomed
        assert plot(page, "chart-use", "plot === window.same") is True
        assert plot(page, "chart-use", "plot.data[1].visible") == "legendonly"
        assert beta.get_attribute("aria-pressed") == "false"
        # The earlier drawing is removed completely.
        assert page.locator("#chart-use .main-svg").count() == traces
        assert page.locator(".chart-plot").count() == 2
        assert complaints == []
