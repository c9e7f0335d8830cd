"""Test rounds decided by another version of the policy or of a solver: their plans are checked."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

from evenshare_core.chain.records import read_record
from evenshare_core.disclosure import shapes
from evenshare_core.policies import registry
from evenshare_core.policies.installed import BROUGHT_BY
from evenshare_core.verification.rounds import RoundCheck, RoundFinding, verify_round
from evenshare_core.verification.verdict import Gap, ProofVerdict
from tests.unit.core.test_verify_rounds import gaps, verified, wrong
from tests.unit.verified_rounds import (
    StagedPool,
    StagedRound,
    staged_rounds,
)

PLAN = "its decision was not recomputed; only its plan was checked: "


@pytest.fixture
def pool() -> StagedPool:
    return StagedPool()


class TestOtherVersion:
    def solved(self, pool: StagedPool) -> RoundFinding:
        """Return a round of a policy with a program, whose ideals differ on this machine."""
        return verified(pool, versions=lambda name: "1.16" if name == "highspy" else "")[4]

    @pytest.fixture
    def programs(self) -> StagedPool:
        rounds = staged_rounds(6, policy="oef")
        assert rounds[4].decision.ideals
        return StagedPool(rounds)

    def moved(self, pool: StagedPool, gpus: float, objective: float = 0.0) -> None:
        """Move GPUs between the first two ideals, as another optimal solution might."""
        row = pool.rounds[4]
        first, second, *others = row.decision.ideals
        ideals = (
            replace(first, gpus=first.gpus + gpus),
            replace(second, gpus=second.gpus - gpus),
            *others,
        )
        solve = row.decision.solve
        assert solve is not None
        assert solve.objective is not None
        decision = replace(
            row.decision,
            ideals=ideals,
            solve=replace(solve, objective=solve.objective + objective),
        )
        pool.rounds[4] = StagedRound(row.snapshot, decision, row.certificate)

    def sealed(self, pool: StagedPool, **versions: str) -> StagedPool:
        def renamed(_: int, data: bytes) -> bytes:
            document = json.loads(data)
            document["versions"] |= versions
            return msgspec.json.encode(document)

        pool.seal(renamed)
        return pool

    def test_other_solver_with_same_result_is_proven(self, programs: StagedPool) -> None:
        finding = self.solved(self.sealed(programs, highspy="1.15"))
        assert finding.ok
        assert RoundCheck.DECISION in finding.recomputed
        assert finding.remarks == []

    def test_other_solver_plan_is_checked_but_not_proven(self, programs: StagedPool) -> None:
        self.moved(programs, 1e-9)
        finding = self.solved(self.sealed(programs, highspy="1.15"))
        assert RoundCheck.PLAN in finding.recomputed
        assert RoundCheck.DECISION not in finding.recomputed
        assert f"{PLAN}highspy 1.15 there, 1.16 here" in gaps(finding)[Gap.VERSION]
        assert finding.verdict() is ProofVerdict.NOT_PROVEN
        assert [row for row in finding.problems if row.check is RoundCheck.PLAN] == []

    def test_other_solver_does_not_excuse_worse_objective(self, programs: StagedPool) -> None:
        self.moved(programs, 1e-9, objective=-0.5)
        finding = self.solved(self.sealed(programs, highspy="1.15"))
        assert any("plan: the objective is" in line for line in wrong([finding])[5])

    @pytest.mark.parametrize(
        ("said", "objective", "is_fine"),
        [
            ("solved, gap 7.2 %", -0.05, True),
            ("solved, gap 7.2 %", -0.09, False),
            ("feasible: at most 7.25% below the best plan", -0.05, True),
            ("iteration limit, gap 100 %", -0.5, True),
            ("optimal", -0.05, False),
            ("solved, gap 7.2 %", 0.05, False),
        ],
    )
    def test_other_solver_may_be_worse_within_reported_gap(
        self, programs: StagedPool, said: str, objective: float, is_fine: bool
    ) -> None:
        solve = programs.rounds[4].decision.solve
        assert solve is not None
        assert solve.objective is not None
        self.moved(programs, 1e-9, objective=objective * solve.objective)
        row = programs.rounds[4]
        assert row.decision.solve is not None
        status, _, fallback = said.partition(": ")
        changed = replace(row.decision.solve, status=status, fallback=fallback)
        decision = replace(row.decision, solve=changed)
        programs.rounds[4] = StagedRound(row.snapshot, decision, row.certificate)
        finding = self.solved(self.sealed(programs, highspy="1.15"))
        problems = [row.text for row in finding.problems if row.check is RoundCheck.PLAN]
        assert any("the objective is" in text for text in problems) is not is_fine
        if is_fine:
            text = gaps(finding)[Gap.VERSION][0]
            assert f"there ({said}), {solve.objective:.9g} here ({solve.status})" in text

    def test_other_solver_does_not_excuse_infeasible_plan(self, programs: StagedPool) -> None:
        self.moved(programs, 50.0)
        finding = self.solved(self.sealed(programs, highspy="1.15"))
        assert any(line.startswith("plan: ") for line in wrong([finding])[5])

    def test_unused_solver_version_is_no_excuse(self, programs: StagedPool) -> None:
        self.moved(programs, 1e-9)
        self.sealed(programs, ortools="9.15")
        finding = verified(programs)[4]
        assert RoundCheck.PLAN not in finding.recomputed
        assert any(line.startswith("decision: ") for line in wrong([finding])[5])

    def test_same_solver_version_is_no_excuse(self, programs: StagedPool) -> None:
        self.moved(programs, 1e-9)
        findings = verified(self.sealed(programs, highspy="1.15"), versions=lambda _: "1.15")
        assert any(line.startswith("decision: ideals[0].gpus") for line in wrong(findings)[5])

    def test_solver_version_is_no_excuse_for_policy_without_solver(self, pool: StagedPool) -> None:
        self.reordered(pool)
        findings = verified(self.sealed(pool, highspy="1.15"), versions=lambda _: "1.16")
        assert any(
            line.startswith("decision: grants[0].key.tenant_rho: 0.125 there, ")
            for line in wrong(findings)[5]
        )

    def test_reports_other_policy_version(
        self, pool: StagedPool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.reordered(pool)
        pool.seal()
        there = pool.rounds[4].snapshot.policy_version
        monkeypatch.setattr(type(registry.POLICIES["ltgf"]), "version", "99")
        finding = verified(pool)[4]
        assert [row for row in finding.problems if row.check is not RoundCheck.FOLLOWS] == []
        assert gaps(finding) == {Gap.VERSION: [f"{PLAN}ltgf {there} there, 99 here"]}

    def test_other_policy_version_does_not_excuse_wrong_shares(
        self, pool: StagedPool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        row = pool.rounds[4]
        shares = row.decision.shares
        first = replace(shares[0], rho_after=0.25)
        decision = replace(row.decision, shares=(first, *shares[1:]))
        pool.rounds[4] = StagedRound(row.snapshot, decision, row.certificate)
        pool.seal()
        monkeypatch.setattr(type(registry.POLICIES["ltgf"]), "version", "99")
        text = "plan: does not follow from the plan: shares[0].rho_after: 0.25 there, "
        assert any(line.startswith(text) for line in wrong(verified(pool))[5])

    def reordered(self, pool: StagedPool) -> None:
        """Change the ranks of picks, for which only the policy knows the reasons."""
        row = pool.rounds[4]
        first, *others = row.decision.grants
        grants = (replace(first, key=replace(first.key, tenant_rho=0.125)), *others)
        decision = replace(row.decision, grants=grants)
        pool.rounds[4] = StagedRound(row.snapshot, decision, row.certificate)

    def test_reads_solver_version_from_policy_version(
        self, programs: StagedPool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.moved(programs, 1e-9, objective=-0.5)
        programs.seal()
        _, _, highs, _, glop = programs.rounds[4].snapshot.policy_version.split(" ")
        there = programs.rounds[4].snapshot.policy_version
        here = there.replace(highs, "9.9").replace(glop, "9.99")
        monkeypatch.setattr(type(registry.POLICIES["oef"]), "version", here)
        finding = verified(programs)[4]
        # OR-Tools did not solve the round.
        assert f"{PLAN}highspy {highs} there, 9.9 here" in gaps(finding)[Gap.VERSION]
        assert any("plan: the objective is" in line for line in wrong([finding])[5])

    def test_other_ortools_excuses_only_rounds_that_it_solved(
        self, programs: StagedPool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.moved(programs, 1e-9)
        there = programs.rounds[4].snapshot.policy_version
        glop = there.rpartition(" ")[2]
        here = there.replace(glop, "9.99")
        monkeypatch.setattr(type(registry.POLICIES["oef"]), "version", here)
        programs.seal()
        assert RoundCheck.PLAN not in verified(programs)[4].recomputed
        row = programs.rounds[4]
        assert row.decision.solve is not None
        solve = replace(row.decision.solve, backend="ortools")
        decision = replace(row.decision, solve=solve)
        programs.rounds[4] = StagedRound(row.snapshot, decision, row.certificate)
        programs.seal()
        finding = verified(programs)[4]
        assert f"{PLAN}ortools {glop} there, 9.99 here" in gaps(finding)[Gap.VERSION]

    def test_unknown_policy_is_not_proven_and_names_package(
        self, pool: StagedPool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The policy's memory has ids that are not declared, so the round is not proven."""
        monkeypatch.delitem(registry.POLICIES, "ltgf")
        monkeypatch.setitem(BROUGHT_BY, "ltgf", "acme-policies")
        for plan in (shapes.snapshot_plan, shapes.decision_plan):  # plans of ltgf are cached
            plan.cache_clear()
        record, before = (read_record(pool.records[n]) for n in (4, 3))
        finding = verify_round(pool.bundles[5], record, before, None)
        assert (finding.problems, finding.verdict()) == ([], ProofVerdict.NOT_PROVEN)
        [text] = gaps(finding)[Gap.VERSION]
        assert "cannot be read here: snapshot.policy: policy 'ltgf' is not installed" in text
        assert "pip install acme-policies" in text
