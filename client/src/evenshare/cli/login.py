"""`evenshare login`: make or take a token, and store it."""

from __future__ import annotations

import argparse
import getpass
import os
import platform
import sys
from dataclasses import replace

from evenshare.errors import ApiError, UsageError

from .api import Transport
from .config import Server, checked_token, is_private, remember
from .terminal import Terminal, inert, when

SCOPES = ["jobs:write", "jobs:read", "read"]
CREDIT_SCOPE = "credit:write"


def login(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    """Log in. A token is tested before it is stored, so that an invalid one is detected now."""
    if options.token and (options.username or options.password):
        raise UsageError("give --token, or --username and --password, not both")
    if options.password and not options.username:
        raise UsageError("--password needs --username")
    url = client.server.url
    if not is_private(url):
        screen.note(f"evenshare: {url} is not encrypted: others on the network can read the token")
    # If an old token was sent with the request, the server would check that token first.
    client.server = Server(url, None)
    until = ""
    if options.token or not (options.username or sys.stdin.isatty()):
        token = _given_token(options)
    else:
        answer = client.post("/tokens", _wish(options))
        token, until = str(answer["token"]), when(answer.get("expires_at"))
    token = checked_token(token)
    _try(replace(client, server=Server(url, token)))
    path = remember(os.environ, url, token)
    if not screen.answered({"url": url, "expires_at": until or None, "file": str(path)}):
        screen.line(f"Logged in to {url}" + (f" until {until}" if until else ""))
        screen.note(f"The token is in {inert(path)}.")
    if os.environ.get("EVENSHARE_TOKEN"):
        screen.note("evenshare: EVENSHARE_TOKEN is set and overrides this token")
    return 0


def _given_token(options: argparse.Namespace) -> str:
    if options.token is None:
        raise UsageError("no terminal for input: give --token - or --username")
    return _secret(options.token)


def _wish(options: argparse.Namespace) -> dict[str, object]:
    username = options.username or input("Username: ")
    password = _secret(options.password or "")
    if options.password is None and not options.explain:
        if not sys.stdin.isatty():
            raise UsageError("no terminal for input: give --password -")
        password = getpass.getpass()
    return {
        "username": username,
        "password": password,
        "name": f"evenshare on {platform.node() or 'a machine'}"[:60],
        "scopes": [*SCOPES, CREDIT_SCOPE] if options.credit else SCOPES,
        "days": options.days,
    }


def _secret(given: str) -> str:
    """Return the secret; `-` means the next line of standard input, which no other user can see."""
    return sys.stdin.readline().rstrip("\r\n") if given == "-" else given


def _try(client: Transport) -> None:
    """Test a token.

    Only 401 means that it is invalid: a valid token with few scopes may get 403 here.
    """
    try:
        client.get("/pools")
    except ApiError as refused:
        if refused.status != 403:
            raise
