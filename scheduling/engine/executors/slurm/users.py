"""The Unix users of tenants' jobs, and the folders that each user shares with the portal only.

The portal owns the folders of a lease and of its job; the job's user writes to them through the
user's primary group. All these folders are sticky, so a job cannot replace the portal's files and
folders, for instance by links that would redirect the portal's writes. Only the portal writes in
`leases` itself.
"""

import contextlib
import errno
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from scheduling.engine.executors.shim.files import is_shared, lease_folder, make_private, read_text
from scheduling.engine.executors.slurm.options import SlurmOptions
from scheduling.selectors import stored_texts as texts

# Users can enter the root but not list it: they can open only paths that they know.
ROOT_MODE = 0o711
WORK_MODE, LEASES_MODE = 0o3770, 0o2750
# The portal writes this file in the job's folder. It names the user as which the job's leases are
# submitted.
RECORD = "unix-user"
# A former user's files whose content is not needed, but whose names the next lease must be able to
# write.
REPLACED = ("lease", "progress.json", "iterations.json", "evaluations.json", "metrics.json")
_OWN = ("leases", "uid", RECORD)


class UserRefusedError(Exception):
    """A tenant's jobs cannot run as a Unix user; the message says why, and what to do."""


class UnixUser(NamedTuple):
    """A user of this machine and of its nodes; `gid` is its primary group."""

    name: str
    uid: int
    gid: int


def user_of(options: SlurmOptions, tenant: str) -> UnixUser | None:
    """Return the user of a tenant's jobs (by slug), or None for the portal's user.

    Raises:
        UserRefusedError: the tenant has no user, or its jobs cannot run as its user here.
    """
    if not options.users:
        return None
    name = options.user_of(tenant)
    if not name:
        raise UserRefusedError(texts.NO_USER_OF_TENANT.format(tenant=tenant))
    user = find_user(name)
    for other in sorted(set(options.users.values()) - {name}):
        uid, gid = _numbers_of(other)
        if uid == user.uid:
            raise UserRefusedError(texts.ONE_USER.format(user=name, other=other, number=uid))
        if gid == user.gid:
            raise UserRefusedError(texts.ONE_GROUP.format(user=name, other=other, number=gid))
    return user


def find_user(name: str) -> UnixUser:
    """Return a Unix user whose jobs the portal can manage.

    Raises:
        UserRefusedError: the user is missing, is root or the portal's, or its group is unusable.
    """
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise UserRefusedError(texts.NO_USER.format(user=name)) from None
    if entry.pw_uid == 0:
        raise UserRefusedError(texts.USER_IS_ROOT.format(user=name))
    if entry.pw_uid == os.geteuid():
        raise UserRefusedError(texts.USER_OF_PORTAL.format(user=name))
    if entry.pw_gid in (0, os.getegid()):
        raise UserRefusedError(texts.GROUP_OF_PORTAL.format(user=name))
    if os.geteuid() != 0 and entry.pw_gid not in os.getgroups():
        raise UserRefusedError(texts.NOT_IN_GROUP.format(user=name, number=entry.pw_gid))
    return UnixUser(name, entry.pw_uid, entry.pw_gid)


def _numbers_of(name: str) -> tuple[int | None, int | None]:
    with contextlib.suppress(KeyError):
        entry = pwd.getpwnam(name)
        return entry.pw_uid, entry.pw_gid
    return None, None


def share_folders(root: Path, token: str, user: UnixUser) -> None:
    """Share the folders of a lease, which exist and belong to the portal, with a user.

    Raises:
        UserRefusedError: files of another user are in the way.
        OSError: the folders cannot be shared; EEXIST: one belongs to another user.
    """
    lease = lease_folder(root, token)
    job = lease.parents[1]
    _open_up(root)
    # If it is not shared, the job's last lease ran as the portal's user.
    if recorded_uid(job) != user.uid or not is_shared(job):
        _take_over(job, user)
        _record(job, user)
    # Share the job's folder last: until then no other user can enter.
    _give(lease, user.gid, WORK_MODE)
    _give(lease.parent, user.gid, LEASES_MODE)
    _give(job, user.gid, WORK_MODE)


def close_folders(root: Path, token: str) -> None:
    """Close the folders of a lease to all users except the portal's."""
    lease = lease_folder(root, token)
    if lease.parents[1].stat().st_mode & 0o070:
        for folder in (lease.parents[1], lease.parent, lease):
            folder.chmod(0o700)


def share_folder(root: Path, folder: Path, user: UnixUser) -> None:
    """Share a folder below the root with a user."""
    _open_up(root)
    _give(folder, user.gid, WORK_MODE)


def recorded_uid(job: Path) -> int | None:
    """Return the id of the user of a job's last lease, or None for the portal's user.

    A record that the job itself may have written is ignored.
    """
    path = job / RECORD
    try:
        if path.lstat().st_uid != os.geteuid():
            return None
        number = read_text(path).partition(" ")[0]
    except OSError:
        return None
    return int(number) if number.isdecimal() else None


def submitted_as(root: Path) -> Callable[[str, int], bool]:
    """Return a function that checks whether a user id may own a token's job.

    Any user can copy a token. So the owner must be the user as which the lease was submitted, or
    the portal's user.
    """

    def is_ours(token: str, uid: int) -> bool:
        return uid == os.geteuid() or uid == recorded_uid(lease_folder(root, token).parents[1])

    return is_ours


def _record(job: Path, user: UnixUser) -> None:
    beside = job / f".{RECORD}.{os.getpid()}"
    beside.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(beside, flags, 0o600), "w") as file:
        file.write(f"{user.uid} {user.name}\n")
    beside.replace(job / RECORD)


def _take_over(job: Path, user: UnixUser) -> None:
    """Remove old files that a job's new user could not replace, because the folder is sticky.

    Raises:
        UserRefusedError: some files must be kept, and only root can change their owner.
    """
    foreign = [
        entry
        for entry in os.scandir(job)
        if entry.name not in _OWN and entry.stat(follow_symlinks=False).st_uid != user.uid
    ]
    others = sorted(entry.name for entry in foreign if entry.name not in REPLACED)
    if others:
        raise UserRefusedError(
            texts.FILES_OF_OTHERS.format(folder=job, files=", ".join(others[:3]), user=user.name)
        )
    for entry in foreign:
        with contextlib.suppress(IsADirectoryError):
            os.unlink(entry.path)  # noqa: PTH108 - entries have text for paths


def _open_up(root: Path) -> None:
    """Allow users to enter the root, but not to list it, and to read the shims."""
    make_private(root)
    for folder, mode in ((root, ROOT_MODE), (root / "shims", 0o755)):
        with contextlib.suppress(FileNotFoundError):
            present = stat.S_IMODE(folder.stat().st_mode)
            if present & mode != mode:
                folder.chmod(present | mode)


def _give(folder: Path, gid: int, mode: int) -> None:
    """Set group and mode of a folder of ours; do not follow a link in its place."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise FileExistsError(errno.EEXIST, "a folder of another user", str(folder))
        if status.st_gid != gid:
            os.fchown(descriptor, -1, gid)
        if stat.S_IMODE(status.st_mode) != mode or status.st_gid != gid:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
