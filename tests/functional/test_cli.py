"""Test the command line of two researchers against the real portal, with real processes.

The first submission: a job takes the whole pool, and another tenant claims its share. The first job
yields at the end of its lease, resumes, and loses no work.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from billing.tasks import meter
from evenshare_core.policies import registry
from scheduling.engine.clock import read_clock
from scheduling.engine.rounds import execute_round
from scheduling.models import Job, Lease, Pool
from tenants.models import Membership, Tenant, User
from tests.architecture.sources import ROOT
from tests.factories import cluster
from tests.integration.local_world import processes_below
from tests.tools import PATIENCE_S, eventually, stopped
from tests.toy_policy.preempting import POLICY

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the executor needs /proc")

STEPS = 300
TRAIN = ["python", "examples/train.py", "--steps", str(STEPS)]
PASSWORD = "correct horse battery"


@dataclass
class Person:
    """A user with a shell that has only the client."""

    name: str
    home: Path
    url: str
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    packages: tuple[Path, ...] = (ROOT / "client" / "src", ROOT / "core" / "src")

    def start(self, *words: str, given: str = "") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "evenshare", *words],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.pathsep.join(map(str, self.packages)),
                "HOME": str(self.home),
                "EVENSHARE_URL": self.url,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        assert process.stdin is not None
        process.stdin.write(given)
        process.stdin.close()
        process.stdin = None
        return process

    def does(self, *words: str, code: int = 0, given: str = "") -> str:
        out, err = self.start(*words, given=given).communicate(timeout=PATIENCE_S)
        process = self.running.pop()
        assert process.returncode == code, (words, out, err)
        return out if code == 0 else err

    def json(self, *words: str) -> Any:
        return json.loads(self.does(*words, "--output", "json"))

    def logs_in(self) -> None:
        said = self.does("login", "--username", self.name, "--password", "-", given=f"{PASSWORD}\n")
        assert said.startswith(f"Logged in to {self.url} until ")


@dataclass
class Scene:
    """A pool of two slots that two tenants share equally."""

    pool: Pool
    ada: Person
    bob: Person
    jobs: Path

    def round(self) -> None:
        execute_round(self.pool.pk, now=read_clock(self.pool.pk))

    def until(self, job: str, *states: str) -> dict[str, Any]:
        """Run due rounds until the job is in a state."""

        def there() -> bool:
            self.round()
            return Job.objects.filter(uid=job, state__in=states).exists()

        eventually(there, every_s=0.2)
        shown: dict[str, Any] = self.ada.json("job", "show", job)
        return shown

    def until_it_reports(self, job: str) -> None:
        """Run due rounds until the portal has a report of the job."""

        def known() -> bool:
            self.round()
            return Job.objects.get(uid=job).progress is not None

        eventually(known, every_s=0.2)

    @contextmanager
    def stopped_training(self) -> Iterator[None]:
        """Suspend the training after its first report, so that it has a state to save.

        It must not end before it is preempted, however late the rounds are.
        """
        with stopped(eventually(self.training_that_reported, every_s=0.01)):
            yield

    def training_that_reported(self) -> list[int]:
        """Run the due round; return the processes of the training once it has reported."""
        self.round()
        found = []
        for pid in processes_below(self.jobs) if list(self.jobs.rglob("progress.json")) else []:
            with suppress(OSError):  # the process has ended
                if TRAIN[1].encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def until_granted(self, job: str) -> None:
        """Run due rounds until a round grants a lease to the job."""

        def granted() -> bool:
            self.round()
            return Lease.objects.filter(job__uid=job).exists()

        eventually(granted, every_s=0.2)


@pytest.fixture
def scene(site: str, tmp_path: Path) -> Iterator[Scene]:
    # The default policy protects a lease for minutes, which is too long for a test.
    lab = cluster(
        {"ada-lab": 1, "bob-lab": 1}, nodes=1, gpus=2, policy="ltgf",
        executor="local", lease_s=2, round_s=1, grace_s=600, source_dir=str(ROOT),
    )  # fmt: skip
    lab.gpu_type.name = "cpu"
    lab.gpu_type.save()
    ada, bob = (person(n, lab.tenants[f"{n}-lab"], tmp_path, site) for n in ("ada", "bob"))
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    with override_settings(LOCAL_ROOT=str(jobs)):
        yield Scene(lab.pool, ada, bob, jobs)
        end(jobs, [ada, bob])


def person(name: str, tenant: Tenant, folder: Path, url: str) -> Person:
    user = User(username=name)
    user.set_password(PASSWORD)
    user.save()
    Membership.objects.create(user=user, tenant=tenant, role=Membership.Role.MEMBER)
    home = folder / name
    home.mkdir()
    return Person(name, home, url)


def end(jobs: Path, people: list[Person]) -> None:
    """Kill all processes, whatever the result of the test."""
    for process in [process for person in people for process in person.running]:
        if process.poll() is None:
            process.kill()
        process.wait()
    for pid in processes_below(jobs):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


class TestJobCommands:
    def test_preempted_job_resumes_and_loses_no_output(self, scene: Scene) -> None:
        ada, bob = scene.ada, scene.bob
        ada.logs_in()
        bob.logs_in()
        submit = ["job", "submit", "--pool", scene.pool.name, "--gpus", "2"]
        assert "feasible" in ada.does(*submit, "--dry-run", "--", *TRAIN)
        job = ada.does(*submit, "--name", "first", "--", *TRAIN).strip()
        assert job in ada.does("queue", "--pool", scene.pool.name)
        with scene.stopped_training():
            scene.until_it_reports(job)
            follower = ada.start("job", "logs", job[:8], "--follow")
            claim = bob.does(*submit, "--", "python", "-c", "print('claimed \\x1b[31m')").strip()
            assert bob.does("job", "why", claim).startswith("pending")
            assert "404" in bob.does("job", "show", job, code=3)
            scene.until_granted(claim)
        shown = scene.until(job, "succeeded", "failed")

        out, err = follower.communicate(timeout=PATIENCE_S)
        assert (shown["state"], shown["exit_code"]) == ("succeeded", 0), out
        assert Lease.objects.filter(job__uid=job).count() >= 2
        assert "resumed at step" in out
        assert "-- lease 2 --" in err
        assert out.splitlines()[-1] == undisturbed()
        assert shown["progress"]["step"] == STEPS
        assert "claimed \\x1b[31m" in bob.does("job", "logs", claim)

    def test_job_preempted_with_notice_produces_same_output(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The lease lasts a day, so only the notice can end it.

        The training program receives the notice.
        """
        monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)
        Pool.objects.update(policy=POLICY.name, lease_s=86_400)
        ada, bob = scene.ada, scene.bob
        ada.logs_in()
        bob.logs_in()
        submit = ["job", "submit", "--pool", scene.pool.name]
        job = ada.does(*submit, "--gpus", "2", "--name", "first", "--", *TRAIN).strip()
        with scene.stopped_training():
            scene.until_it_reports(job)
            claim = bob.does(*submit, "--gpus", "1", "--", "python", "-c", "print(1)").strip()
            scene.until_granted(claim)
        shown = scene.until(job, "succeeded", "failed")
        leases = Lease.objects.filter(job__uid=job).order_by("number")
        assert [lease.end_reason for lease in leases] == ["preempted", "finished"]
        assert (shown["state"], shown["exit_code"]) == ("succeeded", 0)
        out = ada.does("job", "logs", job)
        assert "resumed at step" in out
        assert out.splitlines()[-1] == undisturbed()

    def test_rejected_submission_prints_every_wrong_field(self, scene: Scene) -> None:
        ada = scene.ada
        ada.logs_in()
        told = ada.does(
            "job", "submit", "--pool", scene.pool.name, "--gpus", "3", "--env", "LD_PRELOAD=x",
            "--name", "Not so", "--", "true", code=3,
        )  # fmt: skip
        for name in ("gpus", "environment", "name"):
            assert f"\n  {name}" in told, told
        assert "pool" in ada.does(
            "job", "submit", "--pool", "none", "--gpus", "1", "--", "true", code=3
        )

    def test_idempotency_key_and_cancel_are_idempotent(self, scene: Scene) -> None:
        ada = scene.ada
        ada.logs_in()
        words = ["job", "submit", "--pool", scene.pool.name, "--gpus", "1"]
        words += ["--idempotency-key", "once"]
        first = ada.does(*words, "--", "true")
        assert ada.does(*words, "--", "true") == first
        assert "422" in ada.does(*words, "--", "false", code=4)
        assert [j["id"] for j in ada.json("job", "list")] == [first.strip()]
        assert "cancelled" in ada.does("job", "cancel", first[:8])
        assert "cancelled" in ada.does("job", "cancel", first[:8])

    def test_lists_jobs_by_limit_and_state_and_shows_prices(self, scene: Scene) -> None:
        ada = scene.ada
        ada.logs_in()
        for _ in range(3):
            ada.does("job", "submit", "--pool", scene.pool.name, "--gpus", "1", "--", "true")
        assert len(ada.json("job", "list", "--limit", "2")) == 2
        for word in ("pending", "queued", "Queued", "WAITING"):
            assert len(ada.json("job", "list", "--all", "--state", word)) == 3, word
        scene.round()
        meter()
        rows = ada.json("price", "--pool", scene.pool.name)
        assert [row["gpu_type"] for row in rows] == ["cpu"]


@cache
def undisturbed() -> str:
    """Return the last line of the same training without a portal, in the same environment."""
    done = subprocess.run(
        [sys.executable, *TRAIN[1:]],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1]
