"""Test that a job that kills its shim waits longer each time, and finally fails."""

from __future__ import annotations

import sys
from datetime import timedelta

import pytest
from django.db.models import F
from django.test import Client

from evenshare_core.domain.backoff import LIMIT, wait_us
from evenshare_core.domain.instants import to_us
from evenshare_core.domain.reasons import EndReason
from scheduling.models import Job, Lease, PoolClock
from scheduling.selectors.rounds.replay import find_rounds, replay_stored_round
from tenants.models import Membership, User
from tests.factories import Cluster
from tests.integration.test_local_executor_rounds import lab, state_of, turn
from tests.tools import eventually

__all__ = ["lab"]

pytestmark = [
    pytest.mark.usefixtures("committed_db"),
    pytest.mark.skipif(sys.platform != "linux", reason="the executor finds processes in /proc"),
]

# A program's parent process is its shim.
KILLS_ITS_SHIM = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"


def client_of(job: Job) -> Client:
    user = User.objects.create(username="ada", password="!")
    Membership.objects.create(user=user, tenant=job.tenant, role=Membership.Role.MEMBER)
    client = Client()
    client.force_login(user)
    return client


def lost(lab: Cluster, job: Job, times: int) -> Lease:
    """Run rounds until the job's process was lost `times` times; return the last lease."""

    def is_lost() -> bool:
        turn(lab)
        job.refresh_from_db()
        return job.losses == times

    eventually(is_lost)
    return Lease.objects.filter(job=job).latest("number")


def pass_time(lab: Cluster, job: Job) -> None:
    """Move the pool's clock to the end of the job's back-off."""
    assert job.backoff_until is not None
    turn(lab)
    PoolClock.objects.filter(pool=lab.pool).update(
        anchor_pool=F("anchor_pool") + max(timedelta(0), job.backoff_until - lab.at)
    )


class TestJobThatKillsItsShim:
    def test_backs_off_longer_each_time_and_finally_fails(self, lab: Cluster) -> None:
        turn(lab)
        job = lab.submit("a", 1, 60, command=[sys.executable, "-c", KILLS_ITS_SHIM])
        client = client_of(job)
        for times in range(1, LIMIT):
            lease = lost(lab, job, times)
            assert lease.number == times, "one lease for each wait"
            assert lease.end_reason == EndReason.LOST
            assert lease.ended_at is not None
            assert job.backoff_until is not None
            assert to_us(job.backoff_until) - to_us(lease.ended_at) == wait_us(times)
            assert state_of(job) == "pending"
            if times == 1:
                self.says_why(client, lab, job)
            pass_time(lab, job)
        lost(lab, job, LIMIT)
        assert (state_of(job), job.exit_code, job.backoff_until) == ("failed", None, None)
        assert Lease.objects.filter(job=job).count() == LIMIT
        assert f"lost {LIMIT} times in a row" in page(client, f"/jobs/{job.uid}/")
        reason = client.get(f"/api/v1/jobs/{job.uid}/why").json()
        assert f"lost {LIMIT} times in a row" in reason["words"]
        rounds = find_rounds(lab.pool.name, [], every=True)
        assert [round_.number for round_ in rounds if not replay_stored_round(round_).same] == []

    def says_why(self, client: Client, lab: Cluster, job: Job) -> None:
        """After the next round, check that the page shows why the job waits, and until when."""

        def is_told() -> bool:
            turn(lab)
            job.refresh_from_db()
            return job.reason_code == "backing_off"

        eventually(is_told)
        assert job.backoff_until is not None
        until = f"{job.backoff_until:%Y-%m-%d %H:%M:%S}"
        assert until in page(client, f"/jobs/{job.uid}/")
        reason = client.get(f"/api/v1/jobs/{job.uid}/why").json()
        assert reason["reason_code"] == "backing_off"
        assert until in reason["words"]
        shown = client.get(f"/api/v1/jobs/{job.uid}").json()
        assert shown["losses"] == 1
        assert shown["backoff_until"]


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())
