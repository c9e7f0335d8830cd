"""Test how evenshare decides rounds of its earlier version, with the same options."""

from __future__ import annotations

from msgspec.structs import replace

from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.reasons import PreemptionRule, Reason
from evenshare_core.fairness.certificate import Property
from evenshare_core.policies.base import decide_round, promises
from evenshare_core.policies.evenshare.policy import POLICY
from tests.papers.evenshare_pools import pool, running
from tests.unit.core.snapshots import job

HALVES = [Entitlement(1, "v100", 4), Entitlement(2, "v100", 4)]


class TestEarlierVersion:
    def test_rounds_of_version_4_promise_no_starts(self) -> None:
        """With the same options, version 4 ends a lease where version 5 promises a start."""
        jobs = [job(1, 4), job(2, 4), job(3, 4, tenant=2)]
        leases = [running(1, 1, 4), running(2, 1, 4)]
        sums = {1: (12_000, 10_000), 2: (9_000, 10_000)}
        made = pool(jobs, leases, nodes={1: 8}, quotas=HALVES, sums=sums)
        before = replace(made, options={}, policy_version="4")
        assert [row.rule for row in decide_round(before).preemptions] == [PreemptionRule.GUARANTEE]
        assert Property.QUOTA_GUARANTEE in promises(before).properties
        now = replace(before, policy_version=POLICY.version)
        assert not decide_round(now).preemptions
        assert [skip.reason for skip in decide_round(now).skips] == [Reason.PROMISED]
        assert Property.PROMISED_STARTS in promises(now).properties

    def test_option_promises_starts_in_version_4_too(self) -> None:
        made = pool([job(1, 8)], nodes={1: 8}, options={"promises": True})
        before = replace(made, policy_version="4")
        assert POLICY.options_of(before).promises
        assert POLICY.options_of(made).paid_us
        assert not POLICY.options_of(before).paid_us
        assert not POLICY.decides_again(before)
        assert POLICY.decides_again(replace(before, options={}))
        assert POLICY.decides_as("4")
        assert not POLICY.decides_as("3")
