"""The server and its token: from the environment, else from the user's file (0600).

A token is stored with the URL that it was made for, and never sent anywhere else.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from evenshare.errors import UsageError

DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Server:
    """A URL without a final slash, and its token, if there is one."""

    url: str
    token: str | None


def config_file(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CONFIG_HOME")
    # The XDG specification requires that relative paths are ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".config"
    return root / "evenshare" / "config.json"


def server(environment: Mapping[str, str], url: str | None = None) -> Server:
    """Return the server from the option, else from the environment, else from the file."""
    kept = _read(config_file(environment))
    chosen = checked_url(url or environment.get("EVENSHARE_URL") or kept.get("url") or DEFAULT_URL)
    token = environment.get("EVENSHARE_TOKEN") or kept.get("tokens", {}).get(chosen)
    return Server(chosen, checked_token(token) if token else None)


def remember(environment: Mapping[str, str], url: str, token: str) -> Path:
    """Store a token, and make its URL the default portal."""
    path = config_file(environment)
    kept = _read(path)
    kept["url"] = url
    kept["tokens"] = {**kept.get("tokens", {}), url: token}
    write_private(path, json.dumps(kept, indent=2) + "\n")
    return path


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, with access for its owner only, from its creation on."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)


def checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine or parts.username or parts.query or parts.fragment or not url.isprintable():
        raise UsageError(f"{url!r} is not a portal address; use one like {DEFAULT_URL}")
    return url.rstrip("/").removesuffix("/api/v1")


def checked_token(token: str) -> str:
    """Return a token without surrounding spaces.

    Other spaces and line breaks are refused: a line break would start another header.
    """
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("the token is empty or has invalid characters")
    return token


def is_private(url: str) -> bool:
    """Return whether a secret is safe in transit to this URL."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme == "https" or host in ("localhost", "::1") or host.startswith("127.")


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as problem:
        raise UsageError(f"{path} cannot be read ({problem}); log in again") from None
    if not isinstance(kept, dict) or not isinstance(kept.get("tokens", {}), dict):
        raise UsageError(f"{path} is not a file of evenshare; move it away and log in again")
    return kept
