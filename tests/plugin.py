"""The database and the broker of a test run; tests/spread.py loads this plugin.

pytest-django loads the settings before any conftest, so this module sets the addresses at import.
The servers start with the first test that needs the database. A watchdog stops them when the run
ends, however it ends.

Tests use a database in one of three ways, always as the app role, which owns nothing:
- pytest-django's `db` (or its mark): one shared database, rolled back after each test.
- `committed_db`: a database of the test's own, for commits, threads and processes.
- `site`: a live server on such a database, for browsers; its value is the URL.
TRUNCATE is refused on append-only tables. So pytest-django's `transactional_db`, which empties
tables after a test, cannot work here and fails with this explanation.
"""

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from pytest_django import DjangoDbBlocker

from portal.embedded import folders
from portal.embedded.postgres import (
    APP_ROLE,
    OWNER_ROLE,
    Postgres,
    create_database,
)
from portal.embedded.valkey import Valkey
from portal.embedded.watchdog import Watchdog, alive
from tests.kept import copy_cluster
from tests.tools import drop_database, eventually

PREFIX = "evenshare-test-"
TEMPLATE, SHARED = "evenshare_template", "evenshare_shared"
# The servers' files are in a memory file system if that has this much free space.
MEMORY, ROOM_BYTES = Path("/dev/shm"), 2 * 2**30  # noqa: S108 - a new folder in it, by mkdtemp


@dataclass
class Services:
    """A PostgreSQL and a Valkey server in a temporary folder."""

    folder: Path
    postgres: Postgres
    valkey: Valkey
    watchdog: Watchdog | None = None

    def start(self, *, migrated: bool = True) -> None:
        """Start both servers: if `migrated` on a copy of the cached cluster, else on a new one."""
        self.watchdog = Watchdog()
        # The cached folder belongs to our user; PostgreSQL under another user could not read it.
        if migrated and self.postgres.identity.user is None:
            copy_cluster(self.postgres.cluster)
        self.postgres.prepare()
        identity = self.postgres.identity
        self._launch("postgres", self.postgres.command, signal.SIGQUIT, **identity.popen)
        self._launch("valkey", self.valkey.command, signal.SIGTERM)
        eventually(self.postgres.ready, every_s=0.02)
        eventually(self.valkey.ready, every_s=0.02)
        self.postgres.ensure_roles_and_database()

    def end(self) -> None:
        """Stop the servers, but keep their files."""
        if self.watchdog is not None:
            # When the pipe is closed, the watchdog stops the servers.
            with self.watchdog:
                pass
        self.watchdog = None

    def stop(self) -> None:
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _launch(self, name: str, command: list[str], stop: signal.Signals, **popen: object) -> None:
        assert self.watchdog is not None
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(  # type: ignore[call-overload]  # user and group
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.postgres.identity.home,
                **popen,
            )
        self.watchdog.watch(process.pid, 1, stop)


def _announce() -> Services:
    """Choose the folder and put the addresses into the environment."""
    base = _base() or Path(tempfile.gettempdir())
    sweep(base)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=base))
    (folder / "run").mkdir(mode=0o700)
    place = folders.Folders(folder, folder / "run")
    services = Services(folder, Postgres(place, durable=False), Valkey(place))
    os.environ["EVENSHARE_DATA_DIR"] = str(folder)
    os.environ["REDIS_URL"] = services.valkey.url
    _name_database(services, SHARED)
    return services


def sweep(base: Path) -> None:
    """Remove the folders of killed runs, which contain the run's process id in their names."""
    for folder in base.glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _base() -> Path | None:
    """Return the folder of the memory file system, or None for the default place.

    A database has 700 files. To create them costs half a core-second on a disk, and less than a
    tenth in memory. None is returned if TMPDIR is set, and in benchmarks, which import this module
    and measure disks.
    """
    if "PYTEST_VERSION" not in os.environ or "TMPDIR" in os.environ or not MEMORY.is_dir():
        return None
    has_room = shutil.disk_usage(MEMORY).free > ROOM_BYTES
    return MEMORY if has_room and os.access(MEMORY, os.W_OK) else None


