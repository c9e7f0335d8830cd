"""Test that a dry run predicts the next round: whether the job starts, when, and on whose GPUs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from scheduling.models import EqualPeople, Job, Lease, Round
from scheduling.services import dry_run
from scheduling.services.asked_round import AskedRound
from scheduling.services.dry_run import DryRun, dry_run_job
from scheduling.services.next_round import NextRound, next_round
from tenants.models import User
from tests.factories import Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")
LONG_S = 100_000


def full(**fields: Any) -> Cluster:
    """Return a pool of 16 GPUs that one-GPU jobs of `a` and `c` hold; half are the quota of `b`.

    The pool has the default policy. The leases are older than the minimum runtime, and none ends
    soon.
    """
    lab = cluster({"a": 4, "b": 8, "c": 4}, nodes=2, gpus=8, lease_s=7200, **fields)
    for _ in range(8):
        lab.submit("a", 1, LONG_S)
        lab.submit("c", 1, LONG_S)
    lab.round()
    assert Lease.objects.filter(state="running").count() == 16
    lab.round(after_s=1200)
    return lab


def ask(lab: Cluster, tenant: str, gpus: int, **fields: object) -> DryRun:
    spec = {"pool": lab.pool.name, "gpus": gpus, "command": ["true"], **fields}
    return dry_run_job(tenant=lab.tenants[tenant], spec=spec, now=lambda _: lab.now())


@pytest.mark.usefixtures("unhurried")
def test_dry_run_predicts_preemptions_of_round() -> None:
    lab = full(options={"promises": False})
    answer = ask(lab, "b", 4)
    preview = answer.next_round
    assert preview is not None
    counts = Job.objects.count(), Lease.objects.count(), Round.objects.count()
    assert counts == (16, 16, 2)
    job = lab.submit("b", 4, LONG_S)
    lab.round(after_s=10)
    lease = Lease.objects.get(job=job)
    ended = Lease.objects.filter(job__tenant__slug__in="ac").exclude(state="running")
    assert ended.count() == 4
    assert (preview.starts, preview.number, preview.at) == (True, 3, lab.at)
    assert (preview.gpu_type, preview.own, preview.borrowed) == ("v100", lease.own, lease.borrowed)
    assert (preview.preempted.leases, preview.preempted.own_leases) == (ended.count(), 0)
    assert preview.preempted.other_tenants == ended.values("tenant").distinct().count()
    assert answer.feasible
    assert answer.reason_code == ""
    assert "Round 3 would start it" in answer.detail
    assert "4 leases" in answer.detail
    assert "leases end" not in answer.detail


@pytest.mark.usefixtures("unhurried")
def test_dry_run_predicts_reason_for_waiting() -> None:
    lab = full()
    answer = ask(lab, "a", 4)
    job = lab.submit("a", 4, LONG_S)
    lab.round(after_s=10)
    job.refresh_from_db()
    assert job.state == Job.State.PENDING
    preview = answer.next_round
    assert preview is not None
    assert (preview.starts, answer.reason_code) == (False, job.reason_code)
    assert preview.eta.reason  # the duration of these jobs is unknown


def test_fitting_job_waits_if_other_job_comes_first() -> None:
    """GPUs are free, but a job that waited before gets them."""
    lab = cluster({"a": 4, "b": 4}, nodes=1, gpus=8)
    lab.submit("b", 8, LONG_S)
    answer = ask(lab, "a", 8)
    assert answer.next_round is not None
    assert not answer.next_round.starts
    assert answer.reason_code == "lease_turn"


def test_infeasible_job_needs_no_decision() -> None:
    lab = full()
    answer = ask(lab, "b", 99)
    assert (answer.feasible, answer.next_round) == (False, None)


def test_simulation_gets_remaining_time_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation gets the time that is left after the decision.

    A long decision leaves no time.
    """
    lab = full()
    budgets: list[float] = []

    def note(asked: AskedRound, *, budget_s: float, timer: Callable[[], float]) -> NextRound:
        budgets.append(budget_s)
        return next_round(asked, budget_s=0.0, timer=timer)

    monkeypatch.setattr(dry_run, "next_round", note)
    spec = {"pool": lab.pool.name, "gpus": 4, "command": ["true"]}
    for read_s, decided_s in ((0.1, 0.3), (0.1, 0.9), (0.0, 1.4)):
        ticks = iter([0.0, read_s, decided_s])
        answer = dry_run_job(
            tenant=lab.tenants["a"], spec=spec, now=lambda _: lab.now(), timer=ticks.__next__
        )
        assert answer.next_round is not None
        # without these, too little is known for an estimate
        assert answer.next_round.eta.reason == "too_much_work"
    assert budgets == pytest.approx([1.2, 0.3, -0.8])


@pytest.mark.usefixtures("unhurried")
def test_dry_run_predicts_turn_of_person_in_equal_shares() -> None:
    """Ann holds two GPUs, so the two others are Ben's, although her job waited before."""
    lab = cluster({"a": 4}, nodes=1, gpus=4, policy="fifo", lease_s=10)
    EqualPeople.objects.create(pool=lab.pool, tenant=lab.tenants["a"])
    ann, ben = (User.objects.create(username=name) for name in ("ann", "ben"))
    lab.submit("a", 2, LONG_S, submitted_by=ann)
    lab.round()
    lab.submit("a", 2, LONG_S, after_s=1, submitted_by=ann)
    spec = {"pool": lab.pool.name, "gpus": 2, "command": ["true"]}
    lab.at += timedelta(seconds=2)
    starts = []
    for user in (ann, ben):
        answer = dry_run_job(tenant=lab.tenants["a"], user=user, spec=spec, now=lambda _: lab.now())
        assert answer.next_round is not None
        starts.append(answer.next_round.starts)
    assert starts == [False, True]
