"""Test an executor with a wrong clock.

No lease starts before its GPUs are free, and none ends before it starts or after the query.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import timedelta

import pytest

from billing.checks import run_checks
from billing.metering import meter_pool, settle_pool
from billing.models import UsageLine
from evenshare_core.units import SECOND_US
from scheduling.engine import rounds as engine
from scheduling.engine.executors.base import ExecutorError, Launch, Report, ReportState, Stop
from scheduling.engine.executors.virtual import VirtualExecutor
from scheduling.models import Job, Lease
from tests.factories import cluster

pytestmark = pytest.mark.usefixtures("committed_db")

HOUR_S = 3600
# In the class body, `list` would mean the protocol's method.
Reports = list[Report]


class ShiftedExecutor(VirtualExecutor):
    """An executor that shifts all times in its reports by some seconds."""

    def __init__(self, start_s: int, end_s: int) -> None:
        self._start_us, self._end_us = start_s * SECOND_US, end_s * SECOND_US

    def launch(self, launches: Sequence[Launch]) -> list[Report]:
        return self._shifted(super().launch(launches))

    def stop(self, stops: Sequence[Stop]) -> list[Report]:
        return self._shifted(super().stop(stops))

    def list(self, pool_id: int, at_us: int) -> list[Report]:
        return self._shifted(super().list(pool_id, at_us))

    def _shifted(self, reports: Sequence[Report]) -> Reports:
        return [
            dataclasses.replace(
                report,
                started_us=report.started_us + self._start_us,
                ended_us=None if report.ended_us is None else report.ended_us + self._end_us,
            )
            for report in reports
        ]


@pytest.mark.parametrize(
    ("start_s", "end_s"),
    [
        *((-2 * HOUR_S, -2 * HOUR_S), (-1, -1), (1, 1), (2 * HOUR_S, 2 * HOUR_S)),
        *((-2 * HOUR_S, 2 * HOUR_S), (2 * HOUR_S, -2 * HOUR_S), (-(10**12), 10**12)),
    ],
)
def test_books_and_slots_hold_for_any_reported_time(
    monkeypatch: pytest.MonkeyPatch, start_s: int, end_s: int
) -> None:
    executor = ShiftedExecutor(start_s, end_s)
    monkeypatch.setattr(engine, "executor_for", lambda _: executor)
    lab = cluster({"a": 4, "b": 4}, nodes=1, gpus=8, lease_s=20, policy="ltgf")
    lab.submit("a", 8, 45)
    lab.round()
    lab.submit("b", 8, 25)
    lab.submit("b", 3, 5)
    for _ in range(14):
        lab.round(after_s=10)
    leases = list(Lease.objects.order_by("id"))
    assert len(leases) >= 4
    for lease in leases:
        assert lease.started_at is not None
        assert lease.granted_at <= lease.started_at <= (lease.ended_at or lab.at) <= lab.at
    meter_pool(lab.pool.pk)
    settle_pool(lab.pool.pk)
    assert [line for check in run_checks() for line in check.violations] == []


def test_end_reported_after_renewal_is_not_before_renewal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine did not answer before the renewal, so charged and held time must agree."""
    lab = cluster({"a": 8}, lease_s=20, policy="ltgf")
    lab.submit("a", 2, 15)
    lab.round()

    def silent(*_: object) -> None:
        raise ExecutorError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(VirtualExecutor, "list", silent)
        lab.round(after_s=20)
    lab.round(after_s=10)
    meter_pool(lab.pool.pk)
    lease = Lease.objects.get()
    assert (lease.state, lease.term) == ("ended", 2)
    assert lease.started_at is not None
    assert lease.ended_at == lease.started_at + timedelta(seconds=20)
    lines = UsageLine.objects.filter(lease=lease)
    used = [(line.ends_at - line.starts_at).total_seconds() for line in lines]
    assert sum(used) == 20
    assert [check.name for check in run_checks() if check.violations] == []


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_start_reported_after_renewal_or_stop_is_charged_as_recorded(
    monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    """The engine accepted a launch, then was silent while the lease was renewed or taken back."""
    lab = cluster({"a": 8}, lease_s=20, policy="ltgf")
    job = lab.submit("a", 8, 15)
    launch = VirtualExecutor.launch

    def accept(self: VirtualExecutor, launches: Sequence[Launch]) -> list[Report]:
        reports = launch(self, launches)
        return [dataclasses.replace(one, state=ReportState.ACCEPTED) for one in reports]

    def silent(*_: object) -> None:
        raise ExecutorError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(VirtualExecutor, "launch", accept)
        lab.round()
        patch.setattr(VirtualExecutor, "list", silent)
        patch.setattr(VirtualExecutor, "stop", silent)
        if is_cancelled:
            Job.objects.filter(pk=job.pk).update(cancel_asked_at=lab.at)
        lab.round(after_s=20)
    for _ in range(3):
        lab.round(after_s=10)
    meter_pool(lab.pool.pk)
    lease = Lease.objects.order_by("id")[0]
    assert (lease.state, lease.term) == ("ended", 1 if is_cancelled else 2)
    assert lease.started_at is not None
    assert lease.ended_at is not None
    lines = UsageLine.objects.filter(lease=lease)
    used = sum((line.ends_at - line.starts_at for line in lines), timedelta(0))
    assert used == lease.ended_at - lease.started_at
    assert [check.name for check in run_checks() if check.violations] == []
