"""Test terms whose lengths the policy sets: the engine's rows, reservations and events."""

from __future__ import annotations

from datetime import timedelta

import pytest

from billing.checks import run_checks
from billing.metering import meter_pool
from evenshare_core.money.fixed_point import to_micro, worst_case_micro
from evenshare_core.policies import registry
from evenshare_core.units import SECOND_US
from scheduling.models import Lease, LeaseTerm, MaintenanceWindow, Node, Pool, Round
from scheduling.selectors.rounds.replay import replay_stored_round
from scheduling.services.pool_export import export_pool
from tenants.models import Budget
from tests.factories import Cluster, cluster
from tests.functional.page_text import sentences
from tests.functional.visitors import town
from tests.toy_policy.lengths import POLICY

pytestmark = pytest.mark.usefixtures("committed_db")
LEAST_S, LEASE_S, MOST_S = 100, 300, 700
LENGTHS_S = {1: MOST_S, 2: LEASE_S, 4: LEAST_S}  # lengths of terms by the job's GPUs


@pytest.fixture(autouse=True)
def policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)


def bounded() -> Cluster:
    """Return a pool whose only tenant has no quota, and pays for all GPUs that its jobs hold."""
    lab = cluster(
        {"a": 0, "b": 7}, nodes=2, gpus=4, policy=POLICY.name, lease_s=LEASE_S,
        least_lease_s=LEAST_S, most_lease_s=MOST_S,
    )  # fmt: skip
    Budget.objects.filter(tenant=lab.tenants["a"]).update(credit_limit=10_000)
    lab.submit("b", 1, 30)
    lab.round()
    for gpus in (1, 2, 4):
        lab.submit("a", gpus, 10_000)
    lab.round(after_s=40)
    return lab


class TestTerm:
    def test_has_length_of_policy_and_is_reserved_for_it(self) -> None:
        lab = bounded()
        leases = {lease.gpus: lease for lease in Lease.objects.filter(state="running")}
        assert leases.keys() == {1, 2, 4}
        whole = 0
        for gpus, lease in leases.items():
            assert lease.expires_at == lab.at + timedelta(seconds=LENGTHS_S[gpus])
            term = LeaseTerm.objects.get(lease=lease)
            assert (term.starts_at, term.expires_at) == (lab.at, lease.expires_at)
            price_micro, lasts_us = to_micro(lease.price), LENGTHS_S[gpus] * SECOND_US
            whole += worst_case_micro(lease.borrowed, price_micro, lasts_us)
        budget = Budget.objects.get(tenant=lab.tenants["a"])
        assert to_micro(budget.reserved) == whole > 0
        lab.round(after_s=LEAST_S)
        lab.round(after_s=LEASE_S)
        # Renewed leases have different lengths. The longest lease is in its first term.
        assert {lease.gpus: lease.term for lease in Lease.objects.filter(state="running")} == {
            1: 1, 2: 2, 4: 3,
        }  # fmt: skip
        last = Lease.objects.get(gpus=4)
        assert last.expires_at == lab.at + timedelta(seconds=LEAST_S)
        meter_pool(lab.pool.pk)
        assert [check.name for check in run_checks() if check.violations] == []
        for round_ in Round.objects.all():
            assert replay_stored_round(round_).same

    def test_does_not_reach_into_maintenance(self) -> None:
        """The longest term would overlap the maintenance, so the node gets no lease at all."""
        lab = cluster({"a": 8}, nodes=1, policy=POLICY.name, lease_s=LEASE_S, most_lease_s=MOST_S)
        begins = lab.at + timedelta(seconds=LEASE_S + 100)
        window = MaintenanceWindow.objects.create(
            pool=lab.pool, node=Node.objects.get(), starts_at=begins,
            ends_at=begins + timedelta(hours=1), reason="fans",
        )  # fmt: skip
        lab.submit("a", 1, 100)
        lab.round()
        assert not Lease.objects.exists()
        window.delete()
        lab.round(after_s=10)
        assert Lease.objects.get().state == "running"

    def test_is_exported_with_its_bounds(self) -> None:
        options = export_pool(bounded().pool.name).options
        for name, bound_s in (("--least-lease-s", LEAST_S), ("--most-lease-s", MOST_S)):
            assert options[options.index(name) + 1] == str(bound_s)


class TestPages:
    def test_show_individual_lease_length(self) -> None:
        there = town()
        Pool.objects.update(policy=POLICY.name, most_lease_s=3600)
        job, plain = there.submit(), there.submit(2)
        there.cluster.pool.refresh_from_db()
        there.play(1)
        page = sentences(there.owner.get(f"/jobs/{job.uid}/").content.decode())
        assert "1 own, for 1 h." in page
        assert "lease length 1 h" in page
        page = sentences(there.owner.get(f"/jobs/{plain.uid}/").content.decode())
        assert "2 own." in page
        assert "lease length 15 min" in page
        shown = {
            row["id"]: row["lease"]["length_s"]
            for row in there.owner.get("/api/v1/jobs").json()["results"]
        }
        assert shown == {str(job.uid): 3600.0, str(plain.uid): 900.0}
        page = sentences(there.owner.get(f"/pools/{job.pool.name}/rounds/1/").content.decode())
        assert page.count("for 1 h") == 1
