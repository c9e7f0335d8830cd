"""The database and the broker of a test run; pyproject.toml names this plugin.

pytest-django loads the settings before any conftest, so the addresses are set here, at
import. The servers behind them start with the first test that wants the database, and
a watchdog ends them with the run, however it ends.

Three ways to a database, all as the app role, which owns nothing:
- pytest-django's `db` (or its mark): one shared database, rolled back after each test.
- `committed_db`: a database of the test's own, for commits, threads and processes.
- `site`: a live server on such a database, for browsers; its value is the URL.
TRUNCATE is refused on append-only tables, so pytest-django's `transactional_db`, which
empties tables after a test, cannot work here and says so.
"""

import gc
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
# Where a file system in memory has so much room, the servers' files are there.
MEMORY, ROOM_BYTES = Path("/dev/shm"), 2 * 2**30  # noqa: S108 - a new folder in it, by mkdtemp


@dataclass
class Services:
    """A PostgreSQL and a Valkey in a temporary folder."""

    folder: Path
    postgres: Postgres
    valkey: Valkey
    watchdog: Watchdog | None = None

    def start(self, *, migrated: bool = True) -> None:
        """Start both; `migrated`: on a copy of the kept cluster, else on an empty one."""
        self.watchdog = Watchdog()
        # The kept folder is ours; PostgreSQL as another user could not read it.
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
        """End the servers; what they wrote stays."""
        if self.watchdog is not None:
            # The end of its pipe is its order to end the servers.
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
    """Remove the folders of runs that were killed: their names say which processes they were of."""
    for folder in base.glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _base() -> Path | None:
    """A database is 700 files: a disk takes a core's half second to make them, memory no tenth.

    None, for the usual place, where TMPDIR names one, and in benchmarks: they import this too,
    and what they measure is a disk's.
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
    """What a template shows for a name that is not there: here it fails, in a browser nothing."""

    __slots__ = ()

    def __mod__(self, name: object) -> str:
        raise AssertionError(f"a template reads {name}, which is not there")


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Settings that differ from a site's."""
    django_settings.TEMPLATES[0]["OPTIONS"]["string_if_invalid"] = Unresolved("%s")
    # A client makes its middleware with its first request, and WhiteNoise looked up all files:
    # two thirds of the time that a request of a test took. Now it looks up what is asked.
    django_settings.WHITENOISE_AUTOREFRESH = True
    _hash_cheaply()


def _hash_cheaply() -> None:
    """A hash is slow on purpose, a quarter of a second; in this process it says that it is not."""
    from tenants.hashing import Scrypt

    Scrypt.work_factor = 2**4


def pytest_collection_finish() -> None:
    """What is imported by now stays: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """After the fixtures, and in a process of pytest-xdist before it reports that it is done.

    From then on it has a few seconds until it is interrupted.
    """
    SERVICES.stop()


def pytest_unconfigure() -> None:
    """A run that ended before it had a session has a folder all the same."""
    SERVICES.stop()


@pytest.fixture(scope="session")
def services() -> Services:
    """The running servers, for tests that stop or flush one of their own."""
    if SERVICES.watchdog is None:
        SERVICES.start()
    return SERVICES


@pytest.fixture(scope="session")
def template_database(services: Services, django_db_blocker: DjangoDbBlocker) -> str:
    """Migrated once (tests/kept.py)."""
    with django_db_blocker.unblock():
        make_template(services)
    return TEMPLATE


def make_template(services: Services) -> None:
    """Make the database that others are copied from, as the owner, as `manage.py up` does it.

    A cluster that was kept has it.
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
    """The name of a fresh database that every connection of this process now uses.

    New threads and child processes get it too: settings and environment name it.
    """
    with database_like(template_database, services, django_db_blocker) as name:
        yield name


@contextmanager
def database_like(
    template: str, services: Services, django_db_blocker: DjangoDbBlocker
) -> Iterator[str]:
    """Use a copy of a database; nobody may be connected to that one meanwhile."""
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
    """The URL of a live server, static files included, on the database of the test."""
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
    """Have Django use a database, and the one that tests share afterwards."""
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
