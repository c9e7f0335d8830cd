"""Test that no policy lends quota that its tenant reserves, by grant or by renewal.

In these pools, only tenants without quota have jobs that wait or whose lease is due. So every GPU
that a round grants is borrowed. Owners hold some of their quota in leases that continue.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from msgspec.structs import replace

from evenshare_core.domain.cluster import placement_gpus
from evenshare_core.domain.decision import Decision, Grant, Renew
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.offers import Offer, OwnSharing, narrow
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.registry import POLICIES
from evenshare_core.units import HOUR_US
from tests.unit.core.snapshots import AT_US, job, lease, snapshot

SEEDS = range(40)
PRICE = 500_000
every_policy = pytest.mark.parametrize("policy", sorted(POLICIES))


def drawn(seed: int, policy: str) -> Snapshot:
    """Return a random pool of three owners (some reserve quota) and two tenants without quota."""
    rng = random.Random(seed)  # noqa: S311 - a reproducible case, no secret
    nodes = {node: rng.choice((2, 4, 8)) for node in range(1, rng.randint(3, 5))}
    free, ids = dict(nodes), iter(range(1, 200))
    quotas, left = [], sum(nodes.values())
    for tenant in (1, 2, 3):
        gpus = rng.randint(0, left)
        left -= gpus
        own = OwnSharing(
            rng.choice(list(Mode)), lend_limit=rng.choice((None, 0, 1, 3)),
            by_offer=rng.random() < 0.5,
        )  # fmt: skip
        offers = [Offer(rng.randint(1, 4), rng.choice((0, PRICE, PRICE + 1))) for _ in range(2)]
        quotas.append(narrow(Entitlement(tenant, "v100", gpus), own, offers, PRICE))
    jobs, leases = [], []

    def hold(tenant: int, gpus: int, expires_us: int, *, borrowed: int) -> None:
        node = next((one for one, count in free.items() if count >= gpus), None)
        if node is None:
            return
        free[node] -= gpus
        number = next(ids)
        jobs.append(job(number, gpus, tenant, estimate_us=HOUR_US))
        leases.append(
            lease(number, number, (node, gpus), tenant=tenant, expires_us=expires_us,
                  borrowed=borrowed)
        )  # fmt: skip

    for quota in quotas:
        if quota.gpus and rng.random() < 0.6:
            hold(quota.tenant, rng.randint(1, quota.gpus), AT_US + HOUR_US, borrowed=0)
    for _ in range(6):
        gpus = rng.randint(1, 3)
        expires_us = rng.choice((AT_US, AT_US, AT_US + HOUR_US))
        hold(rng.choice((4, 5)), gpus, expires_us, borrowed=gpus)
    jobs += [
        job(next(ids), rng.randint(1, 4), rng.choice((4, 5)), estimate_us=HOUR_US) for _ in range(5)
    ]
    round_ = snapshot(jobs, leases, nodes=nodes, quotas=quotas, price_micro=PRICE)
    return replace(round_, policy=policy, policy_version=POLICIES[policy].version)


def unused(round_: Snapshot, decision: Decision) -> int:
    over = {end.lease for end in decision.ends}
    held = sum(row.gpus for row in round_.leases if row.id not in over)
    held += sum(placement_gpus(grant.placement) for grant in decision.grants)
    return sum(node.gpus for node in round_.nodes) - held


def kept(round_: Snapshot) -> int:
    """Return the idle quota that other tenants may not use.

    The owners' leases continue, and no owner gets a new lease.
    """
    own = Counter[int]()
    for row in round_.leases:
        own[row.tenant] += row.own
    idle = {row: max(0, row.gpus - own[row.tenant]) for row in round_.entitlements}
    return sum(count - row.lendable(count) for row, count in idle.items())


class TestReservedQuota:
    @every_policy
    def test_is_never_lent(self, policy: str) -> None:
        given = refused = 0
        for seed in SEEDS:
            round_ = drawn(seed, policy)
            decision = decide_round(round_)
            terms: list[Grant | Renew] = [*decision.grants, *decision.renewals]
            assert all(row.tenant in (4, 5) for row in terms)
            if any(row.borrowed for row in terms):
                given += 1
                assert unused(round_, decision) >= kept(round_), seed
            refused += any(row.reason is Reason.RESERVED_QUOTA for row in decision.skips)
        assert given or policy in ("batch_sche", "yarn_cs")
        assert refused or policy in ("batch_sche", "yarn_cs", "hived")
