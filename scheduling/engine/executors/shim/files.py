"""The small files through which an executor and a shim communicate."""

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from .processes import boot_id, start_of_process

# The maximum size of `spec.json`, which mostly holds a job's arguments and environment.
SPEC_BYTES = 2**25

_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
_TOKEN = re.compile(r"[A-Za-z0-9]+-[0-9]+-[0-9]+")
# Owner and group have all rights, and new files inherit the group.
_SHARED = 0o2770


def lease_folder(root: Path, token: str) -> Path:
    """Return the folder of a token (installation-job-leasenumber)."""
    _, job, number = token.rsplit("-", 2)
    return root / str(int(job)) / "leases" / str(int(number))


def active(root: Path) -> list[Path]:
    """Return the tokens, as files, of leases whose end is not recorded yet.

    Raises:
        OSError: the folder exists but cannot be read.
    """
    try:
        entries = sorted((root / "active").iterdir())
    except FileNotFoundError:
        return []
    return [entry for entry in entries if _TOKEN.fullmatch(entry.name)]


def make_private(*folders: Path) -> bool:
    """Create nested folders that no other user can read; return whether the last one is new."""
    *outer, last = folders
    try:
        last.mkdir(mode=0o700)
    except FileNotFoundError:
        if not outer:
            raise
        make_private(*outer)
        last.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        if not last.is_dir():
            raise
        return False
    return True


def is_shared(folder: Path) -> bool:
    """Return whether the job runs as another user, who has access through this folder's group."""
    try:
        return folder.stat().st_mode & _SHARED == _SHARED
    except OSError:
        return False


def file_mode(folder: Path) -> int:
    """Return the mode of files in a folder.

    In shared folders, and only there, the portal and its jobs' users can read each other's files.
    """
    return 0o640 if is_shared(folder) else 0o600


def file_mask(folder: Path) -> int:
    """Return the umask of a lease's programs."""
    return 0o007 if is_shared(folder) else 0o077


def is_ours(path: Path) -> bool:
    """Return whether a path exists and, in a shared folder, belongs to our user."""
    with contextlib.suppress(OSError):
        if path.exists():
            return not is_shared(path.parent) or path.lstat().st_uid == os.geteuid()
    return False


def is_others(path: Path) -> bool:
    """Return whether a path exists in a shared folder and belongs to another user."""
    with contextlib.suppress(OSError):
        return is_shared(path.parent) and path.lstat().st_uid != os.geteuid()
    return False


def move_away(*folders: Path) -> None:
    """Rename the outermost path that is not a folder; if all are folders, rename the last."""
    wrong = [folder for folder in folders if folder.is_symlink() or not folder.is_dir()]
    place = (wrong or folders)[0 if wrong else -1]
    with contextlib.suppress(FileNotFoundError):
        place.rename(place.with_name(f".{place.name}.{time.monotonic_ns()}"))


def reopen(lease: Path) -> None:
    """Restore our rights to the folders of a lease and of its job, which we own.

    Files that the job's user has closed to us are renamed. If the claim is renamed, the lease ends.
    """
    if not is_shared(lease.parents[1]):
        for folder in (lease.parents[1], lease.parent, lease):
            with contextlib.suppress(OSError):
                if not folder.is_symlink():
                    folder.chmod(0o700)
    for name in ("shim.json", "exit.json", "stop", "until"):
        with contextlib.suppress(OSError):
            if _put_aside(lease / name) and name == "shim.json":
                claim(lease, never=True)


def _put_aside(path: Path) -> bool:
    """Restore our rights to a file, or rename a foreign file; return whether it was renamed."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
    except PermissionError:
        if path.lstat().st_uid != os.geteuid():
            path.rename(path.with_name(f".{path.name}.{time.monotonic_ns()}"))
            return True
        path.chmod(0o600)
    return False


def remove(path: Path, *, only_folders: bool = False) -> None:
    """Remove a file, or a folder in its place; no link is followed."""
    if path.is_dir() and not path.is_symlink():
        # A job can make the folder arbitrarily deep and large, so it is renamed, not deleted.
        with contextlib.suppress(FileNotFoundError):
            path.rename(path.with_name(f".{path.name}.{time.monotonic_ns()}"))
    elif not only_folders:
        path.unlink(missing_ok=True)


def claim(folder: Path, *, never: bool = False) -> dict[str, Any] | None:
    """Claim a lease's folder permanently, by a link; return None if it is claimed already.

    `never`: claim it without a process, so that none ever starts for this lease.
    """
    me = os.getpid()
    record: dict[str, Any] = {"never": True}
    if not never:
        record = {"pid": me, "start": start_of_process(me), "boot": boot_id()}
    claimed = folder / "shim.json"
    temporary = _beside(claimed)
    with _created(temporary) as file:
        json.dump(record, file)
    try:
        os.link(temporary, claimed)
    except FileExistsError:
        return None
    finally:
        temporary.unlink()
    return record


def fence(job: Path, number: int) -> bool:
    """Make `number` the job's current lease; return False if a later lease is current already."""
    present = job / "lease"
    with contextlib.suppress(ValueError):
        if int(read_text(present)) > number:
            return False
    remove(present, only_folders=True)
    write_text(present, f"{number}\n")
    return True


def is_held(path: Path) -> bool:
    """Return whether a process holds the exclusive lock of a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
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
    """Return a JSON object from a regular file, or None if it cannot be read."""
    try:
        value = json.loads(read_text(path, at_most=at_most))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_text(path: Path, *, at_most: int = 2**16) -> str:
    """Return a regular file's text, empty if there is none: jobs may write anything here.

    Raises:
        OSError: it cannot be determined now whether the file exists, for example because too many
            files are open. A running process must then not count as ended.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _NO_FILE:
            return ""
        raise
    try:
        # Check this first: a file object cannot be made from a folder.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(at_most).decode(errors="replace")
    finally:
        os.close(descriptor)


def number(value: object, default: float) -> float:
    """Return a number from a job's file, or `default` if the value is not a number."""
    with contextlib.suppress(OverflowError):  # the integer is too large
        return float(value) if isinstance(value, int | float) else default
    return default


def write_json(path: Path, value: dict[str, Any], *, durably: bool = False) -> None:
    """Write a small JSON object; see `write_text`."""
    write_text(path, json.dumps(value), durably=durably)


def write_text(path: Path, text: str, *, durably: bool = False) -> None:
    """Write a file atomically: readers see the whole old file or the whole new one.

    `durably`: the file survives a power cut.
    """
    fresh = _beside(path)
    try:
        with _created(fresh) as file:
            file.write(text)
            file.flush()
            if durably:
                os.fsync(file.fileno())
        fresh.replace(path)
    except FileNotFoundError:
        return  # the folder was removed, so no process reads the file
    except OSError:
        # Remove the partial file: repeated attempts would fill the disk.
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def write_first(path: Path, text: str) -> None:
    """Write a new file directly, or replace an existing one; readers ignore a partial file."""
    try:
        with _created(path) as file:
            file.write(text)
    except FileExistsError:
        write_text(path, text)


def _beside(path: Path) -> Path:
    """Return a temporary name that no other process or thread uses at the same time."""
    here = f"{os.getpid()}.{threading.get_native_id()}.{time.monotonic_ns()}"
    return path.with_name(f".{path.name}.{here}.new")


def _created(path: Path) -> TextIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    if (mode := file_mode(path.parent)) != 0o600:
        os.fchmod(descriptor, mode)  # independent of the umask
    return os.fdopen(descriptor, "w")
