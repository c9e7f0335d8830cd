"""A pytest plugin: a test's own queries see all tenants, those of tested code only their scopes.

Factories and assertions need no scope. In a request, a round, a task or a command the connection is
as in production. There a query of a tenant's rows without a scope fails.

Each query in a tenant's scope is also run for the site, and must return the same. If the results
differ, a filter by tenant is missing and only row security protects the rows. Or the query is about
the whole pool, and its count is too low.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from typing import Any
from weakref import WeakSet

import pytest
from celery import Task
from django.core.management.base import BaseCommand
from django.core.signals import request_finished, request_started
from django.db import Error, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg import ClientCursor
from psycopg.sql import SQL, Literal

SET = "SELECT set_config('evenshare.scope', %s, false)"
AS = SQL("SELECT set_config('evenshare.scope', {}, true)")
SECURED = re.compile(
    r"tenants_(quota|budget|dailyspend|idempotentreply)\b"
    r"|billing_(account|transfer|loggedtransfer|transferrequest|entry|usageline|usageshare)\b"
    r"|scheduling_(job|equalpeople|profile|arrival|virtualwork|lease|leaseslot|leaseterm)\b"
    r"|scheduling_(leaseevent|intent)\b"
    r"|scheduling_(iterationreading|measurement|measurementnote|metrichistory|runrecord|stopforecast)\b"
    r"|evenshare_find_jobs\b"
    r"|scheduling_(virtualspeeds|startestimate|jobplan|jobanswer|verification|sweep|jobdependency)\b"
    r"|scheduling_(subscription|message|delivery|idlereading|idleday|sessioncode)\b"
    r"|tenants_(sharingsetting|pricelimit|idleoffer|invitation|savedfilter|quotachangerequest)\b"
)
WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|FOR SHARE|FOR KEY SHARE|nextval|set_config)\b")
_in_request = ContextVar("in_request", default=False)
_compares = ContextVar("compares", default=False)
# Connections that a transaction has set to a tenant's scope. A rollback to a savepoint may undo
# this; after the transaction they have no scope.
_narrowed: WeakSet[BaseDatabaseWrapper] = WeakSet()


@contextmanager
def uncompared() -> Iterator[None]:
    """Turn off the comparison, for tests that remove filters on purpose."""
    token = _compares.set(False)
    try:
        yield
    finally:
        _compares.reset(token)


def _set(of: BaseDatabaseWrapper) -> None:
    with of.connection.cursor() as cursor:
        cursor.execute(SET, ["" if _in_request.get() else "site"])


def _compared(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    """Run the query in its scope and for the site, and compare, before the query itself runs."""
    of = context["connection"]
    if not of.in_atomic_block:
        _narrowed.discard(of)
    if "evenshare.scope" in sql and params and params[0].startswith("{"):
        _narrowed.add(of)
    reads = sql.lstrip().startswith(("SELECT", "WITH")) and not WRITES.search(sql)
    if of in _narrowed and _compares.get() and reads and SECURED.search(sql):
        _compare(of.connection, sql, params)
    return execute(sql, params, many, context)


def _compare(of: Any, sql: str, params: Any) -> None:
    with of.cursor() as cursor:
        (scope,) = cursor.execute("SELECT current_setting('evenshare.scope', true)").fetchone()
        if not scope.startswith("{"):
            return
        # All statements go to the server in one message, because a test runs thousands of queries.
        query = ClientCursor(of).mogrify(sql, params)
        mine, site = (AS.format(Literal(one)).as_string(of) for one in (scope, "site"))
        cursor.execute(f"{mine}; {query}; {site}; {query}; {mine}")
        seen = []
        for _ in range(2):
            cursor.nextset()
            seen.append(sorted(map(repr, cursor.fetchall())))
            cursor.nextset()
    assert seen[0] == seen[1], f"finds less in the scope {scope} than in all: {sql} {params}"


def _connected(*, connection: BaseDatabaseWrapper, **_: object) -> None:
    _set(connection)
    if _compared not in connection.execute_wrappers:
        connection.execute_wrappers.append(_compared)


def _began(**_: object) -> None:
    _in_request.set(True)
    if connection.connection is not None:
        _set(connection)


def _ended(**_: object) -> None:
    _in_request.set(False)
    _restore()


@contextmanager
def nobody() -> Iterator[None]:
    """Start without a scope, as in production, where queries of tenants' rows must set a scope."""
    token = _in_request.set(True)
    try:
        if connection.connection is not None:
            _set(connection)
        yield
    finally:
        _in_request.reset(token)
        _restore()


def _as_nobody(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with nobody():
            return function(*args, **kwargs)

    return call


def _restore() -> None:
    # The settings of a failed transaction are rolled back with it.
    if connection.connection is not None and not connection.needs_rollback:
        with suppress(Error):
            _set(connection)


def begin() -> None:
    connection_created.connect(_connected)
    request_started.connect(_began)
    request_finished.connect(_ended)


def pytest_configure() -> None:
    """Start the comparison as soon as Django's settings exist."""
    begin()
    _compares.set(True)
    Task.__call__ = _as_nobody(Task.__call__)  # Tasks of workers start without a scope, too.
    BaseCommand.execute = _as_nobody(BaseCommand.execute)  # type: ignore[method-assign]  # to watch it


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """End the scope that a request left because its error was raised into the previous test."""
    _ended()
