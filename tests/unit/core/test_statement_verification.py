"""Test statements of random histories: valid ones pass, and each manipulation is found."""

from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.domain.instants import from_us
from evenshare_core.money.fixed_point import to_text
from evenshare_core.money.revenue.factors import FactorSweep, IdleStep, integrals_of, part_of
from evenshare_core.money.revenue.idle import OPERATOR, WEIGHT_LIMIT
from evenshare_core.money.revenue.records import ClosedTerm
from evenshare_core.verification.statement import EARLIER, MISSING, verify_statement
from evenshare_core.verification.statement_rows import StatementError, read_statement
from evenshare_core.verification.verdict import Gap, Unproven
from tests.papers.test_income_by_instant import LAST_US, A, C, History, histories, idle_at

Row = dict[str, Any]
HOUR, CLOSES = "1970-01-01T00:00:00.000000Z", "1970-01-01T01:00:00.000000Z"


def instant(us: int) -> str:
    return from_us(us).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def swept(history: History) -> tuple[FactorSweep, list[ClosedTerm]]:
    sweep = FactorSweep((term.lease, term.number) for term in history.terms)
    closed = [term for event in history.events for term in sweep.feed(event)]
    return sweep, [*closed, *sweep.rest(LAST_US)]


def statement_of(history: History, tenant: int) -> Row:
    """Return the portal's answers to a tenant about the history, as plain values."""
    sweep, closed = swept(history)
    borrowed = [term for term in closed if term.borrowed]
    usage = [
        usage_row(term) for term in closed if term.tenant == tenant and term.own + term.borrowed
    ]
    income = [row for term in borrowed for row in income_rows(sweep, term, tenant)]
    idle = sweep.steps("v100", tenant, 0, LAST_US)
    paid = sum(term.amount_micro for term in borrowed if term.tenant == tenant)
    earned = sum(share.amount_micro for term in borrowed for share in term.shares
                 if share.lender == tenant)  # fmt: skip
    entry = {
        "transfer": "t", "code": "usage", "hour": HOUR, "effective_at": CLOSES,
        "paid": to_text(paid), "earned": to_text(earned),
    }  # fmt: skip
    return {
        "usage": [row for rows in usage for row in rows],
        "income": income,
        "idle": [
            {"gpu_type": "v100", "at": instant(step.at_us), "own": step.own, "total": step.total}
            for step in idle
        ],
        "prices": [],
        "entries": [entry],
    }


def usage_row(term: ClosedTerm) -> list[Row]:
    common = {
        "job": f"job {term.job}", "lease": 1, "term": term.term, "round": None, "gpu_type": "v100",
        "starts_at": instant(term.starts_us or 0), "ends_at": instant(term.ends_us), "hour": HOUR,
        "transfer": "t",
    }  # fmt: skip
    rows = []
    if term.own:
        own = {"meter": "own", "gpus": term.own, "price": "0.000000", "amount": "0.000000"}
        rows.append({**common, **own, "carried": None})
    if term.borrowed:
        rows.append({
            **common, "meter": "borrowed", "gpus": term.borrowed, "carried": term.carried,
            "price": to_text(term.price_micro), "amount": to_text(term.amount_micro),
        })  # fmt: skip
    return rows


def income_rows(sweep: FactorSweep, term: ClosedTerm, tenant: int) -> list[Row]:
    weights = [(share.lender, share.weight) for share in term.shares]
    total = sum(weight for _, weight in weights)
    span = sweep.spans[term.lease, term.term]
    then = span.of(tenant)
    return [
        {
            "gpu_type": "v100", "round": None, "gpus": term.borrowed, "carried": term.carried,
            "starts_at": instant(term.starts_us or 0), "ends_at": instant(term.ends_us),
            "price": to_text(term.price_micro), "charge": to_text(term.amount_micro),
            "weight": str(share.weight), "weights": str(total),
            "lenders": [{"name": str(lender), "weight": str(weight), "is_you": lender == tenant}
                        for lender, weight in weights],
            "rounded_up": bool(total)
            and share.amount_micro > term.amount_micro * share.weight // total,
            "earned": to_text(share.amount_micro), "hour": HOUR, "transfer": "t",
            "counts_from": instant(span.from_us), "counts_until": instant(span.until_us),
            "idle_then": None if then is None else {"own": then.own, "total": then.total},
        }
        for share in term.shares
        if share.lender == tenant
    ]  # fmt: skip


