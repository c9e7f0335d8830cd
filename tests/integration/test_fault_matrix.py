"""Test that each fault (exception, kill -9, database cut) at each point heals within two rounds.

A test fails if its point is not reached, so the list of points stays correct.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from billing.checks import run_checks
from billing.ledger import open_book, post_allowance
from billing.metering import log_transfers, meter_pool, settle_pool
from billing.models import Book
from evenshare_core.chain.records import read_record
from scheduling.engine.rounds import execute_round
from scheduling.engine.seal import seal_rounds
from scheduling.models import (
    Intent,
    Job,
    Lease,
    LeaseEvent,
    LeaseSlot,
    Measurement,
    Message,
    MetricHistory,
    Sweep,
    VirtualSpeeds,
)
from tenants import transparency
from tenants.faults import POINTS
from tests.factories import Cluster, cluster
from tests.integration.archive_stage import LONG_AGO, keep_files
from tests.integration.injected import FAULTS
from tests.integration.outbox_stage import notify, person, subscribe
from tests.stages import Stages

WORK_S = 45
# The job runs an iteration per second, and evaluates its metric in each.
BY_METRIC: dict[str, Any] = {
    "iterations": 100, "stop_metric": "loss", "stop_rule": "at_most", "stop_value": 1,
}  # fmt: skip


def eventful_cluster() -> Cluster:
    """Return a pool whose round reaches every point: leases end, wait, are renewed or cancelled."""
    lab = cluster(
        {"a": 5, "b": 3}, lease_s=20, grace_s=1, policy="ltgf", profiling_s=20, begin=LONG_AGO
    )
    post_allowance(
        book=open_book(lab.pool.book),
        tenant_id=lab.tenants["a"].pk,
        amount_micro=1_000_000,
        effective_at=lab.at,
        name="to be logged",
    )
    profile = lab.profile("a", "net", v100=1000)
    VirtualSpeeds.objects.create(
        profile=profile, tenant=profile.tenant, speedups={"v100": 1000}, iteration_us=10**6
    )
    ada = person("ada", lab.tenants["a"])
    subscribe(ada, lab.tenants["a"], is_own=False)
    for gpus in (1, 2, 3, 4):
        lab.submit("a", gpus, WORK_S, profile=profile, gpu_types=["v100"], **BY_METRIC)
        lab.submit("b", gpus, WORK_S)
    lab.round()
    # An hour passes, so that an hour can be settled and the earlier leases are due.
    lab.at += timedelta(seconds=3600)
    lab.submit("b", 1, WORK_S)
    doomed = lab.submit("a", 1, 10_000)
    lab.round()
    lab.at += timedelta(seconds=20)
    Job.objects.filter(pk=doomed.pk).update(cancel_asked_at=lab.at)
    _next_of_sweep(lab, lab.submit("a", 1, WORK_S))
    return lab


def _next_of_sweep(lab: Cluster, job: Job) -> None:
    """Make a job the last one of a sweep; all others have ended, so its turn has come."""
    sweep = Sweep.objects.create(
        tenant=job.tenant, pool=lab.pool, name="sweep", submitted_at=lab.at, created_at=lab.at,
        spec={}, at_once=1,
    )  # fmt: skip
    Job.objects.filter(pk=job.pk).update(sweep=sweep, sweep_index=1, holds=["sweep"])


def step(lab: Cluster) -> None:
    """Run a round, its sealing, and the meter, as the workers do."""
    execute_round(lab.pool.pk, now=lab.now())
    seal_rounds(lab.pool.pk)
    meter_pool(lab.pool.pk)
    settle_pool(lab.pool.pk)
    for book in Book.objects.all():
        log_transfers(book)
    keep_files(lab.pool)
    notify(lab.pool.pk, lab.at)


def assert_heals(lab: Cluster) -> None:
    """Check that two rounds complete all steps, that all jobs finish, and that the books add up."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE scheduling_poolfence SET until = clock_timestamp()")
    for _ in range(2):
        lab.at += timedelta(seconds=10)
        step(lab)
    assert not lab.pool.jobs.exclude(holds=[]).exists()
    assert not Intent.objects.filter(state="open").exists()
    assert not Lease.objects.filter(state__in=("launching", "stopping", "waiting")).exists()
    held = LeaseSlot.objects.filter(holding=True)
    assert held.count() == held.values("node", "slot").distinct().count()
    jobs = lab.pool.jobs
    for _ in range(30):
        if not jobs.filter(state__in=Job.ACTIVE_STATES).exists():
            break
        lab.at += timedelta(seconds=60)
        step(lab)
    assert jobs.filter(state="cancelled").count() == 1
    assert set(jobs.exclude(state="cancelled").values_list("state", flat=True)) == {"succeeded"}
    # No work was done twice or lost: the work done equals the size of the jobs.
    done = jobs.exclude(state="cancelled").values_list("virtual_work__done_us", flat=True)
    assert set(done) == {WORK_S * 1_000_000}
    # No work was measured twice; an iteration is a second of work.
    assert sum(Measurement.objects.values_list("iterations", flat=True)) <= 4 * WORK_S
    assert set(Measurement.objects.values_list("mean", flat=True)) <= {10**9}
    # No evaluation of a metric was lost, including the last one.
    seen = MetricHistory.objects.values_list("evaluations", "iteration", "is_met")
    assert set(seen) == {(WORK_S, WORK_S, True)}
    numbers = list(LeaseEvent.objects.order_by("number").values_list("number", flat=True))
    assert numbers == list(range(1, len(numbers) + 1))
    lab.at += timedelta(hours=2)
    step(lab)
    # The end of each job that ran was announced once, and no message waits.
    of_jobs = Message.objects.filter(kind="job_ended").values_list("job", flat=True)
    of_tenant = jobs.filter(tenant__slug="a", state="succeeded", profiling_s=0)
    assert sorted(of_jobs) == sorted(of_tenant.values_list("id", flat=True))
    assert set(Message.objects.values_list("state", flat=True)) == {"sent"}
    assert [check.name for check in run_checks() if check.violations] == []
    # Each round has its record, in order, and follows from the previous round.
    entries = transparency.entries(transparency.round_log(lab.pool.name), 0, 1000)
    records = [read_record(entry.record) for entry in entries]
    assert [row.round for row in records] == list(range(1, lab.pool.rounds.count() + 1))
    assert [row for row in records if row.damage or row.breaks] == []


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("point", POINTS)
def test_every_fault_at_every_point_is_healed(stages: Stages, point: str, fault: str) -> None:
    with stages.copy(eventful_cluster) as lab:
        FAULTS[fault](point, step, lab)
        assert_heals(lab)
