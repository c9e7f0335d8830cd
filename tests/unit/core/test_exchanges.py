"""Test that a lease exchange is applied in full, or cancelled in full if a limit refuses a part."""

from __future__ import annotations

from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, End, Grant, Key, Preemption, Skip
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.reasons import EndReason, PreemptionRule, Reason
from evenshare_core.policies.shared.terms import settle
from tests.unit.core.snapshots import AT_US, job, lease, snapshot

LATER_US = AT_US + 1
KEY = Key(None, None)
# Tenant 2 holds all of node 1, above its quota. Tenant 1 should get node 1, and tenant 3 the free
# GPUs.
JOBS = [job(1, 4, tenant=2), job(2, 4, tenant=1), job(3, 2, tenant=3), job(4, 2, tenant=1)]
LEASES = [lease(1, 1, (1, 4), tenant=2, expires_us=LATER_US, own=0, borrowed=4)]
GRANTS = (
    Grant(1, 4, 1, "v100", ((2, 2),), KEY),
    Grant(2, 2, 1, "v100", ((1, 4),), KEY),
    Grant(3, 3, 3, "v100", ((2, 2),), KEY),
)
ANSWER = Decision(
    at_us=AT_US,
    grants=GRANTS,
    ends=(End(1, 1, 2, EndReason.PREEMPTED),),
    skips=(Skip(Reason.LEASE_TURN, 2, (1,), 4),),
    preemptions=(Preemption(1, 1, 2, PreemptionRule.GUARANTEE, 2, 1),),
)


def quotas(first: int) -> list[Entitlement]:
    return [
        Entitlement(1, "v100", first, Mode.LEND),
        Entitlement(2, "v100", 0),
        Entitlement(3, "v100", 2),
    ]


class TestExchange:
    def test_completes_without_conflicting_limit(self) -> None:
        terms = settle(snapshot(JOBS, LEASES, nodes={1: 4, 2: 4}, quotas=quotas(6)), ANSWER)
        assert [grant.job for grant in terms.grants] == [4, 2, 3]
        assert terms.preemptions == ANSWER.preemptions
        assert terms.ends == ANSWER.ends
        assert terms.skips == ANSWER.skips

    def test_is_cancelled_if_limit_withdraws_its_job(self) -> None:
        """Job 4 uses the quota first. Job 2 would have to borrow, and its tenant may not borrow."""
        terms = settle(snapshot(JOBS, LEASES, nodes={1: 4, 2: 4}, quotas=quotas(4)), ANSWER)
        assert [grant.job for grant in terms.grants] == [4, 3]
        assert (terms.preemptions, terms.ends) == ((), ())
        assert [(skip.reason, skip.jobs) for skip in terms.skips] == [(Reason.QUOTA_LIMIT, (2,))]

    def test_is_cancelled_if_moved_job_may_not_continue(self) -> None:
        """The moved job needs a new term, but the price is above the job's maximum price."""
        jobs = [replace(JOBS[0], gpus=1, max_price_micro=5), *JOBS[1:]]
        leases = [lease(1, 1, (1, 1), tenant=2, expires_us=LATER_US, own=0, borrowed=1)]
        moved = replace(
            ANSWER,
            grants=(GRANTS[1], Grant(3, 1, 2, "v100", ((2, 1),), KEY)),
            ends=(End(1, 1, 2, EndReason.MOVED),),
            skips=(),
            preemptions=(Preemption(1, 1, 2, PreemptionRule.DEFRAGMENT, 2, 1),),
        )
        asked = snapshot(jobs, leases, nodes={1: 4, 2: 4}, quotas=quotas(6), price_micro=4)
        assert [grant.job for grant in settle(asked, moved).grants] == [2, 1]
        asked = snapshot(jobs, leases, nodes={1: 4, 2: 4}, quotas=quotas(6), price_micro=6)
        terms = settle(asked, moved)
        assert (terms.grants, terms.preemptions, terms.ends) == ((), (), ())
        assert [(skip.reason, skip.jobs) for skip in terms.skips] == [(Reason.LEASE_TURN, (2,))]
