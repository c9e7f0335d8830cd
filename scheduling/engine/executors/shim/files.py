"""The small files by which an executor and a shim tell each other what is."""

import contextlib
import fcntl
import json
import os
import re
import time
from pathlib import Path
from typing import Any

from .processes import boot_id, process_start

_TOKEN = re.compile(r"[A-Za-z0-9]+-[0-9]+-[0-9]+")


def lease_folder(root: Path, token: str) -> Path:
    """Where the lease of a token (installation-job-leasenumber) has its files."""
    _, job, number = token.rsplit("-", 2)
    return root / str(int(job)) / "leases" / str(int(number))


def active(root: Path) -> list[Path]:
    """The tokens, as files, of leases whose end is not recorded yet."""
    return sorted(entry for entry in (root / "active").glob("*") if _TOKEN.fullmatch(entry.name))


def claim(folder: Path, **facts: Any) -> dict[str, Any] | None:
    """Take a lease's folder for ever; None where it was taken: a link makes no second one."""
    me = os.getpid()
    record = {"pid": me, "start": process_start(me), "boot": boot_id(), **facts}
    temporary = folder / f"claim.{me}.{time.monotonic_ns()}"
    temporary.write_text(json.dumps(record))
    try:
        os.link(temporary, folder / "shim.json")
    except FileExistsError:
        return None
    finally:
        temporary.unlink()
    return record


def fence(job: Path, number: int) -> bool:
    """Make `number` the job's present lease, so that late writers see they are; False if late."""
    present = job / "lease"
    with contextlib.suppress(OSError, ValueError):
        if int(present.read_text()) > number:
            return False
    fresh = job / f"lease.{number}.new"
    fresh.write_text(f"{number}\n")
    fresh.replace(present)
    return True


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock of a file exclusively."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_json(path: Path, *, at_most: int = 2**20) -> dict[str, Any] | None:
    """A JSON object from a regular file; None where there is none that can be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            value = json.loads(file.read(at_most))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def write_atomically(path: Path, value: dict[str, Any], *, durably: bool = False) -> None:
    """Readers see the old file or the whole new one; `durably`: after a power cut too."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}.new")
    with contextlib.suppress(FileNotFoundError):  # the folder is gone, and whoever read it
        with fresh.open("w") as file:
            json.dump(value, file)
            file.flush()
            if durably:
                os.fsync(file.fileno())
        fresh.replace(path)
