"""Test real jobs over rounds: they borrow, are preempted, save checkpoints, resume and finish."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from evenshare_core.policies import registry
from scheduling.engine.clock import read_clock
from scheduling.engine.rounds import execute_round
from scheduling.models import Job, Lease, LeaseSlot, Pool
from tests.factories import Cluster, cluster
from tests.integration.local_world import local_world, processes_below
from tests.tools import eventually
from tests.toy_policy.preempting import POLICY

pytestmark = [
    pytest.mark.usefixtures("committed_db"),
    pytest.mark.skipif(sys.platform != "linux", reason="the executor finds processes in /proc"),
]

# A program counts to a number in steps of 50 ms, and saves the count when it is stopped. In its
# first lease it waits at a smaller number, so that it cannot end too early.
COUNTER = """
import json, os, pathlib, signal, sys, time
saved = pathlib.Path(os.environ["EVENSHARE_JOB_DIR"], "count")
count = int(saved.read_text()) if saved.exists() else 0
most = int(sys.argv[1 if saved.exists() else 2])
def checkpoint(*_):
    saved.write_text(str(count))
    print("kept", count, flush=True)
    sys.exit(99)
signal.signal(signal.SIGUSR1, checkpoint)
print("begins at", count, flush=True)
while count < int(sys.argv[1]):
    count = min(count + 1, most)
    fresh = pathlib.Path(os.environ["EVENSHARE_PROGRESS"] + ".new")
    fresh.write_text(json.dumps({"step": count}))
    fresh.replace(os.environ["EVENSHARE_PROGRESS"])
    time.sleep(0.05)
print("done at", count)
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Cluster]:
    with local_world(tmp_path / "jobs"):
        lengths: dict[str, Any] = {"round_s": 1, "lease_s": 3, "grace_s": 600}
        made = cluster(
            {"a": 1, "b": 1}, nodes=1, gpus=2, executor="local", policy="ltgf", **lengths
        )
        yield made
        for lease in Lease.objects.exclude(state="ended"):
            Job.objects.filter(pk=lease.job_id).update(cancel_asked_at=lease.granted_at)
        eventually(lambda: turn(made) and not Lease.objects.exclude(state="ended").exists())
        eventually(lambda: not processes_below(tmp_path / "jobs"))


def turn(lab: Cluster) -> bool:
    """Run the due round, as the tick does; return True to continue."""
    lab.at = read_clock(lab.pool.pk).pool_at
    execute_round(lab.pool.pk, now=read_clock(lab.pool.pk))
    time.sleep(0.1)
    return True


def state_of(job: Job) -> str:
    job.refresh_from_db()
    return job.state


def progress_of(job: Job) -> object:
    job.refresh_from_db()
    return job.progress


def counting(lab: Cluster, tenant: str, gpus: int, steps: int, first: int) -> Job:
    turn(lab)
    return lab.submit(tenant, gpus, 1, command=["python", "-c", COUNTER, str(steps), str(first)])


class TestTwoTenants:
    def test_share_machine_and_borrower_resumes(self, lab: Cluster, tmp_path: Path) -> None:
        borrower = counting(lab, "a", 2, 100, 50)
        eventually(lambda: turn(lab) and state_of(borrower) == "running")
        eventually(lambda: turn(lab) and progress_of(borrower))
        owner = counting(lab, "b", 1, 10, 10)
        eventually(lambda: turn(lab) and state_of(owner) == "succeeded")
        assert Lease.objects.get(job=borrower, number=1).end_reason
        eventually(lambda: turn(lab) and state_of(borrower) == "succeeded")
        leases = list(Lease.objects.filter(job=borrower).order_by("number"))
        assert len(leases) >= 2
        for earlier, later in itertools.pairwise(leases):
            assert earlier.ended_at is not None
            assert later.started_at is not None
            assert earlier.ended_at <= later.started_at
        logs = [
            (tmp_path / f"jobs/{borrower.pk}/leases/{lease.number}/out.log").read_text()
            for lease in leases
        ]
        kept = next(line for line in logs[0].splitlines() if line.startswith("kept"))
        assert f"begins at {kept.split()[1]}\n" in logs[1]
        assert logs[-1].endswith("done at 100\n")
        assert borrower.exit_code == 0
        assert borrower.progress == {"step": 100}
        assert not LeaseSlot.objects.filter(holding=True).exists()


class TestPreemptedJob:
    def test_gets_notice_checkpoints_and_resumes_before_lease_would_expire(
        self, lab: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)
        options = {"min_runtime_s": 1}
        Pool.objects.update(policy=POLICY.name, options=options, lease_s=86_400)
        borrower = counting(lab, "a", 2, 100, 50)
        eventually(lambda: turn(lab) and progress_of(borrower))
        owner = counting(lab, "b", 1, 10, 10)
        eventually(lambda: turn(lab) and state_of(owner) == "succeeded")
        first = Lease.objects.get(job=borrower, number=1)
        assert first.end_reason == "preempted"
        assert first.started_at is not None
        assert first.ended_at is not None
        assert first.protected_until is not None
        assert first.protected_until >= first.started_at + timedelta(seconds=1)
        assert first.protected_until <= first.ended_at < first.expires_at
        notice, end = first.events.filter(kind__in=("stop_asked", "ended")).order_by("number")
        assert (notice.kind, end.kind) == ("stop_asked", "ended")
        assert (notice.data["rule"], notice.data["for_job"]) == ("guarantee", owner.pk)
        assert first.protected_until <= notice.at <= end.at
        assert Lease.objects.filter(job=owner, started_at__gte=first.ended_at).exists()
        eventually(lambda: turn(lab) and state_of(borrower) == "succeeded")
        logs = [
            (tmp_path / f"jobs/{borrower.pk}/leases/{number}/out.log").read_text()
            for number in (1, 2)
        ]
        (kept,) = (line for line in logs[0].splitlines() if line.startswith("kept"))
        assert f"begins at {kept.split()[1]}\n" in logs[1]
        assert logs[1].endswith("done at 100\n")
        assert Lease.objects.filter(job=borrower).count() == 2


class TestCancelledJob:
    def test_is_cancelled_while_running(self, lab: Cluster) -> None:
        job = counting(lab, "a", 1, 100, 50)
        eventually(lambda: turn(lab) and progress_of(job))
        Job.objects.filter(pk=job.pk).update(cancel_asked_at=lab.at)
        eventually(lambda: turn(lab) and state_of(job) == "cancelled")
        assert Lease.objects.get(job=job).end_reason == "cancelled"
