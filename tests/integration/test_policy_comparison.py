"""Test the next round under every policy, without writing anything."""

from __future__ import annotations

import pytest

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.registry import POLICIES
from portal.operate.views.policies import needs, preempts_text
from scheduling.engine.snapshots import next_instant, next_number, read_snapshot
from scheduling.models import Lease, Pool, Round
from scheduling.services.policy_comparison import compare_policies, outcomes_of
from tests.factories import Cluster
from tests.functional.test_operator import page
from tests.functional.visitors import town
from tests.integration.test_settings_impact import crowded
from tests.stages import staged
from tests.tools import PATIENCE_S

lab = staged(crowded)


def snapshot_of(lab: Cluster) -> Snapshot:
    """Return the snapshot of the pool's next round, in which all leases end."""
    at = next_instant(lab.pool.pk, lab.now())
    return read_snapshot(lab.pool.pk, number=next_number(lab.pool.pk), at=at)


class TestComparison:
    def test_matches_decision_of_each_policy(self, lab: Cluster) -> None:
        compared = {row.policy: row for row in outcomes_of(snapshot_of(lab), POLICIES, PATIENCE_S)}
        assert sorted(compared) == sorted(POLICIES)
        for name in POLICIES:
            Pool.objects.update(policy=name, options={})
            decision = decide_round(snapshot_of(lab))
            row = compared[name]
            assert not row.error
            assert row.counts[:3] == (
                len(decision.grants), len(decision.renewals), len(decision.ends)
            )  # fmt: skip
            assert row.held == sum(share.own + share.borrowed for share in decision.shares)
            assert row.counts.waiting == sum(len(skip.jobs) for skip in decision.skips)
            assert row.took_ms > 0
        assert len({row.counts[:3] for row in compared.values()}) > 1

    def test_writes_nothing(self, lab: Cluster) -> None:
        before = (Round.objects.count(), Lease.objects.count(), Pool.objects.values().get())
        compared = compare_policies(pool_id=lab.pool.pk, now=lab.now())
        assert (Round.objects.count(), Lease.objects.count(), Pool.objects.values().get()) == before
        assert (compared.number, compared.gpus) == (3, 8)

    def test_reports_failing_policy_and_compares_others(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(_: Snapshot) -> Decision:
            raise ZeroDivisionError("by nothing")

        monkeypatch.setattr(POLICIES["sjf"], "decide", fails)
        compared = {row.policy: row for row in outcomes_of(snapshot_of(lab), POLICIES, PATIENCE_S)}
        assert compared["sjf"].error == "ZeroDivisionError: by nothing"
        assert [name for name, row in compared.items() if row.error] == ["sjf"]

    def test_skips_other_policies_after_time_limit(self, lab: Cluster) -> None:
        compared = outcomes_of(snapshot_of(lab), POLICIES, 0)
        decided = [row.policy for row in compared if not row.error]
        assert decided == ["ltgf"]
        assert all(
            row.error == "Skipped: the other policies took 0 s." for row in compared if row.error
        )


class TestComparisonPage:
    @pytest.mark.usefixtures("committed_db", "unhurried")
    def test_describes_each_policy_and_decides_on_request(self) -> None:
        there = town()
        there.submit()
        there.play(1)
        path = f"/operate/pools/{there.cluster.pool.name}/policies/"
        shown = page(there.operator, path)
        for name, policy in POLICIES.items():
            assert policy.suits.endswith(".")
            assert policy.suits in shown
            assert f"?policy={name}" in shown
        assert 'id="t-round"' not in shown
        assert "guaranteed within" in shown
        decided = page(there.operator, f"{path}?decide=1")
        assert 'id="t-round"' in decided
        assert decided.count('data-label="Took, ms"') == len(POLICIES)
        assert Round.objects.count() == 1

    def test_shows_preemption_and_required_data(self) -> None:
        texts = {name: preempts_text(policy.traits) for name, policy in POLICIES.items()}
        assert (texts["evenshare"], texts["ltgf"], texts["fifo"]) == (
            "with notice", "when a lease ends", "never",
        )  # fmt: skip
        assert needs(POLICIES["srtf"].traits) == ("estimates",)
        assert needs(POLICIES["oef"].traits) == ("speeds by GPU type",)
        assert needs(POLICIES["fifo"].traits) == ()
