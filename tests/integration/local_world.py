"""Provide a pool on the `local` executor; a test creates and ends leases, without rounds."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.test import override_settings

from evenshare_core.domain.instants import to_us
from evenshare_core.units import SECOND_US
from scheduling.engine.clock import read_clock
from scheduling.engine.executors.base import Launch, Report, ReportState, Stop, lease_token
from scheduling.engine.executors.local import LocalExecutor
from scheduling.engine.executors.local_files import read_log
from scheduling.engine.executors.shim.files import lease_folder, read_json
from scheduling.engine.executors.shim.processes import is_alive, start_of_process
from scheduling.models import Intent, Job, Lease, LeaseSlot, Node
from tests.factories import Cluster, cluster
from tests.tools import eventually

PYTHON = sys.executable


def _lab(**quotas: int) -> Cluster:
    lab = cluster(
        quotas or {"a": 8},
        nodes=1,
        gpus=8,
        executor="local",
        lease_s=20,
        round_s=2,
        grace_s=600,
        policy="ltgf",
    )
    lab.gpu_type.name = "cpu"
    lab.gpu_type.save()
    return lab


@dataclass
class LocalWorld:
    """Jobs with a lease each, on real slots; `close` leaves no process behind."""

    root: Path
    lab: Cluster = field(default_factory=_lab)
    executor: LocalExecutor = field(default_factory=LocalExecutor)
    tokens: list[str] = field(default_factory=list)

    def lease(self, *argv: str, job: Job | None = None, **fields: Any) -> str:
        """Create a job (or use `job`) with a lease that is ready to launch; return its token."""
        made = job or self.lab.submit("a", 1, 60, command=list(argv), **fields)
        number = Lease.objects.filter(job=made).count() + 1
        now = read_clock(self.lab.pool.pk).pool_at
        lease = Lease.objects.create(
            pool=self.lab.pool,
            tenant=made.tenant,
            job=made,
            gpu_type=self.lab.gpu_type,
            number=number,
            state=Lease.State.LAUNCHING,
            gpus=1,
            placement=[],
            granted_round=1,
            granted_at=now,
            expires_at=now,
            own=1,
            borrowed=0,
            price=0,
        )
        taken = LeaseSlot.objects.count()
        LeaseSlot.objects.create(
            lease=lease, node=Node.objects.get(pool=self.lab.pool), slot=taken, holding=True
        )
        token = lease_token(made.pk, number, "es")
        self.tokens.append(token)
        return token

    def run(self, *argv: str, **fields: Any) -> str:
        """Launch a job at once; return its token."""
        token = self.lease(*argv, **fields)
        self.launch(token)
        return token

    def shell(self, text: str, **fields: Any) -> str:
        """Launch a shell script; return its token."""
        return self.run("/bin/sh", "-c", text, **fields)

    def python(self, text: str, **fields: Any) -> str:
        """Launch a Python program; return its token."""
        return self.run(PYTHON, "-c", text, **fields)

    def launch(self, *tokens: str) -> list[Report]:
        """Launch like a dispatcher, and mark the intent as done."""
        at_us = self.now_us()
        reports = self.executor.launch([Launch(t, int(t.split("-")[1]), at_us) for t in tokens])
        for lease in Lease.objects.filter(job_id__in=[int(t.split("-")[1]) for t in tokens]):
            Intent.objects.get_or_create(
                lease=lease,
                kind=Intent.Kind.LAUNCH,
                term=1,
                defaults={"pool": self.lab.pool, "at": lease.granted_at, "state": "done"},
            )
        return reports

    def stop(self, token: str, grace_s: float = 600.0) -> list[Report]:
        grace_us = int(grace_s * SECOND_US)
        return self.executor.stop([Stop(token, self.job(token), self.now_us(), grace_us)])

    def listed(self) -> dict[str, Report]:
        """Return the executor's reports by token."""
        reports = self.executor.list(self.lab.pool.pk, self.now_us())
        return {report.token: report for report in reports}

    def ended(self, token: str) -> Report:
        """Wait for a process's end and return its report."""

        def over() -> Report | None:
            report = self.listed().get(token)
            over = (ReportState.FINISHED, ReportState.STOPPED)
            return report if report and report.state in over else None

        report = eventually(over)
        assert report is not None
        return report

    def now_us(self) -> int:
        return to_us(read_clock(self.lab.pool.pk).pool_at)

    def job(self, token: str) -> int:
        return int(token.split("-")[1])

    def folder(self, token: str) -> Path:
        return lease_folder(self.root, token)

    def job_folder(self, token: str) -> Path:
        return self.folder(token).parents[1]

    def shim(self, token: str) -> dict[str, Any]:
        return read_json(self.folder(token) / "shim.json") or {}

    def log(self, token: str) -> str:
        data, _, _ = read_log(self.job(token), int(token.rsplit("-", 1)[1]))
        return data.decode(errors="replace")

    def says(self, token: str, words: str) -> None:
        """Wait until a program has printed something."""
        eventually(lambda: words in self.log(token))

    def processes(self) -> list[int]:
        """Return running processes that were started below the root."""
        return processes_below(self.root)

    def close(self) -> None:
        for token in self.tokens:
            record = self.shim(token)
            if record and is_alive(record):
                with suppress(ProcessLookupError):
                    os.kill(record["pid"], signal.SIGQUIT)
        eventually(lambda: not self.processes())


def processes_below(root: Path) -> list[int]:
    """Find shims by their command line, and programs and their children by their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):
                line = (entry / "cmdline").read_bytes()
                environment = (entry / "environ").read_bytes()
                below = f"EVENSHARE_JOB_DIR={root}/".encode()
                ours = below in environment or f"{root}/".encode() in line
                if ours and start_of_process(int(entry.name)):
                    found.append(int(entry.name))
    return found


@contextmanager
def local_world(root: Path, **quotas: int) -> Iterator[LocalWorld]:
    """Provide the pool; `quotas`: of its tenants, by default of one tenant `a`."""
    with override_settings(LOCAL_ROOT=str(root)):
        world = LocalWorld(root, _lab(**quotas))
        try:
            yield world
        finally:
            world.close()
