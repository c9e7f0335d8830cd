"""Test each invariant with one violation in a decision that is valid otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.decision import (
    Decision,
    End,
    Grant,
    Key,
    Preemption,
    Renew,
    Skip,
    Swap,
    TermLength,
    Trade,
)
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.held_jobs import HeldJob, HoldCode
from evenshare_core.domain.invariants import RULES, InvariantViolation, violations
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.reasons import EndReason, PreemptionRule, Reason
from evenshare_core.domain.snapshot import PoolPrice, Service, Snapshot
from evenshare_core.policies import registry
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.policy import Policy
from tests.unit.core.snapshots import AT_US, job, lease, snapshot

# On node 1, job 1 continues and job 2's lease ended; node 2 is free. Jobs 3 and 4 wait, and 4 does
# not fit. Job 1 uses one GPU of the quota of 8, so 7 are left. Jobs 2 and 3 get 8 GPUs, so one of
# them is borrowed.
ROUND = snapshot(
    [job(1, 1), job(2, 4), job(3, 4, max_price_micro=70), job(4, 8), job(5, 1, tenant=2)],
    [
        lease(1, 1, (1, 1), expires_us=AT_US + 1),
        lease(2, 2, (1, 4)),
        lease(5, 5, (3, 1), tenant=2, protected_until_us=AT_US + 1),
    ],
    nodes={1: 8, 2: 4, 3: 8},
    quotas=[
        Entitlement(1, "v100", 8, Mode.LEND_AND_BORROW, borrow_limit=1),
        Entitlement(2, "v100", 12),
    ],
    price_micro=70,
    credit={1: 70},
    holds=(HeldJob(8, 1, 2, HoldCode.TENANT),),
)
KEY = Key(0.0, 0.0)
RENEW = Renew(1, 2, 2, 1, "v100", 4, KEY, 4, 0, 0)
GRANT = Grant(2, 3, 1, "v100", ((2, 4),), KEY, 3, 1, 70)
SKIP = Skip(Reason.LEASE_TURN, 1, (4,), 8)
HELD = Skip(Reason.HELD_BY_TENANT, 1, (8,), 2)
GOOD = Decision(
    at_us=AT_US,
    grants=(GRANT,),
    renewals=(RENEW,),
    skips=(SKIP, HELD),
    service=Service(at_us=AT_US),
)


def granted(**fields: Any) -> Decision:
    return replace(GOOD, grants=(replace(GRANT, **fields),))


def renewed(**fields: Any) -> Decision:
    return replace(GOOD, renewals=(replace(RENEW, **fields),))


def ended(lease_id: int, job_id: int, tenant: int = 1) -> Decision:
    return replace(GOOD, ends=(End(lease_id, job_id, tenant, EndReason.NOT_RENEWED),))


def preempted(lease_id: int, reason: EndReason) -> Decision:
    rule = PreemptionRule.GUARANTEE
    ends = (End(lease_id, lease_id, 1, reason),)
    return replace(GOOD, ends=ends, preemptions=(Preemption(lease_id, lease_id, 1, rule, 3, 1),))


# Tenant 1 buys a V100 from tenant 2 for 3 K80s.
TRADE = Trade("v100", 10**6, 1, "k80", 3 * 10**6, 2, 3 * 10**6, 4 * 10**6, 2 * 10**6, AT_US)


def traded(**fields: Any) -> Decision:
    return replace(GOOD, trades=(replace(TRADE, **fields),))


def swapping(*rows: tuple[int, str, int]) -> Decision:
    return replace(GOOD, swaps=tuple(Swap(*row) for row in rows))


PLANTED: list[tuple[str, str, Decision]] = [
    ("node_capacity", "node 1 has 8", granted(placement=((1, 4),))),
    ("placement", "unknown node 9", granted(placement=((9, 4),))),
    ("placement", "of another GPU type", granted(gpu_type="k80")),
    ("placement", "0 GPUs", granted(placement=((2, 4), (3, 0)))),
    ("placement", "a node twice", granted(placement=((2, 2), (2, 2)))),
    ("gang", "needs 4 GPUs, gets 3", granted(placement=((2, 3),), own=2)),
    ("once", "job 1 has 2 leases", granted(job=1)),
    ("once", "lease 2 has 2 outcomes", ended(2, 2)),
    ("once", "order 1 has 2 picks", granted(order=1)),
    ("known_leases", "renewal of unknown lease 9", renewed(lease=9)),
    ("known_leases", "renewal of lease 2 changes", renewed(gpus=3, own=3)),
    ("known_leases", "end of unknown lease 9", ended(9, 2)),
    ("known_leases", "names another job", ended(2, 3)),
    ("running_leases", "lease 1 is not expired", ended(1, 1)),
    ("running_leases", "lease 5 is protected", ended(5, 5, tenant=2)),
    ("running_leases", "lease 2 has expired", replace(GOOD, renewals=())),
    ("preemptions", "lease 1 is preempted and ends as finished", preempted(1, EndReason.FINISHED)),
    ("jobs", "job 9 is not active", granted(job=9)),
    ("jobs", "belongs to tenant 1, not 2", granted(tenant=2)),
    ("own_and_borrowed", "are not 4", granted(own=4)),
    ("own_and_borrowed", "9 are own", granted(own=4, borrowed=0, price_micro=0)),
    ("limits", "may borrow 1 v100, borrows 2", granted(own=2, borrowed=2)),
    ("limits", "borrows at 71, at most 70", granted(price_micro=71)),
    ("limits", "may spend 70, not 140", granted(own=2, borrowed=2)),
    ("lengths", "lasts 1 s", replace(GOOD, lengths=(TermLength(3, 1_000_000),))),
    ("trades", "exchanges nothing", traded(seller=1)),
    ("trades", "exchanges nothing", traded(sold_type="v100")),
    ("trades", "amounts of 0 and 3000000", traded(bought_micro=0)),
    ("trades", "a rate of 4000001", traded(rate_micro=4_000_001)),
    ("trades", "a rate of -1999999", traded(rate_micro=-1_999_999)),
    ("trades", "swaps make 1 GPUs of v100", swapping((1, "v100", 1))),
    ("trades", "swaps make -1 GPUs of k80", swapping((2, "k80", -1))),
    ("trades", "tenant 2 has -1 v100", swapping((2, "v100", -13), (1, "v100", 13))),
    ("trades", "1, 'v100') has 2 swaps", swapping((1, "v100", 0), (1, "v100", 0))),
    ("prices", "pays 71, posted is 70", granted(price_micro=71)),
    ("prices", "pays 5, posted is 0", renewed(price_micro=5)),
    ("prices", "negative", replace(GOOD, prices=(PoolPrice("v100", -1, 0, 0, 0, 2000),))),
    ("reasons", "job 4 waits with 0 reasons", replace(GOOD, skips=())),
    ("reasons", "job 4 waits with 2 reasons", replace(GOOD, skips=(SKIP, SKIP))),
    ("reasons", "job 3 holds a lease", replace(GOOD, skips=(replace(SKIP, jobs=(3, 4)),))),
    ("reasons", "job 9 is not active", replace(GOOD, skips=(replace(SKIP, jobs=(4, 9)),))),
    ("reasons", "row of tenant 2", replace(GOOD, skips=(replace(SKIP, tenant=2),))),
    ("held_jobs", "job 8 is held with 0 reasons", replace(GOOD, skips=(SKIP,))),
    ("instants", "the decision is at 1", replace(GOOD, at_us=1)),
    ("instants", "the service is at 1", replace(GOOD, service=Service(at_us=1))),
]


class TestViolations:
    def test_valid_decision_has_no_violations(self) -> None:
        assert violations(ROUND, GOOD) == []

    @pytest.mark.parametrize(("rule", "detail", "decision"), PLANTED)
    def test_finds_planted_violation(self, rule: str, detail: str, decision: Decision) -> None:
        found = violations(ROUND, decision)
        assert [row for row in found if row.rule == rule and detail in row.detail]

    def test_accepts_trades_and_counts_swaps_as_quota(self) -> None:
        undone = replace(TRADE, rate_micro=-TRADE.rate_micro)
        assert violations(ROUND, replace(GOOD, trades=(TRADE, undone))) == []
        own = replace(GRANT, own=4, borrowed=0, price_micro=0)
        more = swapping((1, "v100", 1), (2, "v100", -1))
        assert violations(ROUND, replace(more, grants=(own,))) == []
        less = swapping((1, "v100", -1), (2, "v100", 1))
        assert {row.rule for row in violations(ROUND, less)} == {"own_and_borrowed"}

    def test_every_rule_has_a_planted_violation(self) -> None:
        assert {rule for rule, _, _ in PLANTED} == set(RULES)

    def test_rejects_gpu_type_not_accepted_by_job(self) -> None:
        jobs = tuple(
            replace(row, gpu_types=("a100",)) if row.id == 3 else row for row in ROUND.jobs
        )
        assert "does not accept v100" in violations(replace(ROUND, jobs=jobs), GOOD)[0].detail

    def test_rejects_gpu_type_that_profile_cannot_run_on(self) -> None:
        jobs = tuple(replace(row, profile=7) if row.id in (2, 3) else row for row in ROUND.jobs)
        profiles = (Profile(7, 1, (("k80", 1000),)),)
        found = violations(replace(ROUND, jobs=jobs, profiles=profiles), GOOD)
        # Job 2's lease is only renewed, and a renewal does not check the profile.
        assert [row.detail for row in found] == ["job 3 cannot run on v100"]

    def test_allows_running_leases_on_drained_node(self) -> None:
        drained = tuple(Node(n.id, n.gpu_type, 0) if n.id == 3 else n for n in ROUND.nodes)
        assert violations(replace(ROUND, nodes=drained), GOOD) == []

    def test_allows_new_grant_for_job_ended_in_same_round(self) -> None:
        moved = Grant(1, 2, 1, "v100", ((3, 4),), KEY, 4, 0, 0)
        decision = replace(ended(2, 2), renewals=(), grants=(moved, GRANT))
        assert violations(ROUND, decision) == []


class TestDecideRound:
    def test_raises_with_all_violated_rules(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Careless(Policy):
            name = version = "careless"

            def decide(self, snapshot: Snapshot) -> Decision:
                return Decision(at_us=AT_US)

        monkeypatch.setitem(registry.POLICIES, "careless", Careless())
        with pytest.raises(InvariantViolation) as caught:
            decide_round(replace(ROUND, policy="careless"))
        rules = {row.rule for row in caught.value.violations}
        assert rules == {"running_leases", "reasons"}
        assert "job 4 waits with 0 reasons" in str(caught.value)
