"""Collect the messages and errors of a browser while a test uses a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Page

# htmx logs both when it drops a request; the second names the cause, a newer request or a slow
# response. On a busy machine this is normal, and pages handle it.
DROPPED = "error: htmx:afterRequest,"
WHY = ("error: htmx:sendAbort,", "error: htmx:timeout,")


def complaints_of(page: Page) -> list[str]:
    """Return a list to which the browser's messages are added from now on."""
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
