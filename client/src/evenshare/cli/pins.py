"""Pins: the heads of logs that were seen and checked here, one file per portal and pool (0600)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from .config import UsageError, config_file, write_private


def pin_file(environment: Mapping[str, str], url: str, pool: str) -> Path:
    """Where the pin of a pool is, beside the file of `evenshare login`."""
    place = re.sub(r"[^a-z0-9.-]+", "_", url.partition("://")[2].lower())[:60]
    # What is left out of an address must not make two of them one.
    mark = hashlib.sha256(f"{url}\n{pool}".encode()).hexdigest()[:8]
    name = re.sub(r"[^a-zA-Z0-9-]+", "_", pool)[:60]
    return config_file(environment).parent / "pins" / f"{place}.{name}.{mark}.json"


def stored_pin(path: Path) -> bytes | None:
    """The bytes of a pin, None where there is none yet."""
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
