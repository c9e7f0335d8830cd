"""Inject faults at named points: an exception, a lost connection, kill -9."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import DatabaseError, connection, connections, transaction

from evenshare_core.policies import registry
from tenants.faults import arm_faults
from tests.factories import Cluster
from tests.tools import PATIENCE_S

CHILD = Path(__file__).with_name("round_process.py")
# Errors that a step raises if its connection was cut.
CUT_OFF = (DatabaseError, transaction.TransactionManagementError)


class InjectedError(Exception):
    """The injected fault."""


def fail() -> None:
    raise InjectedError


def cut_database() -> None:
    """End this process's connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
    with connections["owner"].cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])


def once(point: str, fault: Callable[[], None]) -> tuple[Callable[[str], None], list[str]]:
    """Return a hook that runs its fault when the point is first reached."""
    reached: list[str] = []

    def hook(name: str) -> None:
        if name == point and not reached:
            reached.append(name)
            fault()

    return hook, reached


Step = Callable[[Cluster], object]


def interrupted(point: str, step: Step, lab: Cluster) -> None:
    """Run a step that raises at a point."""
    hook, reached = once(point, fail)
    with arm_faults(hook), pytest.raises(InjectedError):
        step(lab)
    assert reached


def cut_off(point: str, step: Step, lab: Cluster) -> None:
    """Run a step whose connection to the database is cut at a point."""
    hook, reached = once(point, cut_database)
    # Outside a transaction Django may restore the connection by itself.
    with arm_faults(hook), contextlib.suppress(*CUT_OFF):
        step(lab)
    assert reached
    connections.close_all()


def killed(point: str, _step: Step, lab: Cluster) -> None:
    """Run the step in a separate process, which is killed at a point."""
    module = type(registry.POLICIES[lab.pool.policy]).__module__
    policies = [module] if module.startswith("tests.") else []
    arguments = (str(lab.pool.pk), lab.at.isoformat(), f"{point}:kill", "30", *policies)
    victim = subprocess.Popen(
        [sys.executable, str(CHILD), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "portal.site.settings"},
    )
    printed, _ = victim.communicate(timeout=PATIENCE_S)
    assert victim.returncode == -signal.SIGKILL
    assert printed.splitlines()[-1] == point


# The faults by name, which also name the test cases.
FAULTS = {"interrupted": interrupted, "cut_from_database": cut_off, "kill_9": killed}
