"""The certificate's line of quota guarantees: measured without the policy, violated if it fails."""

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
    """A policy that promises the guarantee, and does not keep it."""

    name = "forgetful"

    def decide(self, snapshot: Snapshot) -> Decision:
        """Decide with all preemption switched off."""
        off = {"guarantee": False, "pays": False, "gangs_per_round": 0}
        return super().decide(replace(snapshot, options={**snapshot.options, **off}))


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, Forgetful.name, Forgetful())


def crowded(gpus: int = 4, **fields: Any) -> Snapshot:
    """Tenant 1 holds all eight GPUs in two leases; a job of tenant 2 waits for `gpus`."""
    jobs = [job(1, 4), job(2, 4), job(3, gpus, tenant=2)]
    leases = fields.pop("leases", [running(1, 1, 4), running(2, 1, 4)])
    return pool(jobs, leases, **{"nodes": {1: 8}, "quotas": HALVES, "sums": OWED, **fields})


def certified(asked: Snapshot, policy: str = Forgetful.name) -> CertificateItem:
    asked = replace(asked, policy=policy)
    found = certify_round(asked, decide_round(asked))
    assert not found.failure
    return line(found, Property.QUOTA_GUARANTEE)


class TestAForgottenGuarantee:
    def test_is_violated_and_names_who_was_left_waiting(self) -> None:
        row = certified(crowded())
        assert (row.verdict, row.checked, row.broken) == (Verdict.VIOLATED, 1, (2,))

    def test_holds_under_the_policy_that_gives_it(self) -> None:
        assert certified(crowded(), "evenshare").verdict is Verdict.NOT_APPLICABLE  # no job waits

    def test_is_seen_on_free_gpus_together_with_leases(self) -> None:
        leases = [running(1, 1, 2), running(2, 1, 4)]
        jobs = [job(1, 2), job(2, 4), job(3, 4, tenant=2)]
        quotas = [Entitlement(1, "v100", 2), Entitlement(2, "v100", 6)]
        asked = pool(jobs, leases, nodes={1: 8}, quotas=quotas, sums=OWED)
        assert certified(asked).verdict is Verdict.VIOLATED

    @pytest.mark.parametrize("preset", ["standard", "tight"])
    def test_depends_on_what_was_received_unless_the_preset_is_tight(self, preset: str) -> None:
        sums = {1: (12_000, 10_000), 2: (9_500, 10_000)}
        row = certified(crowded(sums=sums, options={"preset": preset}))
        expected = Verdict.VIOLATED if preset == "tight" else Verdict.NOT_APPLICABLE
        assert row.verdict is expected

    def test_is_seen_for_a_tenant_that_deserved_nothing_yet(self) -> None:
        assert certified(crowded(sums={1: (12_000, 10_000)})).verdict is Verdict.VIOLATED


class TestWhatNobodyPromised:
    def test_is_not_asked_where_the_guarantee_is_off(self) -> None:
        row = certified(crowded(options={"guarantee": False}))
        assert row.verdict is Verdict.NOT_PROMISED

    def test_is_not_asked_of_another_policy(self) -> None:
        asked = replace(crowded(), memory={})
        assert certified(asked, "ltgf").verdict is Verdict.NOT_PROMISED

    def test_is_a_job_above_its_quota(self) -> None:
        assert certified(crowded(5)).verdict is Verdict.NOT_APPLICABLE

    def test_is_a_gang_of_several_nodes(self) -> None:
        quotas = [Entitlement(1, "v100", 4), Entitlement(2, "v100", 12)]
        asked = crowded(12, nodes={1: 8, 2: 8}, quotas=quotas)
        assert certified(asked).verdict is Verdict.NOT_APPLICABLE


class TestWhatCannotBeGiven:
    """The job is owed its GPUs, but no room could be made for it: the guarantee holds."""

    def assert_holds(self, asked: Snapshot) -> None:
        for policy in (Forgetful.name, "evenshare"):
            row = certified(asked, policy)
            assert (row.verdict, row.checked) == (Verdict.HOLDS, 1)

    def test_leases_inside_their_minimum_runtime(self) -> None:
        self.assert_holds(crowded(leases=[running(1, 1, 4, ran_s=299), running(2, 1, 4, ran_s=9)]))

    def test_leases_that_are_protected_for_longer_than_the_options_say(self) -> None:
        leases = [replace(row, protected_until_us=row.expires_us) for row in crowded().leases]
        self.assert_holds(crowded(leases=leases))

    def test_leases_of_a_tenant_that_would_hold_less_than_its_own(self) -> None:
        """Tenant 1 may lose only four of its eight GPUs, but holds all eight in one lease."""
        asked = pool(
            [job(1, 8), job(3, 4, tenant=2)],
            [running(1, 1, 8)],
            nodes={1: 8}, quotas=HALVES, sums=OWED,
        )  # fmt: skip
        self.assert_holds(asked)

    def test_leases_on_several_nodes(self) -> None:
        """Tenant 1 may lose two GPUs on each node, and the job needs three on one node."""
        jobs = [job(1, 2), job(2, 2), job(3, 2), job(4, 2), job(5, 3, tenant=2)]
        leases = [running(1, 1, 2), running(2, 2, 2), running(3, 1, 2), running(4, 2, 2)]
        quotas = [Entitlement(1, "v100", 5), Entitlement(2, "v100", 3)]
        asked = pool(jobs, leases, nodes={1: 4, 2: 4}, quotas=quotas, sums=OWED)
        self.assert_holds(asked)

    def test_smaller_leases_where_a_larger_one_of_the_tenant_ends_first(self) -> None:
        """Of leases of 4, 3 and 1 with a spare of 4, the largest ends, so a gang of 4 fits."""
        jobs = [job(1, 4), job(2, 3), job(3, 1), job(4, 4, tenant=2)]
        leases = [running(1, 1, 4), running(2, 1, 3), running(3, 1, 1)]
        asked = pool(jobs, leases, nodes={1: 8}, quotas=HALVES, sums=OWED)
        assert certified(asked).verdict is Verdict.VIOLATED
        assert certified(asked, "evenshare").verdict is Verdict.NOT_APPLICABLE
