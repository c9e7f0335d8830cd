"""What a browser finds wrong with a page while a test uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Page

# htmx logs both where it drops a request, the second one saying why: a newer one takes its place,
# or its answer took too long. On a busy machine that happens, and pages are made for it.
DROPPED = "error: htmx:afterRequest,"
WHY = ("error: htmx:sendAbort,", "error: htmx:timeout,")


def complaints_of(page: Page) -> list[str]:
    """Return a list to which everything is added that the browser has to say from now on."""
    heard: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        said = f"{message.type}: {message.text}"
        if said.startswith(WHY) and heard and heard[-1].startswith(DROPPED):
            heard.pop()
        else:
            heard.append(said)

    page.on("console", hear)
    page.on("pageerror", lambda error: heard.append(str(error)))
    return heard
