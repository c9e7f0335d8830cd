"""`evenshare job hold`, `release` and `priority`: the order of a tenant's own jobs."""

from __future__ import annotations

import argparse
from typing import Any

from .api import Transport, part
from .jobs import find
from .terminal import Terminal, inert


def hold(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    return _changed(screen, _post(options, client, "hold"))


def release(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    return _changed(screen, _post(options, client, "release"))


def priority(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    body = {"priority": options.priority}
    return _changed(screen, _post(options, client, "priority", body))


def _post(
    options: argparse.Namespace, client: Transport, act: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    path = f"/jobs/{part(find(client, options.id))}/{act}"
    job: dict[str, Any] = client.post(path, body, repeatable=True)
    return job


def _changed(screen: Terminal, job: dict[str, Any]) -> int:
    if screen.answered(job):
        return 0
    held = ", ".join(inert(one) for one in job["holds"])
    text = f"held: {held}" if held else "not held"
    screen.line(f"{inert(job['id'])}  {text}, priority {inert(job['priority'])}")
    return 0
