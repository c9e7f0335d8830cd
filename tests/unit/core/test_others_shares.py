"""Test throughputs with other tenants' shares, and of traded quota, by hand-made examples."""

from __future__ import annotations

from typing import Any

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.decision import Decision, Ideal, Swap
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.others_shares import OtherShare, quota_work, with_others_shares
from tests.unit.core.snapshots import job, snapshot


def mixed(jobs_of_first: int = 9) -> Snapshot:
    """Return a pool of 4 slow and 4 fast GPUs; tenant 1 has twice the quota of tenant 2.

    A fast GPU is worth 2 to tenant 1, and 5 to tenant 2.
    """
    first = [job(n, 1, profile=7) for n in range(1, jobs_of_first + 1)]
    second = [job(n, 1, tenant=2, profile=8) for n in range(21, 30)]
    rest: dict[str, Any] = {
        "nodes": (Node(1, "fast", 4), Node(2, "slow", 4)),
        "profiles": (
            Profile(7, 1, (("fast", 2000), ("slow", 1000))),
            Profile(8, 2, (("fast", 5000), ("slow", 1000))),
        ),
    }
    quotas = [Entitlement(t, kind, 4 // t) for t in (1, 2) for kind in ("fast", "slow")]
    whole = snapshot([*first, *second], nodes={}, quotas=quotas)
    return Snapshot(**{name: getattr(whole, name) for name in whole.__struct_fields__} | rest)


# Tenant 1 has all slow GPUs and 2 fast ones, tenant 2 the other fast ones.
SHARES = Decision(
    0, ideals=(Ideal(1, 7, "slow", 4.0), Ideal(1, 7, "fast", 2.0), Ideal(2, 8, "fast", 2.0))
)


class TestOthersShares:
    def test_count_by_weight(self) -> None:
        (one,) = with_others_shares(mixed(), SHARES, 1)
        assert (one.profile, one.own) == (7, 4 + 2 * 2)
        assert one.others == (OtherShare(2, 2 * 2 * 2),)  # twice the quota: 4 fast GPUs
        (two,) = with_others_shares(mixed(), SHARES, 2)
        assert (two.profile, two.own) == (8, 2 * 5)
        assert two.others == (OtherShare(1, 4 / 2 * 1 + 2 / 2 * 5),)

    def test_count_at_most_the_gpus_of_its_jobs(self) -> None:
        (one,) = with_others_shares(mixed(jobs_of_first=3), SHARES, 1)
        assert one.others == (OtherShare(2, 3 * 2),)

    def test_are_empty_without_shares_or_other_tenants(self) -> None:
        assert with_others_shares(mixed(), Decision(0), 1) == ()
        assert with_others_shares(mixed(), SHARES, 3) == ()


class TestQuotaWork:
    def test_values_swapped_gpus_at_own_speeds(self) -> None:
        swaps = (Swap(1, "fast", -1), Swap(1, "slow", 3), Swap(2, "fast", 1), Swap(2, "slow", -3))
        work = quota_work(mixed(), Decision(0, swaps=swaps), 1)
        assert work == (4 * 2 + 4, 3 * 2 + 7)

    def test_is_none_without_trades_of_tenant(self) -> None:
        assert quota_work(mixed(), Decision(0, swaps=(Swap(2, "fast", 1),)), 1) is None
