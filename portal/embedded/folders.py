"""The data folder, the runtime folder for sockets, and their permissions."""

import fcntl
import hashlib
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from .errors import StartError
from .watchdog import alive

CHECKOUT = Path(__file__).resolve().parents[2]
NEEDED_MB = 512
DEMO_KEY_MARK = "evenshare-demo-"
# The kernel's limit for a Unix socket path, less the longest name in the folder.
LONGEST_RUN_PATH = 107 - len("/pg/.s.PGSQL.5432")


@dataclass(frozen=True)
class Folders:
    """`data` survives a restart; `run` holds sockets and stamps and may vanish."""

    data: Path
    run: Path

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    @property
    def postgres_socket(self) -> Path:
        return self.run / "pg"

    @property
    def valkey_socket(self) -> Path:
        return self.run / "valkey.sock"

    @property
    def jobs(self) -> Path:
        """Return the folder of local jobs; the supervisor ends those that still run."""
        return self.data / "jobs"

    @property
    def lifeline(self) -> Path:
        """Return the lifeline: local jobs end by themselves when its lock is free."""
        return self.data / "lifeline"

    @property
    def slurm(self) -> Path:
        """Return the folder of the Slurm cluster of `make run-slurm`."""
        return self.data / "slurm"

    @property
    def log_keys(self) -> Path:
        """Return the folder of the private keys that sign the heads of logs."""
        return self.data / "log-keys"

    @property
    def rounds(self) -> Path:
        """Return the folder with the bytes of old rounds."""
        return self.data / "rounds"

    @property
    def secret_key(self) -> Path:
        return self.data / "secret_key"


def locate() -> Folders:
    """Return the folders of this checkout or of EVENSHARE_DATA_DIR, whether or not they exist."""
    data = Path(os.environ.get("EVENSHARE_DATA_DIR") or CHECKOUT / ".data").absolute()
    link = data / "run"
    return Folders(data, link.readlink() if link.is_symlink() else _run_path(data))


def prepare(data: Path) -> Folders:
    """Make the folders, private to this user.

    Raises:
        StartError: they cannot be made, belong to another user, or the disk is too small.
    """
    folders = Folders(data, _run_path(data))
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        folders.logs.mkdir(mode=0o700, exist_ok=True)
        (data / ".writable").touch()
        (data / ".writable").unlink()
    except OSError as error:
        raise StartError(f"the data folder {data} cannot be used: {error.strerror}") from error
    free_mb = shutil.disk_usage(data).free // 2**20
    if free_mb < NEEDED_MB:
        raise StartError(f"the disk of {data} has {free_mb} MB free, {NEEDED_MB} MB are needed")
    _make_private(folders.run)
    _point_to(data / "run", folders.run)
    _ensure_secret_key(folders.secret_key)
    return folders


def lock(folders: Folders, note: str, *, patience_s: float = 30.0) -> int:
    """Lock the data folder for this process; return the descriptor, which holds the lock.

    The watchdog inherits it. After a kill -9 the next start therefore waits here until the last
    child of the former run has ended.

    Raises:
        StartError: another run holds it.
    """
    descriptor = os.open(folders.data / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + patience_s
    while not try_lock(descriptor):
        owner, _, where = os.pread(descriptor, 200, 0).decode(errors="replace").partition(" ")
        if owner.isdigit() and alive(int(owner)):
            raise StartError(f"it is already running (process {owner}, {where.strip()})")
        if time.monotonic() > deadline:
            raise StartError(f"the data folder {folders.data} is still in use by an earlier run")
        time.sleep(0.1)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} {note}\n".encode(), 0)
    return descriptor


def hold_lifeline(folders: Folders) -> int:
    """Lock the lifeline for only this process; no child inherits it, not even the watchdog."""
    descriptor = os.open(folders.lifeline, os.O_RDWR | os.O_CREAT, 0o600)
    # Processes that test the lock hold it for a moment: wait for them.
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _run_path(data: Path) -> Path:
    digest = hashlib.sha256(str(data.resolve()).encode()).hexdigest()[:10]
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if base and Path(base).is_dir() and Path(base).stat().st_uid == os.geteuid():
        path = Path(base) / f"evenshare-{digest}"
        if len(str(path)) <= LONGEST_RUN_PATH:
            return path
    return Path("/tmp") / f"evenshare-{os.geteuid()}-{digest}"  # noqa: S108 - made private


def _make_private(path: Path) -> None:
    """Make a private folder; refuse one of this name that another user has made in /tmp."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
        if path.is_symlink() or status.st_uid != os.geteuid():
            raise StartError(f"the runtime folder {path} belongs to another user: remove it")
        path.chmod(0o700)
    except OSError as error:
        raise StartError(f"the runtime folder {path} cannot be used: {error.strerror}") from error


def _point_to(link: Path, target: Path) -> None:
    fresh = link.with_name("run.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)


def make_demo_key() -> str:
    """Return a key that is marked as a demo's: production refuses it."""
    return DEMO_KEY_MARK + secrets.token_urlsafe(48)


def _ensure_secret_key(path: Path) -> None:
    if path.exists() and path.stat().st_size > 0:
        return
    fresh = path.with_name("secret_key.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(make_demo_key())
    fresh.replace(path)


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this process and its children; return False if it is locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