class TestRandomHistory:
    @given(histories())
    def test_valid_statements_verify(self, history: History) -> None:
        for tenant in range(A, C + 1):
            stated = statement_of(history, tenant)
            report = verify_statement(read_statement(stated))
            assert report.findings == []
            assert report.recomputed["income"] == len(stated["income"])
            assert report.recomputed["weight"] == len(stated["income"])

    @given(histories())
    def test_weights_match_slot_by_slot_model(self, history: History) -> None:
        sweep, _ = swept(history)
        for lender in range(OPERATOR, C + 1):
            steps = sweep.steps("v100", lender, 0, LAST_US)
            for term in history.terms:
                part = Fraction(0)
                for slot in range(term.starts_us, term.ends_us):
                    idle = idle_at(history, slot)
                    alone = Fraction(lender == OPERATOR)
                    total = sum(idle.values())
                    part += Fraction(idle.get(lender, 0), total) if total else alone
                if term.ends_us > term.starts_us:
                    assert part == part_of(
                        steps, term.starts_us, term.ends_us, is_operator=lender == OPERATOR
                    )

    @given(histories(), st.data())
    def test_finds_changed_income_charge_or_idle_total(
        self, history: History, data: st.DataObject
    ) -> None:
        tenant = data.draw(st.integers(A, C))
        honest = statement_of(history, tenant)
        for name, field in (("income", "earned"), ("usage", "amount"), ("income", "charge")):
            if honest[name]:
                stated = copy.deepcopy(honest)
                row = data.draw(st.sampled_from(stated[name]))
                row[field] = to_text(_micro(row[field]) + 1)
                assert verify_statement(read_statement(stated)).findings
        for index, step in enumerate(honest["idle"]):
            stated = copy.deepcopy(honest)
            stated["idle"][index]["total"] = step["total"] + 1
            if any(_counts(row, honest["idle"], index) for row in honest["income"]):
                problems = verify_statement(read_statement(stated)).findings
                assert "weight" in {finding.what for finding in problems}


def _micro(text: str) -> int:
    return int(text.replace(".", ""))


def _counts(row: Row, idle: list[Row], index: int) -> bool:
    """Return whether a step of the tenant's idle quota is part of a row's weight."""
    until = idle[index + 1]["at"] if index + 1 < len(idle) else instant(LAST_US)
    overlaps = max(idle[index]["at"], row["counts_from"]) < min(until, row["counts_until"])
    return bool(overlaps and idle[index]["own"])


class TestLongWeights:
    def test_weight_tolerance_is_one_unit_of_18_places(self) -> None:
        part = Fraction(1, 3)
        noted = int(part * WEIGHT_LIMIT)
        row: Row = {
            "gpu_type": "v100", "round": None, "gpus": 1, "carried": 0,
            "starts_at": instant(0), "ends_at": instant(30), "price": "0.000000",
            "charge": "0.000000", "weight": str(noted), "weights": str(WEIGHT_LIMIT),
            "lenders": None, "rounded_up": False, "earned": "0.000000", "hour": HOUR,
            "transfer": None, "counts_from": instant(0), "counts_until": instant(30),
            "idle_then": None,
        }  # fmt: skip
        idle = [{"gpu_type": "v100", "at": instant(0), "own": 1, "total": 3}]
        answers: Row = {"usage": [], "income": [row], "idle": idle, "prices": [], "entries": []}
        for moved, is_wrong in ((0, False), (1, False), (2, True), (-1, True)):
            row["weight"] = str(noted + moved)
            problems = verify_statement(read_statement(answers)).findings
            assert [finding.what for finding in problems] == ["weight"] * is_wrong


def found_in(**rows: list[Row]) -> set[str]:
    """Return the rules that a statement of these rows violates."""
    answers: Row = {"usage": [], "income": [], "idle": [], "prices": [], "entries": []}
    return {one.what for one in verify_statement(read_statement(answers | rows)).findings}


