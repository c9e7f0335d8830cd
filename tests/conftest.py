"""Fixtures for all tests; the database and the live site are in tests/plugin.py."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from portal.embedded.postgres import create_database
from tests.plugin import SHARED, Services
from tests.slurm import kept_slurm, slurm_cluster
from tests.slurm_restd import kept_restd, slurm_restd
from tests.stages import clocks, make_pair, matrix, pair, settled, stages
from tests.tools import PATIENCE_S, require_tool

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = [
    "clocks", "kept_restd", "kept_slurm", "make_pair", "matrix", "pair", "settled",
    "slurm_cluster", "slurm_restd", "stages",
]  # fmt: skip


@pytest.fixture(scope="session")
def django_db_setup(template_database: str, services: Services) -> None:
    """Replace pytest-django's own fixture, which would create the database as the app role.

    The fixture is here because a conftest overrides every plugin, whatever their order.
    """
    with services.postgres.connect() as connection:
        create_database(connection, SHARED, template=template_database)


@pytest.fixture
def owner(committed_db: str, services: Services) -> Iterator[psycopg.Connection[Any]]:
    """Yield a session without triggers, as an owner of the database can open."""
    with services.postgres.connect(committed_db) as session:
        session.execute("SET session_replication_role = replica")
        yield session


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the time limits of dry runs and comparisons, which a busy machine would reach."""
    for limit in ("dry_run.BUDGET_S", "dry_run.ANSWER_S", "policy_comparison.BUDGET_S"):
        monkeypatch.setattr(f"scheduling.services.{limit}", PATIENCE_S)


@pytest.fixture
def transactional_db() -> None:
    pytest.fail("append-only tables refuse TRUNCATE: use the fixture committed_db", pytrace=False)


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Yield the path of Debian's Chromium, so that Playwright need not download its own."""
    program = require_tool("chromium")
    # Playwright runs an event loop in this thread, and Django refuses the ORM in such a thread.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    from playwright.sync_api import sync_playwright

    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=sandbox)
        running.on("context", lambda opened: opened.set_default_timeout(PATIENCE_S * 1000))
        yield running
        running.close()
