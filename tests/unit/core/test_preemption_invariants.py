"""Test invariants of decisions that end leases before their expiry, each with one violation.

There are three nodes of 4 GPUs and one of 1 GPU. Job 1 holds 3 GPUs of node 1, jobs 2 and 3 one GPU
of node 2 each, job 4 three of node 3. All leases continue. Jobs 5 and 6 each need a whole node.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, End, Grant, Key, Preemption, Skip
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.invariants import violations
from evenshare_core.domain.reasons import EndReason, PreemptionRule, Reason
from evenshare_core.domain.snapshot import Service
from tests.unit.core.snapshots import AT_US, job, lease, snapshot

LATER_US = AT_US + 1
ROUND = snapshot(
    [job(1, 3), job(2, 1), job(3, 1), job(4, 3), job(5, 4), job(6, 4)],
    [
        lease(1, 1, (1, 3), expires_us=LATER_US),
        lease(2, 2, (2, 1), expires_us=LATER_US),
        lease(3, 3, (2, 1), expires_us=LATER_US),
        lease(4, 4, (3, 3), expires_us=LATER_US),
    ],
    nodes={1: 4, 2: 4, 3: 4, 4: 1},
    quotas=[Entitlement(1, "v100", 64)],
)
KEY = Key(None, None)
# Job 1 makes room for job 5; jobs 2 and 3 move to nodes 3 and 4, and job 6 gets their node.
MOVED = (
    Grant(2, 2, 1, "v100", ((3, 1),), KEY, 1),
    Grant(3, 3, 1, "v100", ((4, 1),), KEY, 1),
)
GRANTS = (
    Grant(1, 5, 1, "v100", ((1, 4),), KEY, 4),
    *MOVED,
    Grant(4, 6, 1, "v100", ((2, 4),), KEY, 4),
)
ENDS = (
    End(1, 1, 1, EndReason.PREEMPTED),
    End(2, 2, 1, EndReason.MOVED),
    End(3, 3, 1, EndReason.MOVED),
)
ROWS = (
    Preemption(1, 1, 1, PreemptionRule.GUARANTEE, 5, 1),
    Preemption(2, 2, 1, PreemptionRule.DEFRAGMENT, 6, 1),
    Preemption(3, 3, 1, PreemptionRule.DEFRAGMENT, 6, 1),
)
GOOD = Decision(
    at_us=AT_US, grants=GRANTS, ends=ENDS, skips=(Skip(Reason.LEASE_TURN, 1, (1,), 3),),
    service=Service(at_us=AT_US), preemptions=ROWS,
)  # fmt: skip


def with_row(index: int, **fields: Any) -> Decision:
    rows = list(ROWS)
    rows[index] = replace(rows[index], **fields)
    return replace(GOOD, preemptions=tuple(rows))


def with_end(index: int, reason: EndReason) -> Decision:
    ends = list(ENDS)
    ends[index] = replace(ends[index], reason=reason)
    return replace(GOOD, ends=tuple(ends))


PLANTED: list[tuple[str, Decision]] = [
    ("preemption of lease 9, which does not end", with_row(0, lease=9)),
    ("preemption of lease 1 names another job", with_row(0, job=2)),
    ("ends as moved", with_end(0, EndReason.MOVED)),
    ("ends as preempted", with_end(1, EndReason.PREEMPTED)),
    ("no rule says why", replace(GOOD, preemptions=ROWS[1:])),
    ("for job 7, which is not granted", with_row(0, for_job=7)),
    ("for job 5, which is not granted", with_row(0, for_tenant=2)),
    ("job 6 did not need the GPUs of lease 1", with_row(0, for_job=6)),
    ("job 2 is moved and not granted elsewhere", replace(GOOD, grants=(GRANTS[0], GRANTS[3]))),
    (
        "job 2 is moved and not granted elsewhere",
        replace(GOOD, grants=(replace(MOVED[0], placement=((2, 1),)), GRANTS[3])),
    ),
    (
        "job 1 is preempted and granted in the same round",
        replace(GOOD, grants=(*GRANTS, Grant(5, 1, 1, "v100", ((4, 3),), KEY, 3))),
    ),
    ("lease 1 has 2 preemptions", replace(GOOD, preemptions=(ROWS[0], *ROWS))),
]


class TestPreemptingDecision:
    def test_valid_decision_has_no_violations(self) -> None:
        assert violations(ROUND, GOOD) == []

    @pytest.mark.parametrize(("detail", "decision"), PLANTED)
    def test_finds_planted_violation(self, detail: str, decision: Decision) -> None:
        matches = [row.detail for row in violations(ROUND, decision) if row.rule == "preemptions"]
        assert [one for one in matches if detail in one], violations(ROUND, decision)

    def test_rejects_preemption_of_protected_lease(self) -> None:
        leases = (replace(ROUND.leases[0], protected_until_us=LATER_US), *ROUND.leases[1:])
        rows = violations(replace(ROUND, leases=leases), GOOD)
        assert [row.rule for row in rows] == ["running_leases"]
        assert "lease 1 is not expired and must not be touched" in rows[0].detail

    def test_rejects_moving_more_jobs_than_gang_has_gpus(self) -> None:
        jobs = tuple(replace(one, gpus=1) if one.id == 6 else one for one in ROUND.jobs)
        grants = (*GRANTS[:3], replace(GRANTS[3], placement=((2, 1),), own=1))
        rows = violations(replace(ROUND, jobs=jobs), replace(GOOD, grants=grants))
        assert "2 jobs are moved for job 6, which has 1 GPUs" in [row.detail for row in rows]

    def test_counts_gpus_of_withdrawn_picks_as_occupied(self) -> None:
        """A pick that was withdrawn later held a GPU of node 1 when job 5 was picked."""
        nodes = tuple(replace(node, gpus=8) if node.id == 1 else node for node in ROUND.nodes)
        round_ = replace(ROUND, nodes=nodes)
        needless = "job 5 did not need the GPUs of lease 1"
        assert needless in [row.detail for row in violations(round_, GOOD)]
        withdrawn = Skip(Reason.PRICE_ABOVE_MAX, 1, (7,), 1, {"withdrawn": True})
        asked = replace(round_, jobs=(*ROUND.jobs, job(7, 1)))
        decision = replace(GOOD, skips=(*GOOD.skips, withdrawn))
        assert violations(asked, decision) == []
        elsewhere = replace(GRANTS[0], placement=((4, 4),))
        moved = replace(decision, grants=(elsewhere, *GRANTS[1:]))
        assert needless in [row.detail for row in violations(asked, moved)]
