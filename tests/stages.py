"""Stages that are dear, made once in a process: each test has a copy of their database.

The fixtures are named in tests/conftest.py; `stages` copies what any function makes. A test with a
live server has it on its copy by a `committed_db` of its own that asks for the stage, as in
tests/browser/test_charts.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.conf import settings as django_settings
from pytest_django import DjangoDbBlocker, Settings

from portal.embedded.postgres import create_database, drop_database
from scheduling.engine.clock import wall_now
from scheduling.models import PoolClock
from tests.functional.pool_stage import Stage, settled_stage
from tests.functional.two_clocks import TwoClocks, two_clocks
from tests.functional.two_tenants import Pair, two_tenants
from tests.plugin import Services, database_like, pointed_to

Made = TypeVar("Made")


class Stages:
    """What functions make, each once in a process; whoever asks has a copy of its database."""

    def __init__(self, template: str, services: Services, blocker: DjangoDbBlocker) -> None:
        self._template, self._services, self._blocker = template, services, blocker
        self._made: dict[Callable[[], Any], tuple[str, Any]] = {}
        self._databases = ExitStack()

    @contextmanager
    def copy(self, make: Callable[[], Made]) -> Iterator[Made]:
        """Use a copy of the database in which `make` was called, and what it returned."""
        if make not in self._made:
            self._made[make] = self._make(make)
        template, made = self._made[make]
        with database_like(template, self._services, self._blocker):
            yield deepcopy(made)

    def drop(self) -> None:
        """Drop the databases that were copied."""
        self._databases.close()

    def _make(self, make: Callable[[], Made]) -> tuple[str, Made]:
        kept = kept_database(f"stage_{len(self._made)}", self._template, self._services)
        name = self._databases.enter_context(kept)
        with self._blocker.unblock(), pointed_to(name):
            return name, make()


@pytest.fixture(scope="session")
def stages(
    template_database: str, services: Services, django_db_blocker: DjangoDbBlocker
) -> Iterator[Stages]:
    """Copies of what functions make; they must make the same in whichever test they are called."""
    made = Stages(template_database, services, django_db_blocker)
    yield made
    made.drop()


@pytest.fixture(scope="session")
def made_pair(
    template_database: str,
    services: Services,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, Path, Pair]]:
    """The name of their database, the folder of their jobs' output, and what they are."""
    logs = tmp_path_factory.mktemp("pair")
    with kept_database("pair", template_database, services) as name:
        with pytest.MonkeyPatch.context() as patch, django_db_blocker.unblock():
            patch.setattr(django_settings, "LOCAL_ROOT", str(logs), raising=False)
            with pointed_to(name):
                made = two_tenants(logs)
        yield name, logs, made


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


@pytest.fixture(scope="session")
def made_clocks(
    template_database: str, services: Services, django_db_blocker: DjangoDbBlocker
) -> Iterator[tuple[str, TwoClocks]]:
    """The name of the database of two pools on different clocks, and what they are."""
    with kept_database("clocks", template_database, services) as name:
        with django_db_blocker.unblock(), pointed_to(name):
            made = two_clocks()
        yield name, made


@pytest.fixture
def clocks(
    made_clocks: tuple[str, TwoClocks], services: Services, django_db_blocker: DjangoDbBlocker
) -> Iterator[TwoClocks]:
    """Two pools on clocks years apart, in a database of the test's own."""
    template, made = made_clocks
    with database_like(template, services, django_db_blocker):
        made.replay_anew()
        yield made


@pytest.fixture(scope="session")
def made_settled(
    template_database: str, services: Services, django_db_blocker: DjangoDbBlocker
) -> Iterator[tuple[str, Stage]]:
    """The name of the database of a pool with settled hours, and what it is."""
    with kept_database("settled", template_database, services) as name:
        with django_db_blocker.unblock(), pointed_to(name):
            made = settled_stage()
        yield name, made


@pytest.fixture
def settled(
    made_settled: tuple[str, Stage], services: Services, django_db_blocker: DjangoDbBlocker
) -> Iterator[Stage]:
    """A pool with settled hours and everybody who may look, in a database of the test's own."""
    template, made = made_settled
    with database_like(template, services, django_db_blocker):
        PoolClock.objects.update(anchor_wall=wall_now())  # as if it had just been made
        yield deepcopy(made)


@contextmanager
def kept_database(kind: str, template: str, services: Services) -> Iterator[str]:
    """The name of a copy of a database; nobody is connected to it yet."""
    name = f"evenshare_{kind}_{os.getpid()}"
    with services.postgres.connect() as connection:
        create_database(connection, name, template=template)
    yield name
    with services.postgres.connect() as connection:
        drop_database(connection, name)
