"""Expensive stages, which each process makes once; each test gets a copy of their database.

A module declares `there = staged(make)` and has a fixture `there`. A test with a live server
instead uses `copy = copied(make)` and `committed_db = name_of_copy`. tests/conftest.py names the
fixtures that several modules share. Their makers are imported at first use. The imports take two
seconds, every run imports this file, and few tests need the makers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pytest
from django.conf import settings as django_settings
from pytest_django import DjangoDbBlocker, Settings

from portal.embedded.postgres import create_database
from scheduling.engine.clock import wall_now
from scheduling.models import PoolClock
from tests.plugin import Services, database_like, pointed_to
from tests.tools import drop_database

if TYPE_CHECKING:
    from tests.functional.two_tenants import Pair

Made = TypeVar("Made")


@dataclass
class Copy(Generic[Made]):
    """A test's copy of a stage: the name of its database, and its contents."""

    name: str
    made: Made


class Stages:
    """Makes each stage at its first use, and copies the stage for each test."""

    def __init__(self, template: str, services: Services, blocker: DjangoDbBlocker) -> None:
        self._template, self._services, self._blocker = template, services, blocker
        self._made: dict[Callable[[], Any], tuple[str, Any]] = {}
        self._kept = ExitStack()

    @contextmanager
    def copy_of(self, make: Callable[[], Made]) -> Iterator[Copy[Made]]:
        """Yield a copy of the stage of `make`; the clocks of its pools continue from now."""
        if make not in self._made:
            self._made[make] = self._make(make)
        template, made = self._made[make]
        with database_like(template, self._services, self._blocker) as name:
            PoolClock.objects.update(anchor_wall=wall_now())
            yield Copy(name, deepcopy(made))

    @contextmanager
    def copy(self, make: Callable[[], Made]) -> Iterator[Made]:
        """Yield a copy for a test that does not need the name of its database."""
        with self.copy_of(make) as copy:
            yield copy.made

    def _make(self, make: Callable[[], Any]) -> tuple[str, Any]:
        kind = f"stage_{len(self._made)}"
        name = self._kept.enter_context(kept_database(kind, self._template, self._services))
        with self._blocker.unblock(), pointed_to(name):
            return name, make()

    def end(self) -> None:
        self._kept.close()


@pytest.fixture(scope="session")
def stages(
    template_database: str, services: Services, django_db_blocker: DjangoDbBlocker
) -> Iterator[Stages]:
    """Yield the object that makes and copies stages."""
    made = Stages(template_database, services, django_db_blocker)
    yield made
    made.end()


@pytest.fixture(scope="session")
def make_pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], tuple[Path, Pair]]:
    """Return a maker of two tenants, and of the folder of their jobs' output."""
    logs = tmp_path_factory.mktemp("pair")

    def make() -> tuple[Path, Pair]:
        from tests.functional.two_tenants import two_tenants

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(django_settings, "LOCAL_ROOT", str(logs), raising=False)
            return logs, two_tenants(logs)

    return make


@pytest.fixture
def pair(
    stages: Stages, make_pair: Callable[[], tuple[Path, Pair]], settings: Settings
) -> Iterator[Pair]:
    """Yield two tenants with rows of every kind, in a database for this test only."""
    with stages.copy(make_pair) as (logs, made):
        settings.LOCAL_ROOT = str(logs)
        yield made


def staged(make: Callable[[], Made]) -> Any:
    """Return a fixture that yields the stage of `make`, in a database for this test only."""

    @pytest.fixture
    def made(stages: Stages) -> Iterator[Made]:
        with stages.copy(make) as made:
            yield made

    return made


def copied(make: Callable[[], Made]) -> Any:
    """Return a fixture that yields a copy, for tests that need the name of its database."""

    @pytest.fixture
    def copy(stages: Stages) -> Iterator[Copy[Made]]:
        with stages.copy_of(make) as copy:
            yield copy

    return copy


@pytest.fixture
def name_of_copy(copy: Copy[Any]) -> str:
    """Return the name of the copy's database, for the live server of a `copied` stage."""
    return copy.name


def staged_by(module: str, name: str) -> Any:
    """Return a fixture whose maker is imported at its first use."""

    @pytest.fixture
    def made(stages: Stages) -> Iterator[Any]:
        with stages.copy(getattr(import_module(f"tests.functional.{module}"), name)) as made:
            yield made

    return made


# two pools whose clocks are years apart
clocks = staged_by("two_clocks", "two_clocks")
# A pool with settled hours and all kinds of viewers.
settled = staged_by("pool_stage", "settled_stage")
# A tenant with rows of every kind and all kinds of viewers.
matrix = staged_by("matrix_stage", "matrix_stage")


@contextmanager
def kept_database(kind: str, template: str, services: Services) -> Iterator[str]:
    """Yield the name of a new copy of a database; the copy has no connections yet."""
    name = f"evenshare_{kind}_{os.getpid()}"
    with services.postgres.connect() as connection:
        create_database(connection, name, template=template)
    yield name
    with services.postgres.connect() as connection:
        drop_database(connection, name)
