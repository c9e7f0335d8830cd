"""Faults that tests inject at named points: an exception, or a connection that is gone."""

from __future__ import annotations

from collections.abc import Callable

from django.db import DatabaseError, connection, connections, transaction

# What a step may raise whose connection was cut.
CUT_OFF = (DatabaseError, transaction.TransactionManagementError)


class InjectedError(Exception):
    """The fault of these tests."""


def fail() -> None:
    """Raises InjectedError."""
    raise InjectedError


def cut_database() -> None:
    """End the connection that this process has."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
    with connections["owner"].cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])


def once(point: str, fault: Callable[[], None]) -> tuple[Callable[[str], None], list[str]]:
    """A hook that has its fault at the first time the point is reached."""
    reached: list[str] = []

    def hook(name: str) -> None:
        if name == point and not reached:
            reached.append(name)
            fault()

    return hook, reached
