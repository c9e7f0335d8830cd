"""Test that a preempting round gives notice once or never, even if it is killed at any point.

tests/integration/test_fault_matrix.py tests all points with all faults. Here the round ends a lease
before its expiry, in a pool whose borrowers pay.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from billing.checks import run_checks
from billing.metering import meter_pool
from billing.models import UsageLine
from evenshare_core.money.fixed_point import charge_micro, to_micro
from evenshare_core.policies import registry
from evenshare_core.units import SECOND_US
from scheduling.models import Intent, Job, Lease, LeaseEvent, LeaseSlot, Round, VirtualWork
from scheduling.selectors.rounds.replay import replay_stored_round
from tenants.models import Budget
from tests.factories import Cluster, cluster
from tests.integration.injected import FAULTS
from tests.integration.test_fault_matrix import step
from tests.stages import Stages
from tests.toy_policy.preempting import POLICY

LONG_S = 40_000
# Before the commit, nothing is stored. After the commit, notice was given.
BEFORE = (
    *("observe.before_commit", "round.after_decide", "round.first_write", "round.mid_write"),
    "round.before_commit",
)
AFTER = (
    *("round.after_commit", "dispatch.before_call", "dispatch.after_call"),
    "dispatch.after_observe",
)


@pytest.fixture(autouse=True)
def policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)


def crowded() -> tuple[Cluster, Job]:
    """Return a pool whose GPUs two jobs of `a` hold, one borrowed; `b` needs its quota now."""
    lab = cluster({"a": 4, "b": 4}, nodes=1, gpus=8, policy=POLICY.name, lease_s=900)
    Budget.objects.filter(tenant=lab.tenants["a"]).update(credit_limit=10_000)
    lab.submit("a", 4, LONG_S)
    step(lab)
    lab.at += timedelta(seconds=10)  # the first round posted this price
    lab.submit("a", 4, LONG_S)
    step(lab)
    assert Lease.objects.filter(state="running").count() == 2
    claim = lab.submit("b", 4, LONG_S)
    lab.at += timedelta(seconds=450)
    return lab, claim


def assert_recovered(lab: Cluster, claim: Job, point: str) -> None:
    """Check that each lease is unchanged or got one notice, and that all jobs finish."""
    notices = LeaseEvent.objects.filter(data__has_key="rule")
    taken = Lease.objects.filter(end_reason="preempted")
    expected = 1 if point in AFTER else 0
    assert notices.count() == taken.count() == expected
    if not expected:
        assert set(Lease.objects.values_list("state", flat=True)) == {"running"}
        assert not Round.objects.filter(number__gt=2).exists()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE scheduling_poolfence SET until = clock_timestamp()")
    for _ in range(2):
        lab.at += timedelta(seconds=10)
        step(lab)
    (notice,) = notices.all()
    (victim,) = taken.all()
    assert (notice.lease_id, notice.data["for_job"]) == (victim.pk, claim.pk)
    # The borrower was preempted; the lease within quota was not.
    assert Lease.objects.get(job=claim).state == "running"
    other = Lease.objects.exclude(pk=victim.pk).get(job__tenant=lab.tenants["a"])
    assert (other.state, other.term) == ("running", 1)
    assert (victim.state, victim.borrowed) == ("ended", 4)
    assert not Intent.objects.filter(state="open").exists()
    held = LeaseSlot.objects.filter(holding=True)
    assert held.count() == held.values("node", "slot").distinct().count() == 8
    assert_charged(victim)
    for round_ in Round.objects.all():
        assert replay_stored_round(round_).same
    numbers = list(LeaseEvent.objects.order_by("number").values_list("number", flat=True))
    assert numbers == list(range(1, len(numbers) + 1))


def assert_charged(victim: Lease) -> None:
    """Check that a preempted lease was charged up to its end, to the micro-credit."""
    assert victim.ended_at is not None
    assert victim.started_at is not None
    assert victim.ended_at < victim.expires_at
    held_us = (victim.ended_at - victim.started_at) // timedelta(microseconds=1)
    assert VirtualWork.objects.get(job=victim.job_id).done_us == held_us
    meter_pool(victim.pool_id)
    (line,) = UsageLine.objects.filter(lease=victim, meter="borrowed")
    assert (line.ends_at, line.gpus) == (victim.ended_at, 4)
    charge = charge_micro(line.gpus, to_micro(line.price), held_us)
    assert to_micro(line.amount) == charge > 0
    assert held_us < 900 * SECOND_US
    assert [check.name for check in run_checks() if check.violations] == []


@pytest.mark.parametrize("fault", ["cut_from_database", "kill_9"])
@pytest.mark.parametrize("point", BEFORE + AFTER)
def test_killed_or_disconnected_preempting_round_recovers(
    stages: Stages, point: str, fault: str
) -> None:
    with stages.copy(crowded) as (lab, claim):
        FAULTS[fault](point, step, lab)
        assert_recovered(lab, claim, point)
