"""Test terms whose length differs from the pool's lease length: bytes, bounds and credit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from evenshare_core.domain.deadlines import (
    Deadline,
    DeadlineAnswer,
    DeadlineClass,
    DeadlineState,
    DeadlineStep,
)
from evenshare_core.domain.decision import (
    Decision,
    Plan,
    PlanKind,
    Preemption,
    Swap,
    TermLength,
    Trade,
)
from evenshare_core.domain.entitlements import Entitlement, Tenant
from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.invariants import InvariantViolation, violations
from evenshare_core.domain.measured_speeds import MeasuredProfile, MeasuredSpeed
from evenshare_core.domain.reasons import PreemptionRule, Reason
from evenshare_core.domain.snapshot import (
    PoolPrice,
    Snapshot,
    Surcharge,
    lease_bounds_of,
    schema_of,
)
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.money.fixed_point import worst_case_micro
from evenshare_core.policies import registry
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.shared.terms import settle
from evenshare_core.units import REWARD_MICRO
from tests.toy_policy.lengths import POLICY
from tests.unit.core.snapshots import AT_US, job, lease, snapshot

BOUNDS_US = (60_000_000, 1_800_000_000)
PRICE_MICRO = 3_600_000


@pytest.fixture(autouse=True)
def policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)


def pool(credit_micro: int | None = None) -> Snapshot:
    """Return a round without quota: jobs of 1, 2 and 3 GPUs wait, the lease of job 4 is due."""
    plain = snapshot(
        [job(1, 1), job(2, 2), job(3, 3), job(4, 1)],
        [lease(4, 4, (2, 1), expires_us=AT_US)],
        nodes={1: 4, 2: 4},
        quotas=[Entitlement(1, "v100", 0)],
    )
    return replace(
        plain, policy=POLICY.name, policy_version=POLICY.version, options={},
        lease_bounds_us=BOUNDS_US, tenants=(Tenant(1, credit_micro),),
        prices=(PoolPrice("v100", PRICE_MICRO, 1, 8, PRICE_MICRO, 2000),),
    )  # fmt: skip


class TestTermLength:
    def test_is_listed_for_grants_and_renewals(self) -> None:
        decision = decide_round(pool())
        assert {row.job for row in decision.grants} == {1, 2, 3}
        assert {row.job for row in decision.renewals} == {4}
        least, most = BOUNDS_US
        assert decision.lengths == (
            TermLength(1, most), TermLength(3, least), TermLength(4, most),
        )  # fmt: skip

    def test_is_pools_lease_length_without_bounds(self) -> None:
        assert decide_round(replace(pool(), lease_bounds_us=())).lengths == ()

    def test_determines_worst_case_cost_of_term(self) -> None:
        least, most = BOUNDS_US
        whole = sum(
            worst_case_micro(gpus, PRICE_MICRO, lasts_us)
            for gpus, lasts_us in ((1, most), (1, most), (2, pool().lease_us), (3, least))
        )
        answer = decide_round(pool())
        enough = settle(pool(whole), answer)
        assert {row.job for row in enough.grants} == {1, 2, 3}
        assert enough.lengths == answer.lengths
        short = settle(pool(whole - 1), answer)
        assert {row.job for row in short.grants} == {1, 2}
        assert [(row.reason, row.jobs) for row in short.skips] == [(Reason.BUDGET, (3,))]
        # A withdrawn pick has no term length either.
        assert {row.job for row in short.lengths} == {1, 4}
        assert "limits" in {row.rule for row in violations(pool(whole - 1), answer)}
        assert "limits" not in {row.rule for row in violations(pool(whole), answer)}


def decided(*lengths: TermLength) -> Decision:
    return replace(decide_round(pool()), lengths=lengths)


class TestDecision:
    @pytest.mark.parametrize(
        ("lengths", "detail"),
        [
            (
                (TermLength(1, 59_000_000),),
                "a term of job 1 lasts 59 s, the pool allows 60 to 1800",
            ),
            ((TermLength(1, 1_800_000_001),), "a term of job 1 lasts"),
            ((TermLength(9, 60_000_000),), "job 9 has a length of 60 s and no term of this round"),
            ((TermLength(1, 60_000_000),) * 2, "job 1 has 2 lengths"),
        ],
    )
    def test_rejects_length_out_of_bounds(
        self, lengths: tuple[TermLength, ...], detail: str
    ) -> None:
        rows = [row for row in violations(pool(), decided(*lengths)) if row.rule == "lengths"]
        assert [row for row in rows if detail in row.detail], rows

    def test_accepts_length_at_bound(self) -> None:
        at_both = decided(TermLength(1, BOUNDS_US[0]), TermLength(4, BOUNDS_US[1]))
        assert violations(pool(), at_both) == []

    def test_rejects_other_length_if_pool_has_no_bounds(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def decide(snapshot: Snapshot) -> Decision:
            return replace(
                registry.policy("fifo").decide(snapshot), lengths=(TermLength(1, 60_000_000),)
            )

        monkeypatch.setattr(POLICY, "decide", decide, raising=False)
        with pytest.raises(InvariantViolation, match="lasts 60 s, the pool allows"):
            decide_round(replace(pool(), lease_bounds_us=()))


class TestEncoding:
    def test_decision_without_newest_fields_keeps_old_encoding(self) -> None:
        """Decisions stored before these fields existed keep their bytes."""
        fields = Decision.__struct_fields__
        newest = Decision.newest
        assert fields[-len(newest) :] == newest
        trade = Trade("v100", 1, 2, "k80", 3, 1, 3, 4, 2, AT_US)
        row = Preemption(1, 1, 1, PreemptionRule.GUARANTEE, 5, 1, {"held": 0})
        for decision, count in (
            (Decision(at_us=AT_US), 7),
            (Decision(at_us=AT_US, preemptions=(row,)), 6),
            (Decision(at_us=AT_US, lengths=(TermLength(1, 2),)), 5),
            (Decision(at_us=AT_US, trades=(trade,)), 4),
            (Decision(at_us=AT_US, swaps=(Swap(1, "v100", 1),)), 3),
            (Decision(at_us=AT_US, plans=(Plan(1, 1, PlanKind.OWN, "v100", 1),)), 2),
            (Decision(at_us=AT_US, surcharges=(Surcharge("v100", 1, 2),)), 1),
            (Decision(at_us=AT_US, answers=(DeadlineAnswer(1, 1, DeadlineState.MISSED),)), 0),
        ):
            data = canonical_bytes(decision)
            kept = fields[: len(fields) - count]
            values = [canonical_bytes(getattr(decision, name)) for name in kept]
            assert data == b"[" + b",".join(values) + b"]"
            assert decode(data, Decision) == decision

    def test_snapshot_fields_determine_schema_version(self) -> None:
        bounded = pool()
        bounded = replace(bounded, schema=schema_of(bounded.backoffs, bounded.lease_bounds_us))
        assert bounded.schema == 4
        assert decode(canonical_bytes(bounded), Snapshot) == bounded
        plain = replace(bounded, schema=schema_of(()), lease_bounds_us=())
        assert plain.schema == 2
        assert decode(canonical_bytes(plain), Snapshot) == plain
        steps = (DeadlineStep(AT_US, REWARD_MICRO),)
        dated = replace(plain, deadlines=(Deadline(1, DeadlineClass.STRICT, steps),))
        estimated = replace(plain, estimates=(JobEstimate(1, EstimateSource.HISTORY, 50),))
        for one in (dated, estimated):
            assert schema_of((), deadlines=one.deadlines, estimates=one.estimates) == 8
            assert decode(canonical_bytes(one), Snapshot) == one
        speed = MeasuredSpeed(1000, 20, 9)
        compared = replace(
            plain, measured=(MeasuredProfile(1, (("v100", 1000),), (("v100", speed),)),)
        )
        assert schema_of((), measured=compared.measured) == 9
        assert decode(canonical_bytes(compared), Snapshot) == compared
        assert canonical_bytes(bounded)[:-1].endswith(b",[],[60000000,1800000000]")

    @pytest.mark.parametrize(
        ("least", "most", "bounds"), [(0, 0, ()), (3, 0, (3, 9)), (0, 20, (9, 20)), (3, 9, (3, 9))]
    )
    def test_bounds_are_empty_or_completed_by_lease_length(
        self, least: int, most: int, bounds: tuple[int, ...]
    ) -> None:
        assert lease_bounds_of(9, least, most) == bounds
