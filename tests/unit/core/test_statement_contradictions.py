"""Test that contradicting rows of a statement are found, even if each row is consistent.

The cases change each field of valid statements. If a change is accepted, it must be irrelevant.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core import test_statement_verification as verification

Row = dict[str, Any]
HOUR, CLOSES, LATER = verification.HOUR, verification.CLOSES, "1970-01-01T02:00:00.000000Z"
USAGE: Row = {**verification.TestSingleField.usage, "transfer": "t"}
ENTRY: Row = {
    "transfer": "t", "code": "usage", "hour": HOUR, "effective_at": CLOSES,
    "paid": "0.000004", "earned": "0.000000", "earned_borne": "0.000000",
}  # fmt: skip
IDLE: Row = {"gpu_type": "v100", "at": HOUR, "own": 1, "total": 2}
# Rounds were late. The borrower paid 4 of 8 micro-credits, and the operator paid 2 of the 4 that
# the lender earned.
LATE: Row = {
    **verification.TestSingleField.income,
    "price": "0.000008", "charge": "0.000008", "earned": "0.000004", "transfer": "t",
    "charged_until": verification.instant(1_800_000_000),
    "borne": "0.000004", "earned_borne": "0.000002",
    "lenders": [{"name": "a", "weight": "1", "is_you": True},
                {"name": "b", "weight": "1", "is_you": False}],
}  # fmt: skip
EARNED: Row = {**ENTRY, "paid": "0.000000", "earned": "0.000004", "earned_borne": "0.000002"}
SECOND: Row = {**USAGE, "term": 2, "starts_at": CLOSES, "ends_at": LATER, "amount": "0.000004"}
found_in = verification.found_in


class TestCharge:
    def test_single_settlement_is_consistent(self) -> None:
        assert found_in(usage=[USAGE], entries=[ENTRY]) == set()
        both = {**ENTRY, "paid": "0.000008"}
        assert found_in(usage=[USAGE, SECOND], entries=[both]) == set()

    @pytest.mark.parametrize(
        ("more", "what"),
        [
            (ENTRY, "settlement"),
            ({**ENTRY, "transfer": "another"}, "settlement of charges"),
        ],
    )
    def test_finds_charge_settled_twice(self, more: Row, what: str) -> None:
        assert what in found_in(usage=[USAGE], entries=[ENTRY, more])

    def test_finds_transfer_that_differs_from_settlement_of_hour(self) -> None:
        row = {**USAGE, "transfer": "another"}
        assert found_in(usage=[row], entries=[ENTRY]) == {"settlement of charges"}

    def test_finds_settlement_before_end_of_hour(self) -> None:
        row = {**ENTRY, "effective_at": HOUR}
        assert found_in(usage=[USAGE], entries=[row]) == {"settlement"}

    def test_finds_term_listed_twice(self) -> None:
        open_ = {**USAGE, "transfer": None}
        assert found_in(usage=[open_, open_]) == {"usage"}

    @pytest.mark.parametrize("starts_at", [verification.instant(1), LATER])
    def test_finds_terms_with_overlap_or_gap(self, starts_at: str) -> None:
        """The other fields may still agree, with more time and more credits."""
        row = {**SECOND, "starts_at": starts_at}
        assert "times of a term" in found_in(usage=[USAGE, row])

    def test_finds_operator_payment_without_late_round(self) -> None:
        row = {**USAGE, "borne": "0.000001"}
        assert found_in(usage=[row], entries=[ENTRY]) == {"late rounds"}


class TestIncome:
    def test_income_partly_paid_by_operator_is_consistent(self) -> None:
        assert found_in(income=[LATE], idle=[IDLE], entries=[EARNED]) == set()
        hidden = {**LATE, "lenders": None}
        assert found_in(income=[hidden], idle=[IDLE], entries=[EARNED]) == set()

    @pytest.mark.parametrize("lenders", [LATE["lenders"], None])
    @pytest.mark.parametrize(
        "change",
        [
            {"borne": "0.000003"},
            {"borne": "0.000000"},
            {"earned_borne": "0.000001"},
            {"earned_borne": "0.000003"},
            {"earned_borne": None},
            {"charged_until": None},
            {"charged_until": CLOSES},
            {"charged_until": None, "borne": "0.000000"},
            {"charged_until": None, "borne": "0.000000", "earned_borne": "0.000000"},
            {"hour": CLOSES},
            {"charge": "-0.000008"},
        ],
    )
    def test_finds_inconsistent_fields(self, change: Row, lenders: object) -> None:
        row = {**LATE, "lenders": lenders, **change}
        assert found_in(income=[row], idle=[IDLE], entries=[EARNED])

    def test_finds_operator_payment_in_only_some_rows(self) -> None:
        """Statements of older portals have it in no row."""
        fields = ("charged_until", "borne", "earned_borne")
        income, entry = (
            {key: value for key, value in row.items() if key not in fields}
            for row in (LATE, EARNED)
        )
        assert found_in(income=[income], idle=[IDLE], entries=[entry]) == set()
        for rows in ((income, EARNED), (LATE, entry)):
            found = found_in(income=[rows[0]], idle=[IDLE], entries=[rows[1]])
            assert "paid by the operator" in found
