"""Test that parts of a decision that were not applied are recorded with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as with_fields

import pytest
from msgspec.structs import replace

from evenshare_core.disclosure.bundle import Disclosed, read_bundle
from evenshare_core.domain.decision import Decision, Grant, Preemption
from evenshare_core.domain.entitlements import Tenant
from evenshare_core.domain.reasons import PreemptionRule, SupersededReason
from evenshare_core.verification.carried_out import superseded_breaks, superseded_gaps
from evenshare_core.verification.rounds import RoundCheck, RoundFinding
from evenshare_core.verification.texts import round_line
from evenshare_core.verification.verdict import Gap, ProofVerdict
from tests.unit.core.test_verify_rounds import gaps, verified, wrong
from tests.unit.verified_rounds import StagedPool, staged_rounds

Why = SupersededReason
Round = Disclosed
LOST = 4  # the round whose two grants are not applied
FULL = 6  # a round that grants, renews and ends


def refused(why: str) -> StagedPool:
    """Return the rounds of a pool; in one of them, no grant was applied."""
    jobs = {grant.job for grant in staged_rounds(LOST)[-1].decision.grants}

    def left_out(grant: Grant) -> str | None:
        return why if grant.job in jobs else None

    return StagedPool(staged_rounds(LOST + 1, left_out=left_out))


def lost(pool: StagedPool) -> RoundFinding:
    return verified(pool)[LOST - 1]


class TestUnappliedGrant:
    @pytest.mark.parametrize("why", ["", "  "])
    def test_reports_problem_without_reason(self, why: str) -> None:
        finding = lost(refused(why))
        assert [row.check for row in finding.problems] == [RoundCheck.CARRIED] * 2
        assert all("no reason is given" in row.text for row in finding.problems)

    def test_unknown_reason_is_not_proven(self) -> None:
        finding = lost(refused("it rained"))
        texts = gaps(finding)[Gap.SUPERSEDED]
        assert all("a reason that is not known here: 'it rained'" in text for text in texts)
        assert finding.verdict() is ProofVerdict.NOT_PROVEN

    def test_reason_without_evidence_is_not_proven(self) -> None:
        finding = lost(refused(Why.JOB_GONE))
        assert wrong([finding]) == {}
        texts = gaps(finding)[Gap.SUPERSEDED]
        text = "(the job no longer waited), which round 5 does not show"
        assert [text in one for one in texts] == [True, True]

    def test_newest_round_is_not_proven_yet(self) -> None:
        pool = refused(Why.JOB_GONE)
        del pool.rounds[LOST:]
        pool.seal()
        assert "the round after is not at hand" in gaps(lost(pool))[Gap.SUPERSEDED][0]

    def test_figures_show_decided_and_held_gpus(self) -> None:
        finding = lost(refused(Why.NODE_GONE))
        figures = finding.figures
        assert figures is not None
        assert (figures.grants, figures.not_carried_out) == (2, 2)
        claim = next(claim for claim in figures.claims if claim.gpu_type == "slow")
        assert (claim.own + claim.borrowed, claim.held) == (2, 0)
        line = round_line(finding)
        assert "2 own + 0 borrowed decided, 0 held" in line
        assert "2 grants, 0 renewals decided, 2 not carried out" in line


@pytest.fixture(scope="module")
def rounds() -> tuple[Round, Round]:
    """Return a round with grants, renewals and ends, and the next round; all terms are borrowed."""
    pool = StagedPool(staged_rounds(FULL + 1))
    before, after = read_bundle(pool.bundles[FULL]), read_bundle(pool.bundles[FULL + 1])
    decision = replace(
        before.decision,
        grants=tuple(replace(row, borrowed=1, price_micro=5) for row in before.decision.grants),
        renewals=tuple(replace(row, borrowed=1, price_micro=5) for row in before.decision.renewals),
    )
    return with_fields(before, decision=decision), after


def job_gone(_: Round, after: Round, job: int) -> Round:
    snapshot = after.snapshot
    kept = tuple(row for row in snapshot.jobs if row.id != job)
    return with_fields(after, snapshot=replace(snapshot, jobs=kept))


def node_smaller(_: Round, after: Round, __: int) -> Round:
    nodes = tuple(replace(node, gpus=node.gpus - 1) for node in after.snapshot.nodes)
    return with_fields(after, snapshot=replace(after.snapshot, nodes=nodes))


def no_leases(_: Round, after: Round, __: int) -> Round:
    return with_fields(after, snapshot=replace(after.snapshot, leases=()))


def no_credit(_: Round, after: Round, __: int) -> Round:
    tenants = tuple(Tenant(row.id, -1) for row in after.snapshot.tenants)
    return with_fields(after, snapshot=replace(after.snapshot, tenants=tenants))


Bend = Callable[[Round, Round, int], Round]
SHOWN: tuple[tuple[str, Why, Bend], ...] = (
    ("grant", Why.JOB_GONE, job_gone),
    ("grant", Why.NODE_GONE, node_smaller),
    ("grant", Why.CREDIT, no_credit),
    ("grant", Why.BUDGET, no_credit),
    ("renewal", Why.UNSTORABLE, no_credit),
    ("renewal", Why.LEASE_ENDED, no_leases),
    ("end", Why.LEASE_ENDED, no_leases),
)


def item_of(decision: Decision, item: str) -> tuple[int, int]:
    """Return the id that a `superseded` row gives to the first item of this kind, and its job."""
    if item == "grant":
        return decision.grants[0].job, decision.grants[0].job
    rows = decision.renewals if item == "renewal" else decision.ends
    return rows[0].lease, rows[0].job


class TestReason:
    @pytest.mark.parametrize(("item", "why", "bend"), SHOWN)
    def test_is_proven_by_next_round(
        self, rounds: tuple[Round, Round], item: str, why: Why, bend: Bend
    ) -> None:
        before, after = rounds
        id_, job = item_of(before.decision, item)
        row = {"item": item, "id": id_, "why": why.value}
        here = with_fields(before, superseded=(row,))
        name = before.names.jobs[job - 1]
        there = after.names.jobs.index(name) + 1 if name in after.names.jobs else 0
        assert list(superseded_gaps(here, bend(here, after, there))) == []
        assert list(superseded_breaks(here)) == []

    def test_spared_lease_requires_its_preempting_grant(self, rounds: tuple[Round, Round]) -> None:
        before, after = rounds
        end, grant = before.decision.ends[0], before.decision.grants[0]
        lease = next(row for row in before.snapshot.leases if row.id == end.lease)
        name = before.names.jobs[end.job - 1]
        goes_on = replace(lease, job=after.names.jobs.index(name) + 1)
        there = with_fields(after, snapshot=replace(after.snapshot, leases=(goes_on,)))
        made_way = Preemption(
            end.lease, end.job, end.tenant, PreemptionRule.GANG, grant.job, grant.tenant
        )
        decision = replace(before.decision, preemptions=(made_way,))
        spared = {"item": "end", "id": end.lease, "why": Why.SPARED_NODE_GONE.value}
        other = {"item": "grant", "id": grant.job, "why": Why.NODE_GONE.value}
        alone = with_fields(before, decision=decision, superseded=(spared,))
        assert len(list(superseded_gaps(alone, there))) == 1
        both = with_fields(alone, superseded=(spared, other))
        assert list(superseded_gaps(both, node_smaller(both, there, 0))) == []
        gone = with_fields(there, snapshot=replace(there.snapshot, leases=()))
        assert len(list(superseded_gaps(both, node_smaller(both, gone, 0)))) == 1

    def test_reason_of_other_item_kind_is_unknown(self, rounds: tuple[Round, Round]) -> None:
        before, after = rounds
        row = {"item": "end", "id": before.decision.ends[0].lease, "why": Why.CREDIT.value}
        [text] = superseded_gaps(with_fields(before, superseded=(row,)), after)
        assert "not known here" in text

    def test_reports_item_that_was_never_decided(self, rounds: tuple[Round, Round]) -> None:
        """A "superseded" renewal that was never decided could hide the end of a lease."""
        before, _ = rounds
        id_ = before.decision.ends[0].lease
        row = {"item": "renewal", "id": id_, "why": Why.LEASE_ENDED.value}
        [text] = superseded_breaks(with_fields(before, superseded=(row,)))
        assert text.endswith("was not decided")
