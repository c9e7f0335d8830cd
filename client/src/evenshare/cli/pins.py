"""Pins: verified heads of logs, one file per portal and pool (0600)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from evenshare.errors import UsageError

from .config import config_file, write_private


def pin_file(environment: Mapping[str, str], url: str, pool: str) -> Path:
    """Return the file of a pool's pin, in the folder of the login file."""
    place = re.sub(r"[^a-z0-9.-]+", "_", url.partition("://")[2].lower())[:60]
    # The hash distinguishes URLs that differ only in characters that file names cannot have.
    mark = hashlib.sha256(f"{url}\n{pool}".encode()).hexdigest()[:8]
    name = re.sub(r"[^a-zA-Z0-9-]+", "_", pool)[:60]
    return config_file(environment).parent / "pins" / f"{place}.{name}.{mark}.json"


def stored_pin(path: Path) -> bytes | None:
    """Return the bytes of a pin, or None if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}") from None


def keep(path: Path, data: bytes) -> None:
    try:
        write_private(path, data.decode() + "\n")
    except OSError as problem:
        raise UsageError(f"{path} cannot be written: {problem.strerror}") from None
