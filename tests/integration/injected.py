"""Faults that tests inject at named points: an exception, a connection that is gone, kill -9."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable

import pytest
from django.db import DatabaseError, connection, connections, transaction

from tenants.faults import arm_faults
from tests.tools import PATIENCE_S

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


def interrupted(point: str, work: Callable[[], object]) -> None:
    """Work that raises at a point."""
    hook, reached = once(point, fail)
    with arm_faults(hook), pytest.raises(InjectedError):
        work()
    assert reached


def cut_off(point: str, work: Callable[[], object]) -> None:
    """Work whose connection to the database is ended at a point."""
    hook, reached = once(point, cut_database)
    # A point outside a transaction may meet a connection that heals by itself.
    with arm_faults(hook), contextlib.suppress(*CUT_OFF):
        work()
    assert reached
    connections.close_all()


def killed(point: str, work: Callable[[], object]) -> None:
    """Work in a copy of this process, which is killed at a point."""
    hook, _ = once(point, lambda: os.kill(os.getpid(), signal.SIGKILL))

    def work_until_then() -> None:
        with arm_faults(hook):
            work()

    # The copy must not talk on a connection of this process.
    connections.close_all()
    victim = multiprocessing.get_context("fork").Process(target=work_until_then)
    victim.start()
    victim.join(PATIENCE_S)
    assert victim.exitcode == -signal.SIGKILL


# What a story of faults tries, by the name of its cases.
FAULTS = {"interrupted": interrupted, "cut_from_database": cut_off, "kill_9": killed}
