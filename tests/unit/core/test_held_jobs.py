"""Test that held jobs are no demand and get a reason, and that verification knows them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from evenshare_core.disclosure.own import own_excerpts
from evenshare_core.domain.held_jobs import HeldJob, HoldCode, first_hold
from evenshare_core.domain.invariants import violations
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import SCHEMA_VERSION, Change, ChangeKind, Snapshot, with_schema
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.fairness.certificate import Verdict
from evenshare_core.policies.base import certify_round, decide_round
from evenshare_core.policies.job_reasons import reason_of
from evenshare_core.policies.registry import POLICIES
from evenshare_core.units import SECOND_US
from evenshare_core.verification.following import breaks
from evenshare_core.verification.following_ids import StoredRound
from tests.unit.core.following_rounds import first_round, next_round
from tests.unit.core.snapshots import AT_US, job, snapshot
from tests.unit.core.test_following_disclosed import disclosed

LATER_US = AT_US + 60 * SECOND_US
HOLDS = (
    HeldJob(3, 1, 4, HoldCode.TENANT),
    HeldJob(4, 1, 2, HoldCode.TENANT),
    HeldJob(5, 1, 1, HoldCode.NOT_BEFORE, LATER_US),
)


def held(policy: str = "ltgf", **fields: Any) -> Snapshot:
    """Return a round of two jobs that both fit, and three held jobs of the same tenant."""
    rest: dict[str, Any] = {"policy": policy, "policy_version": POLICIES[policy].version, **fields}
    return with_schema(snapshot([job(1, 4), job(2, 4)], nodes={1: 8}, holds=HOLDS, **rest))


class TestRound:
    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_decides_as_without_held_jobs_and_explains_them(self, policy: str) -> None:
        snap = held(policy)
        decision, plain = decide_round(snap), decide_round(replace(snap, holds=(), schema=2))
        assert replace(decision, skips=()) == replace(plain, skips=())
        rows = [(row.reason, row.jobs, row.gpus, row.numbers) for row in decision.skips]
        assert rows == [
            (Reason.HELD_BY_TENANT, (3, 4), 6, {}),
            (Reason.NOT_BEFORE, (5,), 1, {"until_us": LATER_US}),
        ]

    def test_certificate_has_no_violation(self) -> None:
        snap = held()
        certificate = certify_round(snap, decide_round(snap))
        assert not certificate.failure
        assert [row for row in certificate.findings if row.verdict is Verdict.VIOLATED] == []

    def test_job_page_gets_reason_and_numbers(self) -> None:
        snap = held()
        own = reason_of(snap, decide_round(snap), 5)
        assert own is not None
        assert (own.reason, own.numbers, own.jobs) == (Reason.NOT_BEFORE, {"until_us": LATER_US}, 1)

    def test_lists_job_under_its_first_hold(self) -> None:
        assert first_hold(["sweep", "operator", "tenant"]) is HoldCode.OPERATOR
        assert first_hold(["sweep", "dependency"]) is HoldCode.DEPENDENCY


class TestInvariants:
    def test_held_job_has_one_reason_and_is_not_active(self) -> None:
        snap = held()
        decision = decide_round(snap)
        without = replace(decision, skips=decision.skips[1:])
        both = replace(snap, jobs=(*snap.jobs, job(5, 1)))
        foreign = replace(snap, holds=(*snap.holds[:2], replace(snap.holds[2], tenant=2)))
        assert violations(snap, decision) == []
        assert "job 3 is held with 0 reasons" in [row.detail for row in violations(snap, without)]
        assert "job 5 is held and is active" in [row.detail for row in violations(both, decision)]
        assert any("jobs of another" in row.detail for row in violations(foreign, decision))

    def test_grant_of_held_job_is_violation(self) -> None:
        snap = held()
        free = decide_round(snapshot([job(1, 4), job(3, 4)], nodes={1: 8}))
        granted = replace(decide_round(snap), grants=free.grants)
        assert "job 3 is not active" in [row.detail for row in violations(snap, granted)]


class TestBytes:
    def test_only_snapshots_with_held_jobs_have_new_schema(self) -> None:
        snap, plain = held(), with_schema(replace(held(), holds=()))
        assert (snap.schema, plain.schema) == (SCHEMA_VERSION, 2)
        assert decode(canonical_bytes(snap), Snapshot) == snap
        assert b"tenant" not in canonical_bytes(plain)

    def test_own_rows_have_own_held_jobs_only(self) -> None:
        snap = held(quotas=())
        snap = replace(snap, holds=(*HOLDS, HeldJob(6, 2, 1, HoldCode.SWEEP)))
        own, other = own_excerpts(
            disclosed(StoredRound(snap, decide_round(snap), ())), [1, 2]
        ).values()
        assert len(msgspec.json.decode(own)["rows"]["holds"]) == 3
        assert msgspec.json.decode(other)["rows"]["holds"] == [
            {"job": 1, "tenant": 1, "gpus": 1, "code": "sweep", "until_us": 0}
        ]

    def test_own_rows_without_held_jobs_keep_their_bytes(self) -> None:
        snap = replace(held(), holds=(), schema=2)
        (own,) = own_excerpts(disclosed(StoredRound(snap, decide_round(snap), ())), [1]).values()
        assert b"holds" not in own
        assert own == msgspec.json.encode(msgspec.json.decode(own))


class TestFollowingRounds:
    """A waiting job is held after round 1 and released after round 2."""

    def rounds(self, **released: Any) -> tuple[StoredRound, StoredRound, StoredRound]:
        one = first_round()
        decided = decide_round(one)
        over = Change(one.at_us + 5 * SECOND_US, ChangeKind.INACTIVE, 2, 13)
        two = replace(
            next_round(one, decided, [over], gone=[13]),
            holds=(HeldJob(13, 2, 4, HoldCode.TENANT),),
        )
        decided_two = decide_round(two)
        came_us = two.at_us + 5 * SECOND_US
        came = Change(came_us, ChangeKind.ACTIVE, 2, 13, 4)
        again = replace(one.jobs[2], submitted_us=came_us, **released)
        three = replace(next_round(two, decided_two, [came], new=[again]), holds=())
        three = replace(three, jobs=tuple(sorted(three.jobs, key=lambda row: row.id)))
        return (
            StoredRound(one, decided, ()),
            StoredRound(two, decided_two, ()),
            StoredRound(three, decide_round(three), ()),
        )

    def test_hold_and_release_follow(self) -> None:
        one, two, three = self.rounds()
        assert breaks(one, two) == breaks(two, three) == ()

    def test_reports_job_that_came_back_as_another(self) -> None:
        _, two, three = self.rounds()
        (text,) = breaks(
            StoredRound(
                replace(two.snapshot, holds=(HeldJob(13, 2, 3, HoldCode.TENANT),)),
                two.decision,
                (),
            ),
            three,
        )
        assert text.startswith("Job 13 asks for 4 GPUs")

    def test_reports_start_before_stated_time(self) -> None:
        _, two, three = self.rounds()
        row = HeldJob(13, 2, 4, HoldCode.NOT_BEFORE, three.snapshot.at_us + 1)
        two = StoredRound(replace(two.snapshot, holds=(row,)), two.decision, ())
        (text,) = breaks(two, three)
        assert "it may not start before" in text

    def test_hold_and_release_between_two_rounds_move_arrival(self) -> None:
        one = first_round()
        decided = decide_round(one)
        at_us = one.at_us + 5 * SECOND_US
        again = [
            Change(at_us, ChangeKind.INACTIVE, 2, 13),
            Change(at_us, ChangeKind.ACTIVE, 2, 13, 4),
        ]
        two = next_round(one, decided, again)
        jobs = tuple(replace(row, submitted_us=at_us) if row.id == 13 else row for row in two.jobs)
        before, moved = StoredRound(one, decided, ()), replace(two, jobs=jobs)
        assert breaks(before, StoredRound(moved, decide_round(moved), ())) == ()
        plain = replace(moved, changes=tuple(row for row in two.changes if row not in again))
        (text,) = breaks(before, StoredRound(plain, decide_round(plain), ()))
        assert "submitted_us" in text
