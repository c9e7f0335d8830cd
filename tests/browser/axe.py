"""Violations that axe finds on a page.

axe.min.js is axe-core 4.14.1 by Deque Systems, under the Mozilla Public License 2.0 (its text is in
LICENSE-axe.txt). Only tests use it; it is not served.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

_AXE = Path(__file__).with_name("axe.min.js").read_text(encoding="utf-8")
_FINDINGS = """
async ([only, without]) => (await axe.run(document, {
  resultTypes: ["violations"],
  rules: Object.fromEntries(without.map((rule) => [rule, {enabled: false}])),
  ...(only ? {runOnly: {type: "rule", values: only}} : {}),
})).violations
  .filter((found) => found.impact === "serious" || found.impact === "critical")
  .map((found) => found.id + ": " + found.nodes.map((node) => node.target.join(" ")).join(", "))
"""


def serious(page: Page) -> list[str]:
    """Return a page's serious violations in both themes, which differ only in colours."""
    page.evaluate(_AXE)
    found = findings(page)
    page.emulate_media(color_scheme="dark")
    found += findings(page, "color-contrast")
    page.emulate_media(color_scheme="light")
    return found


def on_a_phone(page: Page) -> list[str]:
    """Return a narrow page's serious violations, except of colours, which were checked before."""
    return findings(page, without=["color-contrast"])


def findings(page: Page, *rules: str, without: Sequence[str] = ()) -> list[str]:
    """Return the serious violations of these rules, by default all, on a page with axe loaded."""
    # Recent changes are highlighted briefly, so check the page without the highlight.
    page.emulate_media(reduced_motion="reduce")
    found: list[str] = page.evaluate(_FINDINGS, [list(rules) or None, list(without)])
    page.emulate_media(reduced_motion="no-preference")
    return found


def visited(page: Page, path: str) -> list[str]:
    """Open a page; return its serious violations, with its path."""
    answered = page.goto(path)
    assert answered is not None
    assert answered.status in (200, 403, 404), f"{path}: {answered.status}"
    return [f"{path} {found}" for found in serious(page)]
