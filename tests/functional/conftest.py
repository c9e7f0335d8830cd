"""Two tenants, made once in a process: each test has a copy of their database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from pytest_django import DjangoDbBlocker, Settings

from portal.embedded.postgres import create_database, drop_database
from tests.functional.two_tenants import Pair, two_tenants
from tests.plugin import Services, database_like, pointed_to


@pytest.fixture(scope="session")
def made_pair(
    template_database: str,
    services: Services,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, Path, Pair]]:
    """The name of their database, the folder of their jobs' output, and what they are."""
    logs = tmp_path_factory.mktemp("pair")
    name = f"evenshare_pair_{os.getpid()}"
    with services.postgres.connect() as connection:
        create_database(connection, name, template=template_database)
    with pytest.MonkeyPatch.context() as patch, django_db_blocker.unblock():
        patch.setattr(django_settings, "LOCAL_ROOT", str(logs), raising=False)
        with pointed_to(name):
            made = two_tenants(logs)
    yield name, logs, made
    with services.postgres.connect() as connection:
        drop_database(connection, name)


@pytest.fixture
def pair(
    made_pair: tuple[str, Path, Pair],
    services: Services,
    django_db_blocker: DjangoDbBlocker,
    settings: Settings,
) -> Iterator[Pair]:
    """Two tenants with rows of every kind, in a database of the test's own."""
    template, logs, made = made_pair
    settings.LOCAL_ROOT = str(logs)
    with database_like(template, services, django_db_blocker):
        yield made