class TestSingleField:
    """Fields that only one rule checks."""

    income: Row = {
        "gpu_type": "v100", "round": None, "gpus": 1, "carried": 0,
        "starts_at": instant(0), "ends_at": instant(3_600_000_000), "price": "0.000004",
        "charge": "0.000004", "weight": "1", "weights": "2", "lenders": None, "rounded_up": False,
        "earned": "0.000002", "hour": HOUR, "transfer": None, "counts_from": instant(0),
        "counts_until": instant(3_600_000_000), "idle_then": None,
    }  # fmt: skip
    usage: Row = {
        "job": "a", "lease": 1, "term": 1, "round": None, "gpu_type": "v100", "meter": "borrowed",
        "gpus": 1, "price": "0.000004", "amount": "0.000004", "carried": 0, "hour": HOUR,
        "starts_at": instant(0), "ends_at": instant(3_600_000_000), "transfer": None,
    }  # fmt: skip
    idle: tuple[Row, ...] = ({"gpu_type": "v100", "at": instant(0), "own": 1, "total": 2},)

    def test_unchanged_rows_have_no_findings(self) -> None:
        assert found_in(income=[self.income], usage=[self.usage], idle=[*self.idle]) == set()

    def test_finds_rounding_up_without_remainder(self) -> None:
        row = {**self.income, "rounded_up": True, "earned": "0.000003"}
        assert found_in(income=[row], idle=[*self.idle]) == {"income"}

    def test_finds_incomplete_sum_of_lender_weights(self) -> None:
        lenders = [
            {"name": "a", "weight": "1", "is_you": True},
            {"name": "b", "weight": "2", "is_you": False},
        ]
        row = {**self.income, "lenders": lenders}
        assert "sum of the weights" in found_in(income=[row], idle=[*self.idle])

    def test_finds_carried_remainder_in_first_term(self) -> None:
        assert found_in(usage=[{**self.usage, "carried": 5}]) == {"carried remainder"}

    def test_carried_remainder_of_earlier_lease_is_not_recomputed(self) -> None:
        answers: Row = {"income": [], "idle": [], "prices": [], "entries": []}
        row = {**self.usage, "term": 2, "carried": 5}
        report = verify_statement(read_statement({**answers, "usage": [row]}))
        assert report.not_recomputed[EARLIER] == 1
        assert report.recomputed["charge"] == 1

    def test_term_after_missing_term_is_not_proven(self) -> None:
        answers: Row = {"income": [], "idle": [], "prices": [], "entries": []}
        rows = [{**self.usage, "term": term} for term in (1, 2, 4)]
        report = verify_statement(read_statement({**answers, "usage": rows}))
        assert Unproven(Gap.ROWS, MISSING) in report.unproven
        assert report.not_recomputed[EARLIER] == 0
        whole = verify_statement(read_statement({**answers, "usage": rows[:2]}))
        assert Gap.ROWS not in {row.gap for row in whole.unproven}

    @pytest.mark.parametrize("field", ["price", "amount"])
    def test_finds_cost_of_own_gpus(self, field: str) -> None:
        free = {"meter": "own", "price": "0.000000", "amount": "0.000000", "carried": None}
        assert found_in(usage=[{**self.usage, **free}]) == set()
        row = {**self.usage, **free, field: "0.000001"}
        assert found_in(usage=[row]) == {"own GPUs are free"}


class TestTermPrice:
    PRICE: Row = {
        "gpu_type": "v100", "price": "2.000000", "used": 1, "capacity": 1, "base": "2.000000",
        "theta": "2.000", "surcharge": None, "valid_from_round": 2,
    }  # fmt: skip

    @pytest.mark.parametrize(
        ("round_", "price", "again"),
        [(1, "0.000000", None), (1, "2.000000", "0.000000"), (2, "2.000000", None),
         (3, "0.000000", "2.000000")],
    )  # fmt: skip
    def test_is_last_price_posted_before_round_or_zero(
        self, round_: int, price: str, again: str | None
    ) -> None:
        usage = {**TestSingleField.usage, "round": round_, "price": price, "amount": price}
        income = {
            **TestSingleField.income, "round": round_, "price": price, "charge": price,
            "earned": "0.000000", "weight": "0", "weights": "0", "counts_from": None,
        }  # fmt: skip
        answers: Row = {"usage": [usage], "income": [income], "idle": [], "entries": []}
        report = verify_statement(read_statement({**answers, "prices": [self.PRICE]}))
        assert report.recomputed["price of a term"] == 2
        assert not [why for why in report.not_recomputed if "price" in why]
        assert [(one.what, one.stated, one.recomputed) for one in report.findings] == [
            ("price of a term", price, again)
        ] * (2 if again else 0)


class TestIdleSteps:
    STEPS = (IdleStep(0, 1, 2), IdleStep(10, 0, 0), IdleStep(20, 3, 3))

    def test_give_parts_and_integrals(self) -> None:
        assert part_of(self.STEPS, 5, 25) == Fraction(5, 2) + 5
        assert part_of(self.STEPS, 5, 25, is_operator=True) == Fraction(5, 2) + 10 + 5
        assert integrals_of(self.STEPS, 5, 25) == (5 + 15, 10 + 15)
        assert part_of(self.STEPS, 25, 25) == 0

    def test_reject_steps_that_begin_too_late(self) -> None:
        with pytest.raises(ValueError, match="reach back"):
            part_of(self.STEPS[1:], 5, 25)


class TestUnreadableRows:
    GOOD: Row = {"usage": [], "income": [], "idle": [], "prices": [], "entries": []}

    @pytest.mark.parametrize(
        ("part", "field"),
        [
            ({"usage": None}, "usage"),
            ({"entries": [{"transfer": "t"}]}, r"entries\[0\]"),
            ({"idle": [{"gpu_type": "v", "at": "soon", "own": 1, "total": 1}]}, r"idle\[0\]"),
            ({"idle": [{"gpu_type": "v", "at": "2030-01-01", "own": 1, "total": 1}]}, "zone"),
            ({"idle": [{"gpu_type": "v", "at": HOUR, "own": n, "total": 1} for n in (0, 1)]},
             r"idle\[1\]"),
        ],
    )  # fmt: skip
    def test_error_names_field(self, part: Row, field: str) -> None:
        with pytest.raises(StatementError, match=field):
            read_statement({**self.GOOD, **part})
