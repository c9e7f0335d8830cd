"""Provide a pool whose jobs are real processes, with rounds in the background, and people."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from django.db import connection
from django.test import override_settings

from scheduling.engine.clock import read_clock
from scheduling.engine.rounds import execute_round
from scheduling.models import Job
from tenants.models import Membership, User
from tests.browser.session import give_session
from tests.factories import Cluster, cluster
from tests.functional.visitors import signed_in
from tests.integration.local_world import processes_below
from tests.tools import PATIENCE_S, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Page

PASSWORD = "a long enough password"
EVERY_S = 0.4


@dataclass
class LocalStage:
    """Tenants north (2 GPUs, ada's) and south (2); 4 slots on one node; leases of 30 s."""

    lab: Cluster
    root: Path

    @property
    def pool(self) -> str:
        return self.lab.pool.name

    @property
    def python(self) -> str:
        """Return the interpreter of the tests, for jobs that need one."""
        return sys.executable

    def sign_in(self, page: Page, site: str, name: str = "ada") -> None:
        """Sign in without the login page."""
        give_session(page.context, signed_in(User.objects.get(username=name)), site)

    def log_in(self, page: Page, name: str = "ada") -> None:
        """Log in on the login page."""
        page.goto("/login/")
        page.fill("#id_username", name)
        page.fill("#id_password", PASSWORD)
        page.click("main form button.pri")
        page.wait_for_url("**/t/north/")

    def submit(self, *argv: str, gpus: int = 1) -> Job:
        """Submit as north, without the page."""
        at = read_clock(self.lab.pool.pk).pool_at
        return Job.objects.create(
            pool=self.lab.pool, tenant=self.lab.tenants["north"], name="by-hand",
            submitted_at=at, gpus=gpus, command=list(argv),
        )  # fmt: skip


@contextlib.contextmanager
def local_stage(root: Path) -> Iterator[LocalStage]:
    """Yield a stage below `root`; end all its processes."""
    lab = cluster(
        {"north": 2, "south": 2},
        nodes=1,
        gpus=4,
        executor="local",
        round_s=1,
        lease_s=30,
        policy="ltgf",
        grace_s=2,
        on_demand=True,
    )
    for name, role in (("ada", Membership.Role.MEMBER), ("bea", Membership.Role.VIEWER)):
        user = User.objects.create_user(name, password=PASSWORD, first_name=name.title())
        Membership.objects.create(user=user, tenant=lab.tenants["north"], role=role)
    over = threading.Event()
    beat = threading.Thread(target=_beat, args=(lab.pool.pk, over), daemon=True)
    with override_settings(LOCAL_ROOT=str(root)):
        beat.start()
        try:
            yield LocalStage(lab, root)
        finally:
            over.set()
            beat.join(PATIENCE_S)
            for pid in processes_below(root):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            eventually(lambda: not processes_below(root))


def _beat(pool_id: int, over: threading.Event) -> None:
    """Run rounds, as the tick of a running portal does."""
    try:
        while not over.wait(EVERY_S):
            execute_round(pool_id, now=read_clock(pool_id), on_demand=True)
    finally:
        connection.close()
