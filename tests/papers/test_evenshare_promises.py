"""Test rule 4 of evenshare with promises, on hand-made pools: one class per part of the rule.

In all pools, tenant 1 is owed GPU-time and tenant 2 is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason, PreemptionRule, Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.evenshare.policy import POLICY
from evenshare_core.policies.evenshare.promises import (
    PromisedPart as Part,
)
from evenshare_core.policies.evenshare.promises import (
    StartPromise as Promise,
)
from evenshare_core.policies.evenshare.promises import (
    promise_rows,
    read_promises,
)
from evenshare_core.units import SECOND_US
from tests.papers.evenshare_pools import AT_US, LEASE_US, pool, running
from tests.unit.core.snapshots import job

ROUND_US = 60 * SECOND_US
QUOTAS = [Entitlement(1, "v100", 8), Entitlement(2, "v100", 8)]
SUMS = {1: (0, 10_000), 2: (20_000, 10_000)}


def round_of(
    jobs: Sequence[Job], leases: Sequence[Lease] = (), promises: Sequence[Promise] = (),
    *, nodes: dict[int, int] | None = None, **fields: Any,
) -> Snapshot:  # fmt: skip # rows of what belongs together
    given: dict[str, Any] = {
        "quotas": QUOTAS,
        "sums": SUMS,
        "options": {"promises": True},
        "round_us": ROUND_US,
    } | fields
    made = pool(jobs, leases, nodes=nodes or {1: 8}, **given)
    memory = {**made.memory, "promises": promise_rows(promises)}
    return replace(made, memory=memory if promises else made.memory)


def until(lease: Lease, in_s: int) -> Lease:
    return replace(lease, expires_us=AT_US + in_s * SECOND_US)


def promised(decision: Decision) -> dict[int, Promise]:
    return {row.job: row for row in read_promises(decision.memory)}


def promise(number: int, gpus: int, in_s: int, **parts: Part) -> Promise:
    """Return a promise due in `in_s`; parts are by node: n1, n2 and so on."""
    by_node = {int(name[1:]): part for name, part in parts.items()}
    return Promise(number, "v100", gpus, AT_US + in_s * SECOND_US, 0, by_node)


class TestNewPromise:
    """Rule 4 (d)."""

    @pytest.mark.parametrize(("nodes", "node", "due_s"), [((1, 2), 2, 300), ((1,), 1, 100)])
    def test_spares_leases_of_tenants_that_are_owed_as_much(
        self, nodes: tuple[int, ...], node: int, due_s: int
    ) -> None:
        """The lease of its own tenant ends first, but counts last."""
        leases = [until(running(2, 1, 8), 100), until(running(3, 2, 8, tenant=2), 300)]
        jobs = [job(1, 8), job(2, 8), job(3, 8, tenant=2)]
        made = round_of(jobs[: 1 + len(nodes)], leases[: len(nodes)], nodes=dict.fromkeys(nodes, 8))
        row = promised(decide_round(made))[1]
        assert row.placement == ((node, 8),)
        assert row.due_us == AT_US + due_s * SECOND_US

    def test_counts_free_gpus_now_and_leases_at_their_expiry(self) -> None:
        """Job 3 expires after 200 s; job 4, which is on the node too, is not needed."""
        leases = [
            until(running(2, 1, 2, tenant=2), 100),
            until(running(3, 1, 3, tenant=2), 200),
            until(running(4, 1, 2, tenant=2), 300),
        ]
        jobs = [job(1, 6), *(job(row.job, row.gpus, tenant=2) for row in leases)]
        row = promised(decide_round(round_of(jobs, leases)))[1]
        assert row.due_us == AT_US + 200 * SECOND_US
        assert row.parts == {1: Part(1, {2: 2, 3: 3})}

    def test_holds_no_free_gpus_if_leases_suffice(self) -> None:
        leases = [until(running(2, 1, 4, tenant=2), 100), until(running(3, 1, 2, tenant=2), 100)]
        jobs = [job(1, 5), *(job(row.job, row.gpus, tenant=2) for row in leases)]
        row = promised(decide_round(round_of(jobs, leases)))[1]
        assert row.parts == {1: Part(0, {2: 4, 3: 1})}

    def test_takes_node_with_earliest_time_then_least_waste_then_lowest_id(self) -> None:
        leases = [
            until(running(2, 1, 4, tenant=2), 300),
            until(running(3, 2, 4, tenant=2), 200),
            until(running(4, 2, 4, tenant=2), 100),
            until(running(5, 3, 8, tenant=2), 200),
            until(running(6, 4, 8, tenant=2), 200),
        ]
        jobs = [job(1, 8), *(job(row.job, row.gpus, tenant=2) for row in leases)]
        nodes = {1: 8, 2: 8, 3: 8, 4: 8}
        row = promised(decide_round(round_of(jobs, leases, nodes=nodes)))[1]
        assert (row.due_us, row.parts) == (AT_US + 200 * SECOND_US, {3: Part(0, {5: 8})})

    def test_gang_over_several_nodes_waits_for_the_last(self) -> None:
        leases = [until(running(number, number, 8, tenant=2), 100 * number) for number in (2, 3, 4)]
        jobs = [job(1, 12), *(job(row.job, 8, tenant=2) for row in leases)]
        quotas = [Entitlement(1, "v100", 12), Entitlement(2, "v100", 12)]
        asked = round_of(jobs, leases, nodes={2: 8, 3: 8, 4: 8}, quotas=quotas)
        row = promised(decide_round(asked))[1]
        assert row.due_us == AT_US + 300 * SECOND_US
        assert row.parts == {2: Part(0, {2: 8}), 3: Part(0, {3: 4})}

    def test_waits_behind_older_promise_if_other_gpus_do_not_suffice(self) -> None:
        leases = [until(running(2, 1, 8, tenant=2), 100)]
        jobs = [job(1, 8), job(2, 8, tenant=2), job(3, 8, tenant=3)]
        older = promise(3, 8, 100, n1=Part(0, {2: 8}))
        row = promised(decide_round(round_of(jobs, leases, [older])))[1]
        assert row.due_us == older.due_us + LEASE_US
        assert row.parts == {1: Part(0, {}, {3: 8})}

    def test_rest_of_pinned_lease_counts_at_its_own_expiry(self) -> None:
        """Job 2 holds 8 GPUs, of which 4 are pinned from 50 s on; its lease lasts for 400 s."""
        leases = [until(running(2, 1, 8, tenant=2), 400)]
        jobs = [job(1, 4), job(2, 8, tenant=2), job(3, 4, tenant=3)]
        older = promise(3, 4, 50, n1=Part(0, {2: 4}))
        row = promised(decide_round(round_of(jobs, leases, [older])))[1]
        assert (row.due_us, row.parts) == (AT_US + 400 * SECOND_US, {1: Part(0, {2: 4})})

    def test_longest_waiting_job_is_candidate(self) -> None:
        leases = [running(9, 1, 8, tenant=2)]
        jobs = [job(5, 1), job(1, 8), job(9, 8, tenant=2)]
        assert list(promised(decide_round(round_of(jobs, leases)))) == [1]

    def test_job_of_this_round_gets_no_promise(self) -> None:
        leases = [running(2, 1, 8, tenant=2)]
        new = replace(job(1, 8), submitted_us=AT_US - ROUND_US + 1)
        jobs = [new, job(2, 8, tenant=2)]
        assert promised(decide_round(round_of(jobs, leases))) == {}
        old = [replace(new, submitted_us=AT_US - ROUND_US), jobs[1]]
        assert list(promised(decide_round(round_of(old, leases)))) == [1]

    def test_tenant_that_is_not_owed_gets_no_promise(self) -> None:
        leases = [running(2, 1, 8)]
        jobs = [job(1, 8, tenant=2), job(2, 8)]
        decision = decide_round(round_of(jobs, leases))
        assert promised(decision) == {}
        assert Reason.PROMISED not in {skip.reason for skip in decision.skips}

    @pytest.mark.parametrize(("gpus", "jobs_promised"), [(2, [1, 3]), (3, [1])])
    def test_promised_gpus_stay_within_quota(self, gpus: int, jobs_promised: list[int]) -> None:
        leases = [running(2, 1, 8, tenant=2)]
        older = promise(1, 6, 100, n1=Part(0, {2: 6}))
        jobs = [job(1, 6), job(2, 8, tenant=2), job(3, gpus)]
        asked = round_of(jobs, leases, [older])
        assert sorted(promised(decide_round(asked))) == jobs_promised

    def test_tight_tenant_whose_lease_comes_due_is_not_owed(self) -> None:
        leases = [running(2, 1, 4, ran_s=900, expires_us=AT_US), running(3, 1, 4, tenant=2)]
        jobs = [job(1, 8), job(2, 4), job(3, 4, tenant=2)]
        quotas = [Entitlement(1, "v100", 4), Entitlement(2, "v100", 4)]
        options = {"promises": True, "preset": "tight"}
        assert promised(decide_round(round_of(jobs, leases, quotas=quotas, options=options))) == {}

    def test_borrower_gets_no_promise_if_owners_keep_idle_quota(self) -> None:
        leases = [running(2, 1, 8, tenant=2)]
        jobs = [job(1, 8), job(2, 8, tenant=2)]
        quotas = [Entitlement(1, "v100", 4), Entitlement(2, "v100", 4)]
        keeping = [quotas[0], replace(quotas[1], mode=Mode.RESERVE)]
        assert list(promised(decide_round(round_of(jobs, leases, quotas=quotas)))) == [1]
        assert promised(decide_round(round_of(jobs, leases, quotas=keeping))) == {}

    def test_gang_above_quota_gets_one_promise(self) -> None:
        leases = [running(2, 1, 8, tenant=2)]
        quotas = [Entitlement(1, "v100", 2), Entitlement(2, "v100", 8)]
        asked = round_of([job(1, 8), job(2, 8, tenant=2)], leases, quotas=quotas)
        assert list(promised(decide_round(asked))) == [1]

    def test_reason_names_round_of_start(self) -> None:
        leases = [until(running(2, 1, 8, tenant=2), 90)]
        decision = decide_round(round_of([job(1, 8), job(2, 8, tenant=2)], leases))
        (skip,) = decision.skips
        assert (skip.reason, skip.jobs) == (Reason.PROMISED, (1,))
        assert skip.numbers["starts_us"] == AT_US + 2 * ROUND_US


class TestStart:
    """Rule 4 (b)."""

    def test_pinned_lease_ends_when_promise_is_due(self) -> None:
        leases = [until(running(2, 1, 6, tenant=2), 500), until(running(3, 1, 2, tenant=2), 500)]
        jobs = [job(1, 6), job(2, 6, tenant=2), job(3, 2, tenant=2)]
        due = promise(1, 6, 0, n1=Part(0, {2: 6}))
        decision = decide_round(round_of(jobs, leases, [due]))
        (grant,) = decision.grants
        assert (grant.job, grant.placement, grant.key.note) == (1, ((1, 6),), "promised")
        (end,), (row,) = decision.ends, decision.preemptions
        assert (end.job, end.reason) == (2, EndReason.PREEMPTED)
        assert (row.rule, row.for_job) == (PreemptionRule.PROMISE, 1)
        assert "promises" not in decision.memory

    def test_starts_early_once_all_pins_are_over_or_due(self) -> None:
        leases = [until(running(2, 1, 4, tenant=2, ran_s=900), 0)]
        jobs = [job(1, 8), job(2, 4, tenant=2)]
        early = promise(1, 8, 500, n1=Part(2, {2: 4, 77: 2}))
        decision = decide_round(round_of(jobs, leases, [early]))
        assert [row.job for row in decision.grants] == [1]
        assert [(end.job, end.reason) for end in decision.ends] == [(2, EndReason.NOT_RENEWED)]

    @pytest.mark.parametrize(("is_followed", "node"), [(False, 2), (True, 1)])
    def test_takes_other_node_so_that_renewed_job_stays(self, is_followed: bool, node: int) -> None:
        """Job 2, before job 3 in the order, would move to the node of job 3.

        It must do so if another promise counts on job 1 on its node.
        """
        leases = [
            until(running(2, 1, 4, tenant=2, ran_s=900), 0),
            until(running(3, 2, 4, tenant=2, ran_s=900), 0),
        ]
        jobs = [job(1, 4), job(2, 4, tenant=2), job(3, 4, tenant=2), job(4, 4)]
        kept = [promise(1, 4, 0, n1=Part(0, {2: 4})), promise(4, 4, 900, n1=Part(0, {}, {1: 4}))]
        kept = kept[: 1 + is_followed]
        served = {1: (20_000, 10_000), 2: (20_000, 10_000)}
        asked = round_of(
            jobs[: 3 + is_followed], leases, kept, nodes={1: 4, 2: 4}, sums=served,
            attained={2: 100, 3: 200, 4: 9_000},
        )  # fmt: skip # rows of what belongs together
        decision = decide_round(asked)
        places = {row.job: row.placement for row in decision.grants}
        assert places[1] == ((node, 4),)
        assert [row.job for row in decision.renewals] == ([] if is_followed else [2])
        assert places.get(2) == (((2, 4),) if is_followed else None)

    def test_promised_job_is_first_in_queue(self) -> None:
        leases = [until(running(2, 1, 8, tenant=2), 100)]
        jobs = [job(2, 8, tenant=2), job(3, 1), job(9, 8)]
        served = dict.fromkeys((1, 2), (20_000, 10_000))
        kept = promise(9, 8, 100, n1=Part(0, {2: 8}))
        assert POLICY.queue_order(round_of(jobs, leases, [kept], sums=served)) == (9, 3)
        assert POLICY.queue_order(round_of(jobs, leases, sums=served)) == (3, 9)

    def test_lease_within_minimum_runtime_is_kept(self) -> None:
        leases = [until(running(2, 1, 8, tenant=2, ran_s=200), 500)]
        jobs = [job(1, 8), job(2, 8, tenant=2)]
        due = promise(1, 8, 0, n1=Part(0, {2: 8}))
        decision = decide_round(round_of(jobs, leases, [due]))
        assert not decision.grants
        assert list(promised(decision)) == [1]

    def test_pinned_lease_is_kept_if_node_has_other_free_gpus(self) -> None:
        leases = [until(running(2, 1, 4, tenant=2), 500)]
        jobs = [job(1, 4), job(2, 4, tenant=2)]
        due = promise(1, 4, 0, n1=Part(0, {2: 4}))
        decision = decide_round(round_of(jobs, leases, [due]))
        assert [row.job for row in decision.grants] == [1]
        assert not decision.ends

    def test_job_behind_started_one_is_pinned_to_its_lease(self) -> None:
        first = promise(1, 8, 0, n1=Part(8))
        second = promise(3, 8, 960, n1=Part(0, {}, {1: 8}))
        quotas = [Entitlement(1, "v100", 16), Entitlement(2, "v100", 8)]
        decision = decide_round(
            round_of([job(1, 8), job(3, 8)], (), [first, second], quotas=quotas)
        )
        assert [row.job for row in decision.grants] == [1]
        assert promised(decision)[3].parts == {1: Part(0, {1: 8})}

    def test_ends_no_more_leases_than_needed(self) -> None:
        """Ending the lease of job 3 frees all of its GPUs, also those beyond the pin."""
        leases = [
            until(running(2, 1, 2, tenant=2), 500),
            until(running(3, 1, 3, tenant=2), 500),
            until(running(4, 1, 3, tenant=2), 500),
        ]
        jobs = [job(1, 6), *(job(row.job, row.gpus, tenant=2) for row in leases)]
        due = promise(1, 6, 0, n1=Part(0, {2: 2, 3: 3, 4: 1}))
        decision = decide_round(round_of(jobs, leases, [due]))
        assert [row.job for row in decision.grants] == [1]
        assert sorted(end.job for end in decision.ends) == [3, 4]

    def test_two_due_promises_share_rest_of_lease(self) -> None:
        leases = [until(running(2, 1, 8, tenant=2), 500)]
        jobs = [job(1, 4), job(2, 8, tenant=2), job(3, 4)]
        due = [promise(number, 4, 0, n1=Part(0, {2: 4})) for number in (1, 3)]
        decision = decide_round(round_of(jobs, leases, due))
        assert sorted(row.job for row in decision.grants) == [1, 3]
        assert [row.for_job for row in decision.preemptions] == [1]

    def test_second_waits_a_round_if_limit_may_withdraw_first(self) -> None:
        """The lease would continue, so its other GPUs stay unassigned."""
        leases = [until(running(2, 1, 8, tenant=2), 500)]
        jobs = [job(1, 4, max_price_micro=1), job(2, 8, tenant=2), job(3, 4)]
        due = [promise(number, 4, 0, n1=Part(0, {2: 4})) for number in (1, 3)]
        decision = decide_round(round_of(jobs, leases, due))
        assert [row.job for row in decision.grants] == [1]
        assert list(promised(decision)) == [3]

    def test_promise_that_limit_ends_is_inherited(self) -> None:
        """Job 1 needs more than its tenant's quota, and the tenant may not borrow."""
        quotas = [
            Entitlement(1, "v100", 4, mode=Mode.LEND),
            Entitlement(2, "v100", 8),
        ]
        leases = [until(running(2, 1, 8, tenant=2), 500)]
        jobs = [job(1, 8), job(2, 8, tenant=2), job(3, 4)]
        first = promise(1, 8, 0, n1=Part(0, {2: 8}))
        second = promise(3, 4, 900, n1=Part(0, {}, {1: 4}))
        asked = round_of(jobs, leases, [first, second], quotas=quotas)
        decision = decide_round(asked)
        assert not decision.grants
        assert promised(decision)[3].parts == {1: Part(0, {2: 4})}

    def test_leaves_rest_of_ended_lease_unused(self) -> None:
        """No other lease on that node ends for a new job, because a GPU there is free."""
        ends = {2: 500, 3: 0, 4: 500}
        leases = [until(running(n, 1, 4 if n == 2 else 2, tenant=2), ends[n]) for n in ends]
        jobs = [job(1, 5), job(2, 4, tenant=2), *(job(n, 2, tenant=2) for n in (3, 4))]
        due = promise(1, 5, 0, n1=Part(0, {2: 3, 3: 2}))
        made = round_of([*jobs, job(5, 1, tenant=2)], leases, [due], attained={4: 9_000})
        assert [row.job for row in decide_round(made).preemptions] == [2]


