"""Test that a quota is valid from the round that applies it, for deserved GPU-time and income."""

from __future__ import annotations

from datetime import timedelta

import pytest

from billing.checks import run_checks
from billing.metering import meter_pool
from billing.models import UsageLine
from evenshare_core.domain.instants import to_us
from evenshare_core.units import SECOND_US
from scheduling.models import LeaseEvent
from tenants.models import Quota
from tests.factories import BEGIN, Cluster, cluster
from tests.round_states import sums_of

pytestmark = pytest.mark.usefixtures("committed_db")


def change(lab: Cluster, tenant: str, gpus: int, after_s: int) -> None:
    """End a tenant's quota after `after_s`, and start another one at that time."""
    edge = BEGIN + timedelta(seconds=after_s)
    former = Quota.objects.get(tenant=lab.tenants[tenant], valid_until=None)
    former.valid_until = edge
    former.save()
    Quota.objects.create(
        tenant=lab.tenants[tenant], pool=lab.pool, gpu_type=lab.gpu_type, gpus=gpus, valid_from=edge
    )


def entitled(lab: Cluster) -> tuple[int, dict[int, int]]:
    """Return the time of the fairness sums, and each tenant's quota integral in GPU-us."""
    service = sums_of(lab.pool)
    at_us = service.at_us
    return at_us, {
        claim.tenant: claim.entitled_gpu_us + claim.quota * (at_us - claim.since_us)
        for claim in service.claims
    }


def entitled_by_events(until_us: int) -> dict[int, int]:
    """Return the same integrals, computed from the events on which income is based."""
    sums: dict[int, int] = {}
    for event in LeaseEvent.objects.filter(kind="entitled").order_by("-number"):
        for tenant, (gpus, _) in event.data["quotas"].items():
            added = gpus * (until_us - to_us(event.at))
            sums[int(tenant)] = sums.get(int(tenant), 0) + added
        until_us = to_us(event.at)
    return sums


def story() -> Cluster:
    """Let a borrow a GPU from 10 s to 110 s; b's quota ends at 33 s as planned, c's at 47 s."""
    lab = cluster({"a": 4, "b": 2, "c": 2})
    change(lab, "b", 1, 33)
    lab.submit("a", 4, 1000)
    lab.round()
    lab.submit("a", 1, 100)
    for second in range(10, 140, 10):
        if second == 50:
            change(lab, "c", 1, 47)
        lab.round(after_s=10)
    return lab


class TestChangeBetweenRounds:
    def test_counts_from_next_round_for_fairness_and_money(self) -> None:
        lab = story()
        events = LeaseEvent.objects.filter(kind="entitled").order_by("number")
        told = [(event.at - BEGIN).total_seconds() for event in events]
        assert told == [0, 40, 50]
        last_us, sums = entitled(lab)
        assert sums == entitled_by_events(last_us)
        begin_us = to_us(BEGIN)
        assert last_us == begin_us + 110 * SECOND_US
        assert sums[lab.tenants["b"].pk] == (2 * 40 + 1 * 70) * SECOND_US
        assert sums[lab.tenants["c"].pk] == (2 * 50 + 1 * 60) * SECOND_US

    def test_splits_charge_at_next_round_only(self) -> None:
        lab = story()
        meter_pool(lab.pool.pk)
        line = UsageLine.objects.get(meter="borrowed")
        held = (line.starts_at - BEGIN, line.ends_at - BEGIN)
        assert held == (timedelta(seconds=10), timedelta(seconds=110))
        weights = dict(line.shares.values_list("account__tenant__slug", "weight"))
        # Of 4 idle GPUs, b has 2, 1, 1; c has 2, 2, 1; the operator has 0, 1, 2; for 30, 10 and 60
        # s.
        assert weights == {"b": 13, "c": 14, None: 13}
        assert [what for result in run_checks() for what in result.violations] == []
