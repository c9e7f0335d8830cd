"""Unix users that every Debian has, for tests of jobs that run as other users than the portal."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# These users run no other jobs, and each has its own group.
NAMES = ("games", "man", "lp")
PORTAL = "mail"


def require_users() -> None:
    """Skip the test unless root runs it and these users exist."""
    if os.geteuid() != 0:
        pytest.skip("only root can have jobs of several Unix users")
    known = {entry.pw_name for entry in pwd.getpwall()}
    if missing := {*NAMES, PORTAL} - known:
        pytest.skip(f"no Unix user {', '.join(sorted(missing))}")


def common_python() -> str:
    """Return a Python that every user may run, also on nodes."""
    found = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if found is None:
        reason = "no Python that every user may run (apt-get install python3-minimal)"
        if os.environ.get("REQUIRE_ALL") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found


@contextmanager
def open_folder() -> Iterator[Path]:
    """Yield a new folder that every user may enter, unlike pytest's folders."""
    with tempfile.TemporaryDirectory(prefix="evenshare-users-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder


def as_user(name: str, act: Callable[[], None], *, groups: tuple[str, ...] = ()) -> None:
    """Call `act` in a child process as this user, who also gets the primary groups of `groups`.

    Raises:
        AssertionError: `act` raised; the message has the traceback.
    """
    entry = pwd.getpwnam(name)
    gids = [pwd.getpwnam(other).pw_gid for other in groups]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 0
        try:
            os.setgroups(gids)
            os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
            os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
            act()
        except BaseException:  # noqa: BLE001 - it is told to the parent
            os.write(write, traceback.format_exc()[-4000:].encode())
            status = 1
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    assert status == 0, said
