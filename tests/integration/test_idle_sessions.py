"""Test that idle sessions are warned and then not renewed, in rounds that replay."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scheduling.engine.idle_sessions import follow_sessions
from scheduling.models import Job, Lease, LeaseEvent, PoolFence, Round
from scheduling.outbox.texts import text_of
from scheduling.selectors.rounds.replay import replay_stored_round
from tests.factories import Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")
LEASE_S, IDLE_S = 100, 120


@pytest.fixture
def lab(committed_db: str, tmp_path: Path, settings: Any, monkeypatch: Any) -> Cluster:
    """Return a pool whose simulated jobs count as programs; the test writes their reports."""
    assert committed_db
    settings.LOCAL_ROOT = str(tmp_path)
    from scheduling.engine.executors.virtual import VirtualExecutor

    traits = VirtualExecutor.traits._replace(keeps_files=True)
    monkeypatch.setattr(VirtualExecutor, "traits", traits)
    return cluster({"a": 4, "b": 4}, nodes=1, gpus=4, policy="ltgf", lease_s=LEASE_S)


def session(lab: Cluster, **fields: Any) -> Job:
    return lab.submit("a", 4, 5000, session="notebook", session_idle_s=IDLE_S, **fields)


def reports(job: Job, root: Any, idle_s: float, *, lease: int = 1, **said: Any) -> None:
    """Write the report of a session that was used `idle_s` seconds ago, just now."""
    folder = Path(root) / str(job.pk)
    folder.mkdir(exist_ok=True)
    report = {"version": 1, "lease": lease, "host": "", "port": 0, "idle_s": idle_s, "used_s": 0}
    (folder / "session.json").write_text(json.dumps({**report, "problem": "", **said}))


def warnings(job: Job) -> list[dict[str, Any]]:
    events = LeaseEvent.objects.filter(job=job, kind="idle").order_by("number")
    return list(events.values_list("data", flat=True))


def ends(job: Job) -> list[str]:
    return list(job.leases.order_by("number").values_list("end_reason", flat=True))


class TestIdleSession:
    def test_is_warned_then_not_renewed(self, lab: Cluster, tmp_path: Path) -> None:
        job = session(lab)
        lab.round()
        reports(job, tmp_path, 10)
        lab.round(after_s=50)
        assert warnings(job) == []
        reports(job, tmp_path, 70)
        lab.round(after_s=20)  # at 70: half of the idle time is over
        (data,) = warnings(job)
        assert (data["session"], data["gpus"]) == ("notebook", 4)
        reports(job, tmp_path, 119)
        lab.round(after_s=30)  # at 100: renewed or not by its policy, but not ended as idle
        job.refresh_from_db()
        assert "idle" not in ends(job)

    def test_ends_as_completed_when_its_lease_expires(self, lab: Cluster, tmp_path: Path) -> None:
        job = session(lab)
        lab.round()
        reports(job, tmp_path, 70)
        lab.round(after_s=70)
        assert len(warnings(job)) == 1
        reports(job, tmp_path, 130)
        lab.round(after_s=20)  # at 90: the lease has not expired
        assert ends(job) == [""]
        lab.round(after_s=10)  # at 100: it expires, but it was warned only 30 s ago
        assert ends(job) == [""]
        reports(job, tmp_path, 200)
        lab.rounds(3, every_s=50)  # renewed until 200
        job.refresh_from_db()
        assert ends(job) == ["idle"]
        assert (job.state, job.holds) == ("succeeded", [])
        assert len(warnings(job)) == 1
        assert Lease.objects.get(job=job).expires_at == Lease.objects.get(job=job).ended_at
        for row in Round.objects.all():
            assert replay_stored_round(row).same

    def test_goes_on_once_it_is_used_again(self, lab: Cluster, tmp_path: Path) -> None:
        job = session(lab)
        lab.round()
        reports(job, tmp_path, 70)
        lab.round(after_s=70)
        reports(job, tmp_path, 0)
        lab.rounds(4, every_s=10)
        assert ends(job) == [""]
        reports(job, tmp_path, 65)
        lab.round(after_s=60)
        assert len(warnings(job)) == 2

    def test_without_a_server_is_idle_from_its_start(self, lab: Cluster, tmp_path: Path) -> None:
        job = session(lab)
        lab.round()
        reports(job, tmp_path, 0, lease=9)  # of another lease
        lab.rounds(40, every_s=10)
        job.refresh_from_db()
        assert (job.state, ends(job)) == ("succeeded", ["idle"])

    def test_a_file_that_is_not_written_ages(self, lab: Cluster, tmp_path: Path) -> None:
        job = session(lab)
        lab.round()
        reports(job, tmp_path, 0)
        old = time.time() - 70
        os.utime(tmp_path / str(job.pk) / "session.json", (old, old))
        lab.round(after_s=70)
        assert len(warnings(job)) == 1

    def test_idle_time_is_wall_time(self, lab: Cluster, tmp_path: Path) -> None:
        job = session(lab)
        lab.round()
        at, fence = lab.at, PoolFence.objects.get(pool=lab.pool)
        reports(job, tmp_path, 40)
        follow_sessions(lab.pool, fence.token, at=at + timedelta(seconds=500), scale=10)
        assert warnings(job) == []
        reports(job, tmp_path, 61)
        follow_sessions(lab.pool, fence.token, at=at + timedelta(seconds=700), scale=10)
        assert len(warnings(job)) == 1

    def test_ordinary_job_is_not_asked(self, lab: Cluster, tmp_path: Path) -> None:
        job = lab.submit("a", 4, 5000)
        lab.round()
        reports(job, tmp_path, 1000)
        lab.rounds(20, every_s=20)
        assert (warnings(job), ends(job)) == ([], [""])


def test_messages_name_the_session() -> None:
    job = {"id": "1", "name": "nb", "gpus": 1}
    data = {"event": "idle", "session": "notebook", "since_us": 0, "job": job, "gpus": 1}
    data |= {"pool": "p", "tenant": "t", "gpu_type": "x"}
    assert text_of("job_idle", data).subject == "nb is idle"
    ended = text_of("job_idle", {**data, "event": "ended"})
    assert ended.subject == "nb has ended, because it was idle"
    assert "held" not in ended.sentence
