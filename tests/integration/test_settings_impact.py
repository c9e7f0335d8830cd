"""Test the preview of a pool's settings, which decides the next round and writes nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from scheduling.engine.snapshots import next_number, read_snapshot
from scheduling.models import Pool, Round
from scheduling.services.pools import change_pool
from scheduling.services.round_impact import RoundCounts
from scheduling.services.settings_impact import SettingsImpact, settings_impact, with_settings
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError
from tenants.models import AuditRecord, User
from tests.factories import Cluster, cluster
from tests.stages import staged
from tests.tiers import SITE_POLICIES

LENGTHS = {
    "round_s": 10, "lease_s": 20, "least_lease_s": 0, "most_lease_s": 0, "grace_s": 30,
    "outage_grace_s": 3600, "profiling_s": 0, "idle_warn_s": 1800, "idle_return_s": 0,
}  # fmt: skip


def crowded() -> Cluster:
    """Return two tenants whose jobs, including a gang, compete for 8 GPUs; all leases end now."""
    lab = cluster({"a": 4, "b": 4}, nodes=2, gpus=4, lease_s=20, policy="ltgf")
    for _ in range(6):
        lab.submit("a", 1, 100_000)
    lab.round()
    lab.submit("a", 4, 50_000)
    for _ in range(5):
        lab.submit("b", 1, 100_000)
    lab.at += timedelta(seconds=10)
    lab.round()
    lab.at += timedelta(seconds=2)
    return lab


lab = staged(crowded)


def estimate(lab: Cluster, policy: str, **changed: Any) -> SettingsImpact:
    options = changed.pop("options", {})
    lengths = {**LENGTHS, **changed}
    return settings_impact(
        pool_id=lab.pool.pk, now=lab.now(), policy=policy, options=options, lengths=lengths
    )


class TestPreview:
    @pytest.mark.parametrize("policy", sorted(SITE_POLICIES))
    def test_matches_next_round(self, lab: Cluster, policy: str) -> None:
        """tests/integration/test_policy_comparison.py covers every policy."""
        impact = estimate(lab, policy, lease_s=40)
        assert impact.error == ""
        change_pool(
            actor=Actor(User.objects.create(username="otto", site_role="operator")),
            pool_id=lab.pool.pk,
            policy=policy,
            options={},
            lengths={**LENGTHS, "lease_s": 40},
            visibility="own",
        )
        result = lab.round(after_s=8)
        assert result.round is not None
        assert (result.round.number, result.round.at) == (impact.number, impact.at)
        shares = {(row["tenant"], row["gpu_type"]): row for row in result.round.shares}
        assert {(row.tenant, row.gpu_type) for row in impact.rows} == set(shares)
        for row in impact.rows:
            share = shares[row.tenant, row.gpu_type]
            assert row.after.got == share["own"] + share["borrowed"]
            assert row.after.borrowed == share["borrowed"]
            assert row.after.rho == share["rho_after"]
        applied = result.round.summary
        assert impact.after._asdict() == {name: applied[name] for name in RoundCounts._fields}

    def test_shows_effect_of_other_policy(self, lab: Cluster) -> None:
        """First in, first out continues with jobs of a. By GPU-time received, b is next."""
        impact = estimate(lab, "fifo")
        a, b = (lab.tenants[name].pk for name in "ab")
        holds = {row.tenant: (row.before.got, row.after.got) for row in impact.rows}
        assert holds[b][0] > holds[b][1]
        assert holds[a][0] < holds[a][1]
        assert impact.before != impact.after
        assert not impact.same

    def test_current_settings_change_nothing(self, lab: Cluster) -> None:
        snapshot = read_snapshot(lab.pool.pk, number=next_number(lab.pool.pk), at=lab.at)
        pool = Pool.objects.get(pk=lab.pool.pk)
        same = with_settings(
            snapshot,
            policy=pool.policy,
            options=pool.options,
            round_s=pool.round_s,
            lease_s=pool.lease_s,
        )
        assert same == snapshot
        impact = estimate(lab, pool.policy)
        assert not any(row.differs for row in impact.rows)
        assert impact.same
        assert not estimate(lab, pool.policy, lease_s=600).same, "its terms are longer"
        assert all(one.before == one.after for one in impact.prices)

    def test_other_policy_starts_without_memory(self, lab: Cluster) -> None:
        snapshot = read_snapshot(lab.pool.pk, number=next_number(lab.pool.pk), at=lab.at)
        known = msgspec.structs.replace(snapshot, memory={"kept": 1})
        for policy, memory in (("fifo", {}), (known.policy, {"kept": 1})):
            other = with_settings(known, policy=policy, options={}, round_s=10, lease_s=20)
            assert other.memory == memory

    def test_writes_nothing(self, lab: Cluster) -> None:
        pools, rounds = list(Pool.objects.values()), Round.objects.count()
        estimate(lab, "fifo", lease_s=600)
        assert list(Pool.objects.values()) == pools
        assert Round.objects.count() == rounds
        assert not AuditRecord.objects.exists()

    def test_names_every_invalid_field(self, lab: Cluster) -> None:
        with pytest.raises(InvalidInputError) as raised:
            estimate(lab, "ltgf", lease_s=0, options={"lease_bonus": "lots"})
        assert set(raised.value.by_field) == {"lease_s", "options.lease_bonus"}
