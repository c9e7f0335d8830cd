"""Test a certificate's quota guarantees: measured without the policy, violated if broken."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import CertificateItem, Property, Verdict
from evenshare_core.policies import registry
from evenshare_core.policies.base import certify_round, decide_round
from evenshare_core.policies.evenshare.policy import Evenshare
from tests.papers.evenshare_pools import pool, running
from tests.unit.core.certificates import line
from tests.unit.core.snapshots import job

HALVES = [Entitlement(1, "v100", 4), Entitlement(2, "v100", 4)]
# tenant 2 received 90 % of the GPU-time that it deserved
OWED = {1: (12_000, 10_000), 2: (9_000, 10_000)}


class Forgetful(Evenshare):
    """A policy that promises the guarantee and breaks it."""

    name = "forgetful"

    def decide(self, snapshot: Snapshot) -> Decision:
        """Decide without any preemption."""
        off = {"guarantee": False, "pays": False, "gangs_per_round": 0}
        return super().decide(replace(snapshot, options={**snapshot.options, **off}))


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, Forgetful.name, Forgetful())


def crowded(gpus: int = 4, **fields: Any) -> Snapshot:
    """Return a round: tenant 1 holds all 8 GPUs in two leases, tenant 2's job waits for `gpus`."""
    jobs = [job(1, 4), job(2, 4), job(3, gpus, tenant=2)]
    leases = fields.pop("leases", [running(1, 1, 4), running(2, 1, 4)])
    return pool(jobs, leases, **{"nodes": {1: 8}, "quotas": HALVES, "sums": OWED, **fields})


def certified(asked: Snapshot, policy: str = Forgetful.name) -> CertificateItem:
    asked = replace(asked, policy=policy)
    found = certify_round(asked, decide_round(asked))
    assert not found.failure
    return line(found, Property.QUOTA_GUARANTEE)


class TestBrokenGuarantee:
    def test_is_violated_and_names_waiting_tenant(self) -> None:
        row = certified(crowded())
        assert (row.verdict, row.checked, row.broken) == (Verdict.VIOLATED, 1, (2,))

    def test_policy_with_guarantee_leaves_no_job_waiting(self) -> None:
        assert certified(crowded(), "evenshare").verdict is Verdict.NOT_APPLICABLE  # no job waits

    def test_is_violated_if_free_gpus_and_leases_suffice(self) -> None:
        leases = [running(1, 1, 2), running(2, 1, 4)]
        jobs = [job(1, 2), job(2, 4), job(3, 4, tenant=2)]
        quotas = [Entitlement(1, "v100", 2), Entitlement(2, "v100", 6)]
        asked = pool(jobs, leases, nodes={1: 8}, quotas=quotas, sums=OWED)
        assert certified(asked).verdict is Verdict.VIOLATED

    @pytest.mark.parametrize("preset", ["standard", "tight"])
    def test_past_use_matters_unless_preset_is_tight(self, preset: str) -> None:
        sums = {1: (12_000, 10_000), 2: (9_500, 10_000)}
        row = certified(crowded(sums=sums, options={"preset": preset}))
        expected = Verdict.VIOLATED if preset == "tight" else Verdict.NOT_APPLICABLE
        assert row.verdict is expected

    def test_is_violated_for_tenant_without_deserved_time(self) -> None:
        assert certified(crowded(sums={1: (12_000, 10_000)})).verdict is Verdict.VIOLATED


class TestGuaranteeScope:
    def test_is_not_promised_if_option_is_off(self) -> None:
        row = certified(crowded(options={"guarantee": False}))
        assert row.verdict is Verdict.NOT_PROMISED

    def test_is_not_promised_by_other_policies(self) -> None:
        asked = replace(crowded(), memory={}, options={})
        assert certified(asked, "ltgf").verdict is Verdict.NOT_PROMISED

    def test_does_not_cover_job_above_quota(self) -> None:
        assert certified(crowded(5)).verdict is Verdict.NOT_APPLICABLE

    def test_does_not_cover_gang_over_several_nodes(self) -> None:
        quotas = [Entitlement(1, "v100", 4), Entitlement(2, "v100", 12)]
        asked = crowded(12, nodes={1: 8, 2: 8}, quotas=quotas)
        assert certified(asked).verdict is Verdict.NOT_APPLICABLE


class TestUnpreemptibleLeases:
    """A job is owed GPUs, but no allowed preemption could free them, so the guarantee holds."""

    def assert_holds(self, asked: Snapshot) -> None:
        for policy in (Forgetful.name, "evenshare"):
            row = certified(asked, policy)
            assert (row.verdict, row.checked) == (Verdict.HOLDS, 1)

    def test_holds_if_leases_are_within_minimum_runtime(self) -> None:
        self.assert_holds(crowded(leases=[running(1, 1, 4, ran_s=299), running(2, 1, 4, ran_s=9)]))

    def test_holds_if_leases_are_protected_longer_than_options(self) -> None:
        leases = [replace(row, protected_until_us=row.expires_us) for row in crowded().leases]
        self.assert_holds(crowded(leases=leases))

    def test_holds_if_preemption_would_cut_own_quota(self) -> None:
        """Tenant 1 may lose only four of its eight GPUs, but one lease holds all eight."""
        asked = pool(
            [job(1, 8), job(3, 4, tenant=2)],
            [running(1, 1, 8)],
            nodes={1: 8}, quotas=HALVES, sums=OWED,
        )  # fmt: skip
        self.assert_holds(asked)

    def test_holds_if_spare_gpus_are_on_different_nodes(self) -> None:
        """Tenant 1 may lose two GPUs on each node, and the job needs three on one node."""
        jobs = [job(1, 2), job(2, 2), job(3, 2), job(4, 2), job(5, 3, tenant=2)]
        leases = [running(1, 1, 2), running(2, 2, 2), running(3, 1, 2), running(4, 2, 2)]
        quotas = [Entitlement(1, "v100", 5), Entitlement(2, "v100", 3)]
        asked = pool(jobs, leases, nodes={1: 4, 2: 4}, quotas=quotas, sums=OWED)
        self.assert_holds(asked)

    def test_largest_preemptible_lease_ends_first(self) -> None:
        """Tenant 1 may lose 4 of 4 + 3 + 1 GPUs, so its largest lease ends and a gang of 4 fits."""
        jobs = [job(1, 4), job(2, 3), job(3, 1), job(4, 4, tenant=2)]
        leases = [running(1, 1, 4), running(2, 1, 3), running(3, 1, 1)]
        asked = pool(jobs, leases, nodes={1: 8}, quotas=HALVES, sums=OWED)
        assert certified(asked).verdict is Verdict.VIOLATED
        assert certified(asked, "evenshare").verdict is Verdict.NOT_APPLICABLE
