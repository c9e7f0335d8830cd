"""Replaces tests/plugin.py for a mutant's tests with a database.

They use the servers of the run that tries the mutant, with their own databases. Starting servers
and migrating would take far longer than the tests.
"""

import itertools
import os
import shutil
from pathlib import Path

import pytest
from psycopg import sql

from portal.embedded import folders
from portal.embedded.postgres import Postgres
from portal.embedded.valkey import Valkey
from tests import plugin
from tests.mutants.laboratory import FOLDER
from tests.plugin import committed_db

__all__ = ["committed_db", "pytest_unconfigure", "services", "template_database"]


def _lend() -> plugin.Services:
    """Set the environment to the servers in the named folder."""
    folder = Path(os.environ[FOLDER])
    place = folders.Folders(folder, folder / "run")
    lent = plugin.Services(folder, Postgres(place, durable=False), Valkey(place))
    plugin.SHARED = f"evenshare_mutant_{os.getpid()}"
    plugin._numbers = itertools.count(os.getpid() * 1000)
    plugin._name_database(lent, plugin.SHARED)
    os.environ["REDIS_URL"] = lent.valkey.url
    return lent


_lent = _lend()


@pytest.fixture(scope="session")
def services() -> plugin.Services:
    return _lent


@pytest.fixture(scope="session")
def template_database() -> str:
    return plugin.TEMPLATE


def pytest_unconfigure() -> None:
    """Remove the shared database, and the folder that plugin.py made."""
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
    with _lent.postgres.connect() as connection:
        connection.execute(drop.format(sql.Identifier(plugin.SHARED)))
    shutil.rmtree(plugin.SERVICES.folder, ignore_errors=True)
