"""User stories by links, menus and forms only, with axe's violations of each page.

Every kind of page in a story is checked once: in light, in dark, and 390 px wide. Another story
checks it again only if it has new kinds of elements there. axe takes two thirds of the stories'
time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from django.urls import resolve

from tenants.models import User
from tests.browser.axe import on_a_phone, serious
from tests.browser.session import give_session
from tests.functional.two_clocks import PASSWORD
from tests.functional.visitors import signed_in

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Kinds of elements: names, with classes, roles and states.
KINDS = """
() => [...new Set([...document.querySelectorAll("body *")].map((one) => [
  one.localName, one.type, one.getAttribute("role"), one.getAttribute("class"),
  one.matches(":disabled, [inert], [hidden], [aria-disabled]"),
].join(" ")))]
"""
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@dataclass
class Story:
    """A user's browser; `findings` are the violations so far.

    `looked`: by kind of page, the kinds of elements that were checked, also in other stories. If
    None, axe is not used.
    """

    page: Page
    site: str
    looked: dict[str, set[str]] | None
    findings: list[str] = field(default_factory=list)
    _visited: set[str] = field(default_factory=set)

    def begin(self, name: str) -> None:
        """Open the person's first page, through the login page if axe should check that too."""
        if self.looked is not None:
            self.sign_in(name)
            return
        give_session(self.page.context, signed_in(User.objects.get(username=name)), self.site)
        self.page.goto("/")

    def sign_in(self, name: str) -> None:
        """Log in from the front page."""
        self.page.goto("/")
        self.follow("Log in", within="header")
        self.page.fill("#id_username", name)
        self.page.fill("#id_password", PASSWORD)
        self.press("Log in")

    def follow(self, text: str, *, within: str = "main") -> None:
        """Click a link by its text, and check its page."""
        link = self.page.locator(within).get_by_role("link", name=text, exact=True).first
        with self.page.expect_navigation():
            link.click()
        self.look()

    def opens(self, selector: str) -> None:
        """Click the first link of a selector, and check its page."""
        with self.page.expect_navigation():
            self.page.locator(selector).first.click()
        self.look()

    def menu(self, text: str) -> None:
        """Click an entry of the main menu."""
        self.follow(text, within="header nav")

    def account(self, text: str) -> None:
        """Click an entry of the account menu."""
        self.page.click("#account-menu > summary")
        self.follow(text, within="#account-menu")

    def pool(self, text: str) -> None:
        """Select a pool in the switch of pools."""
        self.page.click("#pool-switch > summary")
        self.follow(text, within="#pool-switch")

    def press(self, text: str) -> None:
        """Press a button that leads to another page, and check that page."""
        button = self.page.locator("main").get_by_role("button", name=text, exact=True).first
        with self.page.expect_navigation():
            button.click()
        self.look()

    def sees(self, *texts: str) -> None:
        """Wait until the page shows all these texts."""
        for text in texts:
            self.page.locator("main").get_by_text(text).first.wait_for(state="attached")

    def look(self) -> None:
        """Check a page of a new kind, or with new elements, with axe."""
        path = urlsplit(self.page.url).path
        kind = resolve(path).route
        if self.looked is None or kind in self._visited or kind.startswith("api/"):
            return
        self._visited.add(kind)
        elements, known = set(self.page.evaluate(KINDS)), self.looked.setdefault(kind, set())
        if elements <= known:
            return
        known |= elements
        said = serious(self.page)
        self.page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a literal of two numbers
        said += on_a_phone(self.page)
        wide = self.page.evaluate("document.documentElement.scrollWidth")
        if wide > PHONE["width"]:
            said.append(f"{wide} px wide on a phone")
        self.page.set_viewport_size(WIDE)  # type: ignore[arg-type]  # a literal of two numbers
        self.findings += [f"{path}: {line}" for line in said]
