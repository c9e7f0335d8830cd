"""The checks of `check_slurm` for the Unix users of tenants on the portal's machine."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.slurm.commands import Slurm, SubmissionRefusedError, last_line
from scheduling.engine.executors.slurm.findings import ClusterFinding, Level
from scheduling.engine.executors.slurm.options import SlurmOptions
from scheduling.engine.executors.slurm.users import UnixUser, UserRefusedError, find_user, user_of

_WOULD_TAKE = re.compile(r"^sbatch: Job \d+ to start", re.MULTILINE)


def user_findings(slurm: Slurm, root: Path) -> Iterator[ClusterFinding]:
    """Check each user of `users`.

    Slurm must accept the user's jobs, and the user must share a folder below `root` only with us.
    """
    users = {}
    tenants = {}
    for tenant, name in sorted(slurm.options.users.items()):
        tenants[name] = tenant
        try:
            users[name] = user_of(slurm.options, tenant)
        except UserRefusedError as refusal:
            yield ClusterFinding(Level.ERROR, f"user {name}", str(refusal))
    known = {name: user for name, user in users.items() if user is not None}
    for name, user in known.items():
        errors = [
            text
            for text in (
                _members(user, known),
                _way(user, root),
                _submitter(slurm, tenants[name], name),
            )
            if text
        ]
        for text in errors:
            yield ClusterFinding(Level.ERROR, f"user {name}", text)
        if not errors:
            text = "shares a group with the portal only, can reach the folder, and may submit"
            yield ClusterFinding(Level.OK, f"user {name}", text)


def usable_users(options: SlurmOptions) -> Iterator[UnixUser]:
    """Yield the users in `users` that exist, so that a trial job can run as them."""
    for name in sorted(set(options.users.values())):
        try:
            yield find_user(name)
        except UserRefusedError:
            continue  # `user_findings` reports this error.


def _members(user: UnixUser, known: Mapping[str, UnixUser]) -> str:
    """Return the users of other tenants that could read the user's files through the group."""
    inside = [
        other.name
        for other in known.values()
        if other != user and user.gid in os.getgrouplist(other.name, other.gid)
    ]
    if not inside:
        return ""
    return f"its primary group has {', '.join(inside)} in it, who could read its files: remove them"


def _way(user: UnixUser, root: Path) -> str:
    """Return the first folder above the jobs that the user cannot enter; empty if there is none."""
    groups = set(os.getgrouplist(user.name, user.gid))
    for folder in reversed(root.absolute().parents):
        try:
            status = folder.stat()
        except OSError as error:
            return f"{folder}: {error.strerror}"
        needed = 0o001
        if status.st_uid == user.uid:
            needed = 0o100
        elif status.st_gid in groups:
            needed = 0o010
        if not status.st_mode & needed:
            return f"cannot pass {folder} on the path to its jobs: chmod o+x {folder}"
    return ""


def _submitter(slurm: Slurm, tenant: str, name: str) -> str:
    """Return why no job can be submitted as a user, by a dry run of sbatch; empty if it can."""
    options = slurm.options
    wanted = {
        "--partition": options.partition,
        "--account": options.account_of(tenant),
        "--qos": options.qos,
        "--reservation": options.reservation,
    }
    asked = [f"{option}={value}" for option, value in wanted.items() if value]
    try:
        done = slurm.run_as(name, "sbatch", "--test-only", *asked, "--chdir=/", "--wrap=true")
    except (SubmissionRefusedError, ExecutorError) as error:
        return str(error)
    # sbatch reports accepted jobs of a dry run on standard error, too.
    if done.returncode == 0 and _WOULD_TAKE.search(done.stderr):
        return ""
    why = last_line(done.stderr) or f"sbatch --test-only answered {done.stdout[:100]!r}"
    return f"nothing can be submitted as this user: {why}; see docs/slurm.md, Users of tenants"
