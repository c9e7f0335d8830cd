"""Test ten faults, each visible in probes, metrics or the operator's page within two rounds.

The faults go through the real tasks. Only the executor that refuses and the broker's address are
fake.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import NamedTuple

import pytest
from django.test import Client

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round
from scheduling import tasks
from scheduling.engine import rounds as engine
from scheduling.engine.clock import set_clock, tick_clock, wall_now
from scheduling.engine.executors.base import ExecutorError, Report
from scheduling.engine.executors.virtual import VirtualExecutor
from scheduling.models import Job, Node, PoolClock, VirtualWork
from tenants.models import Budget, Quota, User
from tests.factories import BEGIN, Cluster, cluster
from tests.stages import staged


def small_pool() -> Cluster:
    """Yield a pool after two rounds, and an operator."""
    lab = cluster({"a": 4, "b": 4}, lease_s=20, policy="ltgf")
    for tenant in ("a", "b"):
        for _ in range(3):
            lab.submit(tenant, 1, 100_000)
    User.objects.create_user("op", site_role="operator")
    for _ in range(2):
        lab.round(after_s=10)
    return lab


lab = staged(small_pool)


class Stage:
    """The pool on the database's own clock, and an operator who views it."""

    def __init__(self, lab: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lab, self.patch = lab, monkeypatch
        self.client = Client()
        self.client.force_login(User.objects.get())
        # Import the pages' modules first, because the import may take longer than a round may be
        # late.
        self.client.get("/operate/")
        self.elapsed = lab.at - BEGIN
        self.show(self.elapsed)

    def rounds(self, count: int) -> None:
        """Make `count` rounds due, and run each as the worker does."""
        for _ in range(count):
            self.elapsed += timedelta(seconds=10)
            self.show(self.elapsed)
            with contextlib.suppress(Exception):
                tasks.run_round(self.lab.pool.pk)

    def show(self, elapsed: timedelta, *, ticked: bool = True) -> None:
        """Set the pool's clock to `elapsed` after its start."""
        wall = wall_now()
        PoolClock.objects.update(anchor_wall=wall, anchor_pool=BEGIN + elapsed)
        if ticked:
            PoolClock.objects.update(seen_wall=wall)


class Fault(NamedTuple):
    """A fault and its symptoms: (check, state), text of the page, metric line."""

    name: str
    happen: Callable[[Stage], None]
    check: tuple[str, str] | None = None
    page: str = ""
    metric: str = ""


class RefusingExecutor(VirtualExecutor):
    """An engine that is down."""

    def launch(self, launches: object) -> list[object]:  # type: ignore[override]  # never returns
        raise ExecutorError("connection refused")


def rounds_stop(stage: Stage) -> None:
    stage.show(stage.elapsed + timedelta(seconds=60))


def ticks_stop(_: Stage) -> None:
    PoolClock.objects.update(seen_wall=wall_now() - timedelta(seconds=60))


def policy_fails(stage: Stage) -> None:
    def broken(_: Snapshot) -> Decision:
        raise ArithmeticError("division by a share of zero")

    stage.patch.setattr(engine, "decide_round", broken)
    stage.rounds(2)


def job_breaks_policy(stage: Stage) -> None:
    bad = stage.lab.submit("a", 1, 10)
    Job.objects.filter(pk=bad.pk).update(submitted_at=BEGIN + stage.elapsed)

    def choosy(snapshot: Snapshot) -> Decision:
        if any(job.id == bad.pk for job in snapshot.jobs):
            raise ArithmeticError("a job that cannot be weighed")
        return decide_round(snapshot)

    stage.patch.setattr(engine, "decide_round", choosy)
    stage.rounds(1)


def executor_refuses(stage: Stage) -> None:
    stage.patch.setattr(engine, "executor_for", lambda _: RefusingExecutor())
    job = stage.lab.submit("a", 1, 10)
    Job.objects.filter(pk=job.pk).update(submitted_at=BEGIN + stage.elapsed)
    stage.rounds(2)


def engine_is_down(stage: Stage) -> None:
    class Down(RefusingExecutor):
        def list(self, pool_id: int, at_us: int) -> list[Report]:
            raise ExecutorError("connection refused")

    stage.patch.setattr(engine, "executor_for", lambda _: Down())
    stage.rounds(6)


def leases_vanish(stage: Stage) -> None:
    VirtualWork.objects.update(token="")
    stage.rounds(1)


def node_is_lost(stage: Stage) -> None:
    Node.objects.filter(pk=Node.objects.order_by("id")[0].pk).update(state="lost")
    stage.rounds(1)


def quotas_exceed(stage: Stage) -> None:
    Quota.objects.filter(tenant__slug="a").update(gpus=400)
    stage.rounds(1)


def budget_is_spent(stage: Stage) -> None:
    Budget.objects.filter(tenant__slug="a").update(credit_limit=Decimal(5), spendable=Decimal(-5))
    stage.rounds(1)


def pool_is_paused(stage: Stage) -> None:
    set_clock(stage.lab.pool.pk, paused=True, reason="operator")


def meter_is_dead(stage: Stage) -> None:
    stage.rounds(2)


def broker_is_away(stage: Stage) -> None:
    from django.conf import settings

    stage.patch.setattr(settings, "REDIS_URL", "unix:///nowhere/valkey.sock?db=0")


FAULTS = [
    Fault("rounds stop", rounds_stop, ("rounds", "failing"), "Rounds late"),
    Fault("ticks stop", ticks_stop, ("ticks", "failing"), "", "tick_age_seconds"),
    Fault("the policy fails", policy_fails, ("rounds", "warning"), "Rounds fail"),
    Fault("a job breaks the policy", job_breaks_policy, None, "Job quarantined"),
    Fault("the executor refuses", executor_refuses, ("intents", "warning"), "", "intents_refused"),
    Fault(
        "the engine is down",
        engine_is_down,
        ("executors", "warning"),
        "Executor does not answer",
        "executor_down",
    ),
    Fault(
        "leases vanish", leases_vanish, ("executors", "warning"), "Leases missing", "losses_frozen"
    ),
    Fault("a node is lost", node_is_lost, None, "Node lost"),
    Fault("quotas exceed capacity", quotas_exceed, None, "Quotas too large"),
    Fault("a budget is spent", budget_is_spent, None, "Credit limit reached"),
    Fault("the pool is paused", pool_is_paused, None, "Pool paused", "pool_paused"),
    Fault("the meter is dead", meter_is_dead, None, "", "meter_lag_events"),
    Fault("the broker is away", broker_is_away, ("broker", "warning"), "", ""),
]


@pytest.fixture
def stage(lab: Cluster, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(lab, monkeypatch)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_visible_in_probes_metrics_or_page(fault: Fault, stage: Stage) -> None:
    page = stage.client.get("/operate/").content.decode()
    assert not fault.page or fault.page not in page
    fault.happen(stage)
    if fault.check:
        name, state = fault.check
        checks = json.loads(stage.client.get("/readyz").content)["checks"]
        assert {check["name"]: check["state"] for check in checks}[name] == state
    if fault.page:
        assert fault.page in stage.client.get("/operate/").content.decode()
    if fault.metric:
        told = stage.client.get("/metrics").content.decode().splitlines()
        line = next(row for row in told if row.startswith(f"evenshare_{fault.metric}{{"))
        assert float(line.rsplit(" ", 1)[1]) > 0


def test_healthy_pool_reports_no_problem(stage: Stage) -> None:
    tick_clock(stage.lab.pool.pk)
    answer = stage.client.get("/readyz")
    assert answer.status_code == 200
    assert {check["state"] for check in json.loads(answer.content)["checks"]} == {"ok"}
