"""The small files by which an executor and a shim tell each other what is."""

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

# A job's arguments and environment are most of it.
SPEC_BYTES = 2**25

_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
_TOKEN = re.compile(r"[A-Za-z0-9]+-[0-9]+-[0-9]+")
# All rights of the owner and the group, and what is made within is of the same group.
_SHARED = 0o2770


def lease_folder(root: Path, token: str) -> Path:
    """Where the lease of a token (installation-job-leasenumber) has its files."""
    _, job, number = token.rsplit("-", 2)
    return root / str(int(job)) / "leases" / str(int(number))


def active(root: Path) -> list[Path]:
    """The tokens, as files, of leases whose end is not recorded yet.

    Raises:
        OSError: the folder is there and cannot be read, so nobody can tell.
    """
    try:
        entries = sorted((root / "active").iterdir())
    except FileNotFoundError:
        return []
    return [entry for entry in entries if _TOKEN.fullmatch(entry.name)]


def make_private(*folders: Path) -> bool:
    """Make folders, each in the one before, that nobody else may look into; say if the last is
    new."""
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
    """Whether a job's user, who is not the portal's, works in this folder by its group."""
    try:
        return folder.stat().st_mode & _SHARED == _SHARED
    except OSError:
        return False


def file_mode(folder: Path) -> int:
    """The mode of files in a folder: the portal reads what its jobs' users write, and they what
    it writes, in shared folders alone."""
    return 0o640 if is_shared(folder) else 0o600


def file_mask(folder: Path) -> int:
    """The umask of the programs of a lease, by its folder."""
    return 0o007 if is_shared(folder) else 0o077


def is_ours(path: Path) -> bool:
    """Whether it is there, and in a shared folder not by another user's hand."""
    with contextlib.suppress(OSError):
        if path.exists():
            return not is_shared(path.parent) or path.lstat().st_uid == os.geteuid()
    return False


def is_others(path: Path) -> bool:
    """Whether it is there, in a shared folder, by another user's hand."""
    with contextlib.suppress(OSError):
        return is_shared(path.parent) and path.lstat().st_uid != os.geteuid()
    return False


def move_away(*folders: Path) -> None:
    """Rename the first of these, outermost first, that is no folder; the last, if all are."""
    wrong = [folder for folder in folders if folder.is_symlink() or not folder.is_dir()]
    place = (wrong or folders)[0 if wrong else -1]
    with contextlib.suppress(FileNotFoundError):
        place.rename(place.with_name(f".{place.name}.{time.monotonic_ns()}"))


def reopen(lease: Path) -> None:
    """Give a lease's folder, and those of its job, back to us, who own them.

    Files that a job's own user has closed to us are put aside; without its claim the lease is over.
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
    """Give a file back to us, or put it aside where it is not ours; whether it was put aside."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
    except PermissionError:
        if path.lstat().st_uid != os.geteuid():
            path.rename(path.with_name(f".{path.name}.{time.monotonic_ns()}"))
            return True
        path.chmod(0o600)
    return False


def remove(path: Path, *, only_folders: bool = False) -> None:
    """Remove a file, or whatever somebody made of it; no link is followed."""
    if path.is_dir() and not path.is_symlink():
        # It may be as deep and as full as a job likes: it is put aside as it is.
        with contextlib.suppress(FileNotFoundError):
            path.rename(path.with_name(f".{path.name}.{time.monotonic_ns()}"))
    elif not only_folders:
        path.unlink(missing_ok=True)


def claim(folder: Path, *, never: bool = False) -> dict[str, Any] | None:
    """Take a lease's folder for ever; None where it was taken: a link makes no second one.

    `never`: for nobody, so that no process ever starts for this lease.
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
    """Make `number` the job's present lease, so that late writers see they are; False if late."""
    present = job / "lease"
    with contextlib.suppress(ValueError):
        if int(read_text(present)) > number:
            return False
    remove(present, only_folders=True)
    write_text(present, f"{number}\n")
    return True


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock of a file exclusively."""
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
    """A JSON object from a regular file; None where there is none that can be read."""
    try:
        value = json.loads(read_text(path, at_most=at_most))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_text(path: Path, *, at_most: int = 2**16) -> str:
    """A regular file's text, empty where there is none: jobs may write here what they like.

    Raises:
        OSError: nobody can tell now whether there is one (too many open files, say). What runs
            must not be taken for gone then.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _NO_FILE:
            return ""
        raise
    try:
        # Before it is made a file: of a folder none can be made.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(at_most).decode(errors="replace")
    finally:
        os.close(descriptor)


def number(value: object, default: float) -> float:
    """A number from such a file; `default` where it holds none."""
    with contextlib.suppress(OverflowError):  # whole numbers may have thousands of digits
        return float(value) if isinstance(value, int | float) else default
    return default


def write_json(path: Path, value: dict[str, Any], *, durably: bool = False) -> None:
    """Write a small JSON object; see `write_text`."""
    write_text(path, json.dumps(value), durably=durably)


def write_text(path: Path, text: str, *, durably: bool = False) -> None:
    """Readers see the old file or the whole new one; `durably`: after a power cut too."""
    fresh = _beside(path)
    try:
        with _created(fresh) as file:
            file.write(text)
            file.flush()
            if durably:
                os.fsync(file.fileno())
        fresh.replace(path)
    except FileNotFoundError:
        return  # the folder is gone, and whoever read it
    except OSError:
        # What is written again and again would fill a full disk with what was begun.
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def write_first(path: Path, text: str) -> None:
    """Write a new file without a rename, where whoever reads half of it takes it for none; one
    that is there already is replaced whole."""
    try:
        with _created(path) as file:
            file.write(text)
    except FileExistsError:
        write_text(path, text)


def _beside(path: Path) -> Path:
    """A name that no other process or thread takes at the same time."""
    here = f"{os.getpid()}.{threading.get_native_id()}.{time.monotonic_ns()}"
    return path.with_name(f".{path.name}.{here}.new")


def _created(path: Path) -> TextIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    if (mode := file_mode(path.parent)) != 0o600:
        os.fchmod(descriptor, mode)  # whatever the umask is
    return os.fdopen(descriptor, "w")