class TestHeldGpus:
    """Rule 4 (c) and (e)."""

    def test_other_jobs_do_not_get_held_gpus_near_start(self) -> None:
        """Job 3 would still be within its minimum runtime when the promise is due."""
        leases = [until(running(2, 1, 4, tenant=2), 200)]
        jobs = [job(1, 8), job(2, 4, tenant=2), job(3, 2, tenant=2)]
        kept = promise(1, 8, 200, n1=Part(4, {2: 4}))
        decision = decide_round(round_of(jobs, leases, [kept]))
        assert not decision.grants
        reasons = {number: skip.reason for skip in decision.skips for number in skip.jobs}
        assert reasons == {1: Reason.PROMISED, 3: Reason.RESERVED_FOR_GANG}

    def test_backfilled_job_is_pinned(self) -> None:
        leases = [until(running(2, 1, 4, tenant=2), 300)]
        jobs = [job(1, 8), job(2, 4, tenant=2), job(3, 2, tenant=2), job(4, 3, tenant=2)]
        kept = promise(1, 8, 300, n1=Part(4, {2: 4}))
        decision = decide_round(round_of(jobs, leases, [kept]))
        (grant,) = decision.grants
        assert (grant.job, grant.key.note) == (3, "backfilled")
        assert promised(decision)[1].parts == {1: Part(2, {2: 4, 3: 2})}

    @pytest.mark.parametrize(("due_s", "is_given"), [(450, True), (440, False)])
    def test_promised_job_is_backfilled_for_half_a_lease(self, due_s: int, is_given: bool) -> None:
        """Job 3 comes after job 1, and a lease is 900 s; job 4 comes after both of them."""
        jobs = [job(1, 8), job(2, 4, tenant=2), job(3, 2), job(4, 3)]
        leases = [until(running(2, 1, 4, tenant=2), due_s)]
        kept = [
            promise(1, 8, due_s, n1=Part(4, {2: 4})),
            promise(3, 2, due_s + 900, n1=Part(0, {}, {1: 2})),
            promise(4, 3, due_s + 1800, n1=Part(0, {}, {1: 1, 3: 2})),
        ]
        served = dict.fromkeys((1, 2), (20_000, 10_000))
        decision = decide_round(round_of(jobs, leases, kept, sums=served))
        given = {row.job: row.key.note for row in decision.grants}
        rows = promised(decision)
        if not is_given:
            assert given == {}
            assert list(rows.values()) == kept
            return
        assert given == {3: "backfilled"}
        assert rows.keys() == {1, 4}
        assert rows[1].parts == {1: Part(2, {2: 4, 3: 2})}
        assert rows[4].parts == {1: Part(0, {}, {1: 3})}

    def test_jobs_like_a_promised_one_are_backfilled_for_less(self) -> None:
        """Job 4, like job 3 but without a promise, comes after it in the order."""
        jobs = [job(1, 8), job(2, 4, tenant=2), job(3, 2), job(4, 2)]
        leases = [until(running(2, 1, 4, tenant=2), 440)]
        kept = [
            promise(1, 8, 440, n1=Part(4, {2: 4})),
            promise(3, 2, 1340, n1=Part(0, {}, {1: 2})),
        ]
        served = dict.fromkeys((1, 2), (20_000, 10_000))
        decision = decide_round(round_of(jobs, leases, kept, sums=served))
        assert [row.job for row in decision.grants] == [4]

    def test_due_pinned_lease_is_renewed(self) -> None:
        leases = [
            until(running(2, 1, 4, tenant=2, ran_s=900), 0),
            until(running(3, 1, 4, tenant=2), 400),
        ]
        jobs = [job(1, 8), job(2, 4, tenant=2), job(3, 4, tenant=2), job(4, 4)]
        kept = promise(1, 8, 400, n1=Part(0, {2: 4, 3: 4}))
        decision = decide_round(round_of(jobs, leases, [kept]))
        assert [row.job for row in decision.renewals] == [2]
        assert not decision.grants
        assert promised(decision)[1] == kept

    def test_pinned_lease_is_not_preempted_for_another_job(self) -> None:
        """Without the promise, job 4, which never ran, takes the GPUs of job 2."""
        leases = [until(running(2, 1, 8, tenant=2, ran_s=3000), 100)]
        jobs = [job(1, 8), job(2, 8, tenant=2), job(4, 8, tenant=2)]
        kept = promise(1, 8, 100, n1=Part(0, {2: 8}))
        spent = {1: 5000, 2: 24_000}
        fields: dict[str, Any] = {
            "sums": dict.fromkeys((1, 2), (20_000, 10_000)),
            "attained": spent,
        }
        assert not decide_round(round_of(jobs, leases, [kept], **fields)).ends
        (end,) = decide_round(round_of(jobs, leases, **fields)).ends
        assert end.job == 2
