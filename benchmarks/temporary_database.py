"""A Postgres for the time of a benchmark, migrated as a portal's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

os.environ.setdefault("LOG_LEVEL", "WARNING")  # a line for each round would be timed as well

from portal.embedded.postgres import create_database
from tests import plugin, scope  # the first names the temporary database before the settings


@contextmanager
def temporary_database() -> Iterator[None]:
    """Start it, and set Django up on it; modules of the portal are imported inside."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.site.settings")
    import django

    django.setup()
    from portal.site import prepare

    scope.begin()
    plugin.SERVICES.start()
    try:
        with plugin.SERVICES.postgres.connect() as connection:
            create_database(connection, plugin.SHARED)
        prepare.migrate()
        yield
    finally:
        plugin.SERVICES.stop()