def _name_database(services: Services, name: str) -> None:
    os.environ["DATABASE_URL"] = services.postgres.url(APP_ROLE, name)
    os.environ["OWNER_DATABASE_URL"] = services.postgres.url(OWNER_ROLE, name)


SERVICES = _announce()


class Unresolved(str):
    """The value of an undefined name in a template: it fails here, and is empty in production."""

    __slots__ = ()

    def __mod__(self, name: object) -> str:
        raise AssertionError(f"a template reads {name}, which is not there")


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Change the settings for tests."""
    django_settings.TEMPLATES[0]["OPTIONS"]["string_if_invalid"] = Unresolved("%s")
    # A client creates its middleware with its first request. WhiteNoise would then look up all
    # files, which takes two thirds of a test request's time, so it looks up only requested files.
    django_settings.WHITENOISE_AUTOREFRESH = True
    _hash_cheaply()


def _hash_cheaply() -> None:
    """Make password hashes fast in this process; normally one takes a quarter of a second."""
    from tenants.hashing import Scrypt

    Scrypt.work_factor = 2**4


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Stop the servers after the fixtures, before a pytest-xdist process reports its end.

    Afterwards it has only a few seconds until it is interrupted.
    """
    SERVICES.stop()


def pytest_unconfigure() -> None:
    """Stop the servers and remove their folder, also if the run ended before its session."""
    SERVICES.stop()


@pytest.fixture(scope="session")
def services() -> Services:
    """Return the running servers, for tests that stop or flush them."""
    if SERVICES.watchdog is None:
        SERVICES.start()
    return SERVICES


@pytest.fixture(scope="session")
def template_database(services: Services, django_db_blocker: DjangoDbBlocker) -> str:
    """Return the name of the template database, which is migrated once (tests/kept.py)."""
    with django_db_blocker.unblock():
        make_template(services)
    return TEMPLATE


def make_template(services: Services) -> None:
    """Create the database from which others are copied, as the owner, like `manage.py up`.

    A cached cluster already has it.
    """
    from portal.site import prepare

    with services.postgres.connect() as connection:
        known = connection.execute("SELECT datname FROM pg_database").fetchall()
        if (TEMPLATE,) in known:
            return
        create_database(connection, TEMPLATE)
    _point_django_to(TEMPLATE)
    prepare.migrate()
    # A database with a connection cannot be a template.
    _point_django_to(SHARED)


_numbers = itertools.count(1)


@pytest.fixture
def committed_db(
    template_database: str, services: Services, django_db_blocker: DjangoDbBlocker
) -> Iterator[str]:
    """Yield the name of a new database, which all connections of this process now use.

    New threads and child processes use it too, by the settings and the environment.
    """
    with database_like(template_database, services, django_db_blocker) as name:
        yield name


@contextmanager
def database_like(
    template: str, services: Services, django_db_blocker: DjangoDbBlocker
) -> Iterator[str]:
    """Use a copy of a database, which must have no connections meanwhile."""
    name = f"evenshare_test_{next(_numbers)}"
    with services.postgres.connect() as connection:
        create_database(connection, name, template=template)
    _name_database(services, name)
    try:
        with django_db_blocker.unblock(), pointed_to(name):
            yield name
    finally:
        _name_database(services, SHARED)
        with services.postgres.connect() as connection:
            drop_database(connection, name)


@pytest.fixture
def site(committed_db: str) -> Iterator[str]:
    """Yield the URL of a live server with static files, on the database of the test."""
    assert committed_db
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.test.testcases import LiveServerThread

    thread = LiveServerThread("127.0.0.1", StaticFilesHandler)
    thread.daemon = True
    thread.start()
    thread.is_ready.wait()
    if thread.error is not None:
        raise thread.error
    yield f"http://127.0.0.1:{thread.port}"
    thread.terminate()


@contextmanager
def pointed_to(name: str) -> Iterator[None]:
    """Make Django use a database inside the block, and the tests' shared database afterwards."""
    _point_django_to(name)
    try:
        yield
    finally:
        _point_django_to(SHARED)


def _point_django_to(name: str) -> None:
    from django.db import connections

    connections.close_all()
    for alias in ("default", "owner"):
        # The wrappers of all threads share this dictionary.
        connections.settings[alias]["NAME"] = name
