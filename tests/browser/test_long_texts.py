"""Test that pages with longer texts fit on a phone, and German tables on a desktop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.complaints import complaints_of
from tests.browser.session import give_session
from tests.functional.access_table import TABLE
from tests.functional.addresses import fill, is_api, template_of
from tests.functional.matrix_stage import Stage, matrix_stage
from tests.functional.pseudo_locale import LANGUAGE, write_catalogues
from tests.stages import Copy, copied, name_of_copy

if TYPE_CHECKING:
    from django.conf import LazySettings
    from playwright.sync_api import Browser

copy = copied(matrix_stage)
committed_db = name_of_copy
WIDTH, DESKTOP, PAGES = 390, 1280, 40
# The tables with hidden columns. The figures of a chart have more columns than a page has room for.
CUT = """Array.from(document.querySelectorAll(".tblw"))
    .filter(table => !table.closest(".chart-table") && table.scrollWidth > table.clientWidth + 1)
    .map(table => `${table.id} by ${table.scrollWidth - table.clientWidth} px`)"""


@pytest.fixture
def there(copy: Copy[Stage]) -> Stage:
    return copy.made


@pytest.fixture(autouse=True)
def languages(settings: LazySettings, tmp_path: Path) -> None:
    settings.LANGUAGES = [(code, code) for code in ("en", "de", LANGUAGE)]
    settings.LOCALE_PATHS = [*settings.LOCALE_PATHS, str(write_catalogues(tmp_path))]


@pytest.mark.parametrize("language", ["de", LANGUAGE])
class TestPages:
    def test_have_room_on_phones_and_desktops(
        self, there: Stage, site: str, browser: Browser, language: str
    ) -> None:
        context = browser.new_context(
            base_url=site,
            extra_http_headers={"Accept-Language": language},
            viewport={"width": WIDTH, "height": 844},
        )
        give_session(context, there.client("operator", api=False), site)
        page = context.new_page()
        complaints, wide, seen = complaints_of(page), {}, 0
        for address, route in TABLE.items():
            if "GET" not in route.methods or is_api(address):
                continue
            path = fill(template_of(address, route), there.words)
            answer = context.request.get(path)
            # The browser downloads files; fragments are parts of other pages.
            if answer.ok and f'<html lang="{language}"' in answer.text():
                page.goto(path)
                width = page.evaluate("document.documentElement.scrollWidth")
                if width > WIDTH:
                    wide[path] = width
                if language == "de":
                    page.set_viewport_size({"width": DESKTOP, "height": 844})
                    if cut := page.evaluate(CUT):
                        wide[path] = cut
                    page.set_viewport_size({"width": WIDTH, "height": 844})
                seen += 1
        context.close()
        assert (wide, complaints) == ({}, [])
        assert seen > PAGES
