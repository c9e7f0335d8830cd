"""A test's own queries see all tenants; a request's see what its scopes let them. A plugin.

Factories and assertions are nobody's queries, so they need no scope. Inside of a request the
connection is as in production: what asks for a tenant's rows in no scope finds none.
"""

from __future__ import annotations

from contextvars import ContextVar

import pytest
from django.core.signals import request_finished, request_started
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

OF_TESTS = "site"
_in_request = ContextVar("in_request", default=False)


def _set(of: BaseDatabaseWrapper) -> None:
    scope = "" if _in_request.get() else OF_TESTS
    with of.connection.cursor() as cursor:
        cursor.execute("SELECT set_config('evenshare.scope', %s, false)", [scope])


def _connected(*, connection: BaseDatabaseWrapper, **_: object) -> None:
    _set(connection)


def _began(**_: object) -> None:
    _in_request.set(True)
    if connection.connection is not None:
        _set(connection)


def _ended(**_: object) -> None:
    _in_request.set(False)
    # A transaction that has failed is rolled back, and its settings with it.
    if connection.connection is not None and not connection.needs_rollback:
        _set(connection)


def begin() -> None:
    """Have it so in this process."""
    connection_created.connect(_connected)
    request_started.connect(_began)
    request_finished.connect(_ended)


def pytest_configure() -> None:
    """As soon as there are settings."""
    begin()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """A request that raised its error into a test has not finished."""
    _ended()
