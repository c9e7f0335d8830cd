"""Test that an idle lease is given back at its expiry, in rounds that replay and verify."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from scheduling.models import IdleReading, Job, Lease, LeaseEvent, Round, RoundSealing
from scheduling.selectors.rounds.replay import replay_stored_round
from scheduling.services.holds import Side, release_hold
from tenants.audit import Actor
from tenants.models import User
from tests.factories import BEGIN, Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")
LEASE_S, RETURN_S = 60, 30


@pytest.fixture
def lab(committed_db: str) -> Cluster:
    assert committed_db
    return cluster(
        {"a": 4, "b": 4}, nodes=1, gpus=4, policy="ltgf", lease_s=LEASE_S, idle_return_s=RETURN_S
    )


def idles(job: Job, since: datetime, until: datetime) -> None:
    """Store a reading by which the GPUs of the job's newest lease all idle."""
    lease = job.leases.order_by("-number")[0]
    IdleReading.objects.update_or_create(
        lease=lease, defaults={"idle_since": since, "idle_until": until, "read_at": since}
    )


def check_all(lab: Cluster) -> None:
    """Replay every round, seal them, and expect no break between two of them."""
    for row in Round.objects.filter(pool=lab.pool):
        assert replay_stored_round(row).same
    lab.seal()
    assert RoundSealing.objects.get(pool=lab.pool).findings == []


def ends(job: Job) -> list[str]:
    return list(job.leases.order_by("number").values_list("end_reason", flat=True))


def seconds(after_s: int) -> datetime:
    return BEGIN + timedelta(seconds=after_s)


class TestReturn:
    def test_comes_at_the_expiry_and_holds_the_job(self, lab: Cluster) -> None:
        idle, other = lab.submit("a", 4, 1000), lab.submit("b", 4, 200)
        lab.rounds(3, every_s=10)
        idles(idle, seconds(0), seconds(20))
        lab.round(after_s=10)
        idles(idle, seconds(0), seconds(30))
        lab.round(after_s=10)
        assert ends(idle) == [""]  # not before the lease expires
        idles(idle, seconds(0), seconds(50))
        lab.rounds(4, every_s=10)
        idle.refresh_from_db()
        other.refresh_from_db()
        assert ends(idle) == ["idle"]
        assert (idle.state, idle.holds, idle.reason_code) == ("pending", ["idle"], "held_idle")
        assert Lease.objects.get(job=idle).ended_at == seconds(60)
        assert other.state == "running"
        check_all(lab)

    def test_released_job_arrives_and_runs_again(self, lab: Cluster) -> None:
        idle = lab.submit("a", 4, 300)
        lab.round()
        idles(idle, seconds(0), seconds(50))
        lab.at += timedelta(seconds=50)
        lab.rounds(4, every_s=10)
        idle.refresh_from_db()
        assert idle.holds == ["idle"]
        person = User.objects.create(username="ada")
        assert release_hold(job=idle, actor=Actor(person), side=Side.TENANT, now=lab.now())
        lab.rounds(3, every_s=10)
        idle.refresh_from_db()
        assert (idle.state, ends(idle)) == ("running", ["idle", ""])
        check_all(lab)

    def test_does_not_come_to_a_lease_that_works_again(self, lab: Cluster) -> None:
        job = lab.submit("a", 4, 1000)
        lab.round()
        idles(job, seconds(0), seconds(50))
        IdleReading.objects.update(idle_since=None, idle_until=None)
        lab.at += timedelta(seconds=50)
        lab.rounds(4, every_s=10)
        assert ends(job) == [""]

    def test_needs_recent_samples(self, lab: Cluster) -> None:
        job = lab.submit("a", 4, 5000)
        lab.round()
        idles(job, seconds(0), seconds(40))
        lab.at += timedelta(seconds=1000)
        lab.rounds(9, every_s=10)
        assert ends(job) == [""]

    def test_is_off_by_default(self) -> None:
        lab = cluster({"a": 4}, nodes=1, gpus=4, policy="ltgf", lease_s=LEASE_S)
        job = lab.submit("a", 4, 1000)
        lab.round()
        idles(job, seconds(0), seconds(50))
        lab.at += timedelta(seconds=50)
        lab.rounds(4, every_s=10)
        assert ends(job) == [""]
        assert not LeaseEvent.objects.filter(kind="stop_asked").exists()

    def test_does_not_come_to_profiling_run(self, lab: Cluster) -> None:
        profile = lab.profile("a", "gru", v100=1000)
        run = lab.submit("a", 1, 1000, profile=profile, profiling_s=500)
        lab.round()
        idles(run, seconds(0), seconds(50))
        lab.at += timedelta(seconds=50)
        lab.rounds(4, every_s=10)
        assert "idle" not in ends(run)

    def test_cancelled_job_is_not_held(self, lab: Cluster) -> None:
        job = lab.submit("a", 4, 1000)
        lab.round()
        idles(job, seconds(0), seconds(50))
        lab.at += timedelta(seconds=50)
        Job.objects.filter(pk=job.pk).update(cancel_asked_at=seconds(50))
        lab.rounds(3, every_s=10)
        job.refresh_from_db()
        assert (job.state, job.holds) == ("cancelled", [])
