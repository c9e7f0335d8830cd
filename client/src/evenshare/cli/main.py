"""Parses the command line, runs one command, and reports its errors as texts and exit codes."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence

from evenshare.errors import ApiError, RequestConflictError, UnreachableError, UsageError

from . import terminal
from .api import Call, ExplainedError, Transport
from .config import server
from .parser import parser
from .terminal import Terminal, inert

# The token in commands for a shell.
IN_SHELL = "$EVENSHARE_TOKEN"
# Headers without an effect on the answer's content.
UNSHOWN = ("Accept", "Accept-Encoding", "User-Agent")
OK, USAGE, REFUSED, CONFLICT, INTERRUPTED = 0, 2, 3, 4, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code (see `parser.EXIT_CODES`)."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    screen = terminal.standard()
    try:
        options = _parsed(argv)
        return _run(options, screen)
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. The interpreter's last flush must not
        # fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return OK
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else USAGE


def _parsed(argv: list[str]) -> argparse.Namespace:
    # Split here, because argparse removes one `--` or two, depending on its version.
    at = argv.index("--") if "--" in argv else len(argv)
    top = parser()
    options = top.parse_args(argv[:at])
    options.top, options.command = top, argv[at + 1 :]
    if at < len(argv) and not options.takes_command:
        top.error("only `job submit` takes a program after --")
    return options


def _run(options: argparse.Namespace, screen: Terminal) -> int:
    screen.writes_json = options.output == "json"
    explain = (lambda call: show_call(screen, call)) if options.explain else None
    try:
        portal = server(os.environ, getattr(options, "url", None))
        return int(options.run(options, Transport(portal, explain), screen))
    except ExplainedError:
        return OK
    except UsageError as problem:
        screen.note(f"evenshare: {inert(problem)}")
        return USAGE
    except UnreachableError as problem:
        screen.note(f"evenshare: {inert(problem)}")
        return REFUSED
    except ApiError as refused:
        show_refusal(screen, refused)
        return CONFLICT if isinstance(refused, RequestConflictError) else REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED


def show_call(screen: Terminal, call: Call) -> None:
    """Show the call as curl would make it, without its secrets."""
    headers = dict(call.headers)
    if "Authorization" in headers:
        headers["Authorization"] = f"Bearer {IN_SHELL}"
    body = None if call.body is None else _redacted(call.body)
    shown = {"method": call.method, "url": call.url, "headers": headers, "body": body}
    if screen.answered(shown):
        return
    parts = ["curl -sS" if call.method == "GET" else f"curl -sS -X {call.method}"]
    for name in (name for name in headers if name not in UNSHOWN):
        text = f"{name}: {headers[name]}"
        # Double quotes, so that the shell inserts the token.
        parts.append(f'-H "{text}"' if IN_SHELL in text else f"-H {shlex.quote(text)}")
    if body is not None:
        parts.append(f"-d {shlex.quote(json.dumps(body))}")
    screen.line(" \\\n  ".join(map(inert, [*parts, shlex.quote(call.url)])))


def _redacted(body: Mapping[str, object]) -> dict[str, object]:
    return {k: f"<{k}>" if k == "password" else value for k, value in body.items()}


def show_refusal(screen: Terminal, refused: ApiError) -> None:
    """Show a refusal: the reason, the fields, and the remedy."""
    problem = refused.problem
    if screen.writes_json:
        screen.note(json.dumps(problem))
        return
    title = screen.style(inert(problem.get("title", "Refused")), "bold", "red", err=True)
    screen.note(f"evenshare: {title} ({refused.status})")
    if problem.get("detail"):
        screen.note(f"  {inert(problem['detail'])}")
    errors = problem.get("errors")
    for error in errors if isinstance(errors, list) else []:
        if isinstance(error, dict):
            field = inert(error.get("field") or "request")
            line = f"line {inert(error['line'])}, " if error.get("line") else ""
            screen.note(f"  {line}{field}: {inert(error.get('reason', ''))}")
            if error.get("hint"):
                screen.note(f"    -> {inert(error['hint'])}")
    if refused.status == 401:
        screen.note("  -> log in with: evenshare login")
    if problem.get("request_id"):
        screen.note(screen.style(f"  request {inert(problem['request_id'])}", "dim", err=True))


if __name__ == "__main__":
    sys.exit(main())
