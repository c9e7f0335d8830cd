"""`evenshare shell` and `evenshare notebook`: interactive jobs."""

from __future__ import annotations

import argparse
import re
import sys
import uuid
from typing import Any

from evenshare.errors import UsageError

from .api import Transport, part
from .jobs import DID_NOT_SUCCEED, POLL_S, TERMINAL_STATES, find, phase
from .terminal import Terminal, inert

_DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,7})s?)?")


def shell(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    """Start a shell in a lease, or attach to one."""
    from .terminal_link import Ending, attach  # noqa: PLC0415 - Windows has no `termios`

    identity = _submitted(options, client, screen, "shell")
    while True:
        link = _awaited(options, client, screen, identity)
        if link is None:
            return DID_NOT_SUCCEED
        if sys.stdin.isatty():
            screen.note("Attached. Ctrl-] detaches; the session goes on.")
        ending = attach(link["url"])
        if ending is Ending.EXITED:
            screen.note("The session has ended.")
            return 0
        if ending is Ending.DETACHED:
            screen.note(f"\nDetached. Again: evenshare shell --attach {inert(identity)}")
            return 0
        if client.get(f"/jobs/{part(identity)}")["state"] in TERMINAL_STATES:
            screen.note("The session has ended.")
            return 0
        screen.note("The connection was closed; attaching again.")


def notebook(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    """Start a notebook in a lease, and print the link that opens it."""
    identity = _submitted(options, client, screen, "notebook")
    link = _awaited(options, client, screen, identity)
    if link is None:
        return DID_NOT_SUCCEED
    if screen.answered({"id": identity, **link}):
        return 0
    screen.line(inert(link["url"]))
    screen.note("The link works once, within a minute. Later, open it from the job's page:")
    screen.note(f"  {client.server.url}/jobs/{inert(identity)}/")
    return 0


def seconds(text: str) -> int:
    """Return a duration such as 2h, 90m or 1h30m in seconds."""
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 2h or 90m")
    hours, minutes, rest = (int(one or 0) for one in match.groups())
    return hours * 3600 + minutes * 60 + rest


def _submitted(options: argparse.Namespace, client: Transport, screen: Terminal, kind: str) -> str:
    """Submit an interactive job, or find the one that is named; return its id."""
    if options.attach is not None:
        return find(client, options.attach)
    if not options.pool:
        raise UsageError("--pool: required, unless --attach names a job")
    body = {
        "pool": options.pool,
        "gpus": options.gpus,
        "session": kind,
        "tenant": options.tenant,
        "gpu_types": options.gpu_type,
        "session_s": options.limit,
        "session_idle_s": options.idle,
    }
    given = {name: value for name, value in body.items() if value not in (None, [])}
    identity = str(client.post("/jobs", given, key=str(uuid.uuid4()))["id"])
    screen.note(f"submitted {inert(identity)}")
    return identity


def _awaited(
    options: argparse.Namespace, client: Transport, screen: Terminal, identity: str
) -> Any:
    """Return the link that opens the session, once it is ready; None if the job has ended."""
    seen, asked = None, 0
    try:
        while True:
            job = client.get(f"/jobs/{part(identity)}")
            if phase(job) != seen:
                seen, asked = phase(job), 0
                screen.step(inert(seen))
            link = client.post(f"/jobs/{part(identity)}/session", repeatable=True)
            if link["url"]:
                return link
            if job["state"] in TERMINAL_STATES:
                problem = link["session"].get("problem") or "The job has ended."
                screen.note(inert(problem))
                return None
            client.pause(POLL_S[min(asked, len(POLL_S) - 1)])
            asked += 1
    except KeyboardInterrupt:
        _ask_cancel(options, client, screen, identity)
        raise


def _ask_cancel(
    options: argparse.Namespace, client: Transport, screen: Terminal, identity: str
) -> None:
    """Cancel the job that this call submitted, if the person at the terminal says so."""
    if options.attach is None and sys.stdin.isatty():
        screen.note("\nCancel the job? [y/N] ")
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            client.post(f"/jobs/{part(identity)}/cancel", repeatable=True)
            screen.note("It is cancelled.")
            return
    screen.note(f"\nThe job goes on. To end it: evenshare job cancel {inert(identity)}")
