"""Who comes next: the policy's own order of the jobs that wait."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.backoff import Backoff
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round, queue_order
from evenshare_core.policies.registry import POLICIES
from tests.unit.core.snapshots import AT_US, job, lease, snapshot

# Options that leave no job out, so that a round with room for everybody picks everybody.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "ltgf": [{}, {"new_jobs_first": True}, {"lease_bonus": 0.1, "new_job_bonus": 0.3}],
    "fifo": [{}, {"scope": "tenant"}, {"backfill": True}],
    "sjf": [{}, {"backfill": True}],
    "srtf": [{}],
    "yarn_cs": [{}, {"whole_nodes": True}],
}


def with_room(policy: str, options: dict[str, Any], seed: int) -> Snapshot:
    """Three tenants with leases that end now and jobs that wait, and GPUs for all of them."""
    rng = Random(seed)  # noqa: S311 - a test's seed
    jobs: list[Job] = []
    for number in range(1, 25):
        estimate = rng.choice((None, rng.randrange(1, 10_000)))
        jobs.append(
            job(number, rng.choice((1, 1, 2, 4)), tenant=rng.randint(1, 3), estimate_us=estimate)
        )
    held = [
        lease(100 + one.id, one.id, (1, one.gpus), tenant=one.tenant) for one in jobs if one.id < 6
    ]
    quotas = [Entitlement(tenant, "v100", 60 * tenant) for tenant in (1, 2, 3)]
    return snapshot(jobs, held, nodes={1: 400}, quotas=quotas, policy=policy, options=options)


def picks(decision: Decision) -> list[int]:
    rows = [(row.order, row.job) for row in decision.grants]
    rows += [(row.order, row.job) for row in decision.renewals]
    return [job for _, job in sorted(rows)]


class TestTheOrder:
    @pytest.mark.parametrize("policy", sorted(OPTIONS))
    def test_is_that_of_the_picks_where_everybody_fits(self, policy: str) -> None:
        for options in OPTIONS[policy]:
            for seed in range(10):
                asked = with_room(policy, options, seed)
                decision = decide_round(asked)
                picked = picks(decision)
                assert len(picked) == 24
                assert list(queue_order(asked, decision.service) or ()) == picked

    def test_is_told_by_every_policy_that_has_one(self) -> None:
        decided = {name: decide_round(with_room(name, {}, 1)).service for name in POLICIES}
        ordered = {
            name
            for name in POLICIES
            if queue_order(with_room(name, {}, 1), decided[name]) is not None
        }
        assert ordered == set(OPTIONS)
        programs = {name for name, policy in POLICIES.items() if policy.traits.trades_types}
        assert ordered == set(POLICIES) - programs, "who shares by a program has no queue"

    def test_charges_a_tenant_for_what_comes_before(self) -> None:
        jobs = [job(number, 1, tenant=1) for number in (1, 2, 3)] + [job(4, 1, tenant=2)]
        quotas = [Entitlement(tenant, "v100", 2) for tenant in (1, 2)]
        asked = snapshot(jobs, nodes={1: 4}, quotas=quotas)
        assert queue_order(asked, decide_round(asked).service) == (1, 4, 2, 3)

    def test_leaves_out_what_may_not_start(self) -> None:
        jobs = [job(1, 9), job(2, 1), job(3, 1), job(4, 1, gpu_types=("t4",))]
        asked = snapshot(jobs, nodes={1: 8})
        asked = replace(asked, schema=3, backoffs=(Backoff(3, AT_US + 1, 2),))
        assert queue_order(asked, decide_round(asked).service) == (2,)

    def test_begins_with_a_gang_that_nodes_are_held_back_for(self) -> None:
        jobs = [job(1, 1), job(2, 4)]
        memory = {"passed": {"2": 1}, "reserved": {"v100": {"job": 2, "holds": [[1, 4]]}}}
        asked = snapshot(jobs, nodes={1: 4}, memory=memory)
        assert queue_order(asked, decide_round(asked).service) == (2, 1)
