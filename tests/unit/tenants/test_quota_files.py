"""Test quota files: the parsed rows, errors, and periods that are cut at the current time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.input.errors import InvalidInputError
from tenants.periods import Period, QuotaTerms
from tenants.quota_files import (
    QuotaName,
    format_csv,
    format_yaml,
    peak,
    periods_from,
    quota_rows,
    read_lines,
    replace_periods,
    wanted_periods,
)

NOW = datetime(2030, 1, 10, tzinfo=UTC)
HEADER = "tenant,pool,gpu_type,gpus,from,until,mode,borrow_limit,lend_limit\n"
FOUR, EIGHT = QuotaTerms(4, "LEND_AND_BORROW"), QuotaTerms(8, "LEND", None, 2)


def day(number: int) -> datetime:
    return datetime(2030, 1, number, tzinfo=UTC)


def findings(text: str, *, is_yaml: bool = False) -> list[tuple[int | None, str]]:
    with pytest.raises(InvalidInputError) as refused:
        read_lines(text, is_yaml=is_yaml)
    return [(one.line, one.field) for one in refused.value.errors]


class TestRow:
    def test_is_read_from_csv(self) -> None:
        text = HEADER + "a,p,v100,8,2030-01-02,2030-02-01T08:00+02:00,lend,,2\n\na,p,k80,4,,,,,\n"
        first, second = read_lines(text, is_yaml=False)
        assert (first.line, first.name, first.terms) == (2, ("a", "p", "v100"), EIGHT)
        assert (first.since, first.until) == (day(2), datetime(2030, 2, 1, 6, tzinfo=UTC))
        assert (second.line, second.terms, second.since, second.until) == (4, FOUR, None, None)

    def test_is_read_from_yaml_as_from_csv(self) -> None:
        text = (
            "# reviewed\nquotas:\n"
            "  - {tenant: a, pool: p, gpu_type: v100, gpus: 8, from: 2030-01-02,\n"
            "     until: 2030-02-01T08:00+02:00, mode: LEND, borrow_limit: ~, lend_limit: 2}\n"
            "  - tenant: a\n    pool: p\n    gpu_type: k80\n    gpus: 4\n"
        )
        csv = HEADER + "a,p,v100,8,2030-01-02,2030-02-01T08:00+02:00,lend,,2\na,p,k80,4,,,,,\n"
        read = [read_lines(text, is_yaml=True), read_lines(csv, is_yaml=False)]
        told = [[(one.name, one.terms, one.since, one.until) for one in rows] for rows in read]
        assert told[0] == told[1]
        assert [one.line for one in read[0]] == [3, 5]

    @pytest.mark.parametrize(
        ("row", "field"),
        [
            (",p,v100,8,,,,,", "tenant"),
            ("a,p,v100,,,,,,", "gpus"),
            ("a,p,v100,eight,,,,,", "gpus"),
            ("a,p,v100,-1,,,,,", "gpus"),
            ("a,p,v100,1.5,,,,,", "gpus"),
            ("a,p,v100,9999999,,,,,", "gpus"),
            ("a,p,v100,8,tomorrow,,,,", "from"),
            ("a,p,v100,8,2030-01-02,2030-01-02,,,", "until"),
            ("a,p,v100,8,,,GENEROUS,,", "mode"),
            ("a,p,v100,8,,,,x,", "borrow_limit"),
            ("a,p,v100,8,,,,,-2", "lend_limit"),
            ("a,p,v100,8", ""),
            ('"a,p,v100,8,,,,,', ""),
        ],
    )
    def test_error_names_line_and_field(self, row: str, field: str) -> None:
        assert (3, field) in findings(HEADER + "b,p,v100,1,,,,,\n" + row + "\n")

    def test_overlap_names_other_line(self) -> None:
        rows = "a,p,v100,8,2030-02-01,,,,\na,p,v100,4,,2030-02-02,,,\n"
        with pytest.raises(InvalidInputError, match=r"line 2, from: overlaps with line 3"):
            read_lines(HEADER + rows, is_yaml=False)

    def test_error_does_not_hide_later_errors(self) -> None:
        assert findings(HEADER + "a,p,v100,x,,,,,\nb,p,v100,y,z,,,,\n") == [
            (2, "gpus"),
            (3, "from"),
            (3, "gpus"),
        ]


class TestFile:
    @pytest.mark.parametrize("text", ["quotas: []\n", "[]\n"])
    def test_may_be_empty_list(self, text: str) -> None:
        assert read_lines(text, is_yaml=True) == []

    def test_blank_file_is_rejected(self) -> None:
        assert findings("") == findings("", is_yaml=True) == [(0, "")]
        assert read_lines(HEADER, is_yaml=False) == []

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("quotas: 5\n", 0),
            ("quotas:\n", 0),
            ("other:\n  - {}\n", 0),
            ("- 5\n", 1),
            ("- tenant: a\n  colour: red\n", 2),
            ("- tenant: a\n  tenant: b\n", 2),
            ("- tenant: [a]\n", 1),
            ("- tenant: a\n tenant: b\n", 2),
            ("- &a [*a]\n", 1),
        ],
    )
    def test_yaml_with_wrong_structure_is_rejected(self, text: str, line: int) -> None:
        assert findings(text, is_yaml=True)[0][0] == line

    def test_wrong_header_is_rejected(self) -> None:
        assert findings("tenant,pool,gpus,colour,tenant\n") == [
            (1, "tenant"),
            (1, ""),
            (1, "gpu_type"),
        ]

    def test_round_trip_preserves_periods(self) -> None:
        name = QuotaName("a", "p", "v100")
        periods = {name: (Period(EIGHT, day(1), day(20)), Period(FOUR, day(20)))}
        rows = quota_rows(periods)
        for text, is_yaml in ((format_csv(rows), False), (format_yaml(rows), True)):
            lines = read_lines(text, is_yaml=is_yaml)
            assert [Period(one.terms, one.since or NOW, one.until) for one in lines] == list(
                periods[name]
            )


class TestReplacement:
    def test_cuts_running_period_and_keeps_past(self) -> None:
        present = (Period(FOUR, day(1)),)
        assert replace_periods(present, (Period(EIGHT, NOW),), NOW) == (
            Period(FOUR, day(1), NOW),
            Period(EIGHT, NOW),
        )

    def test_keeps_unchanged_period_in_one_piece(self) -> None:
        present = (Period(FOUR, day(1), day(20)),)
        assert replace_periods(present, (Period(FOUR, NOW),), NOW) == (Period(FOUR, day(1)),)

    def test_ends_unwanted_period_and_drops_planned_ones(self) -> None:
        present = (Period(FOUR, day(1), day(20)), Period(EIGHT, day(20)))
        assert replace_periods(present, (), NOW) == (Period(FOUR, day(1), NOW),)

    def test_starts_at_now_for_rows_from_past(self) -> None:
        text = (
            HEADER
            + "a,p,v100,4,2030-01-01,2030-01-20,,,\na,p,v100,8,2029-01-01,2029-02-01,LEND,,2\n"
        )
        assert wanted_periods(read_lines(text, is_yaml=False), NOW) == (Period(FOUR, NOW, day(20)),)

    periods = st.lists(
        st.tuples(st.integers(1, 10), st.integers(1, 5), st.sampled_from([FOUR, EIGHT])),
        max_size=5,
    )

    @given(periods, periods)
    def test_yields_wanted_periods_and_is_idempotent(
        self, old: list[tuple[int, int, QuotaTerms]], new: list[tuple[int, int, QuotaTerms]]
    ) -> None:
        """The periods have random lengths and follow one another around the current time."""
        present = tuple(p for p in laid(day(6), old) if p.until is None or p.until > NOW)
        wanted = laid(NOW, new)
        stored = replace_periods(present, wanted, NOW)
        assert periods_from(stored, NOW) == periods_from(wanted, NOW)
        assert [p for p in stored if p.since < NOW and p.until is not None and p.until <= NOW] == [
            Period(p.terms, p.since, NOW)
            for p in present
            if p.since < NOW and p.since not in {s.since for s in stored if s.until != NOW}
        ]
        assert replace_periods(stored, wanted, NOW) == stored


def laid(begin: datetime, pieces: list[tuple[int, int, QuotaTerms]]) -> tuple[Period, ...]:
    """Return periods in time order from rows of (gap, length, terms) in days."""
    periods, at = [], begin
    for gap, length, terms in pieces:
        since = at + timedelta(days=gap - 1)
        at = since + timedelta(days=length)
        periods.append(Period(terms, since, at))
    return tuple(periods)


class TestPeak:
    def test_returns_current_and_largest_sum(self) -> None:
        rows = [
            (Period(FOUR, NOW, day(20)),),
            (Period(FOUR, NOW),),
            (Period(EIGHT, day(15)),),
        ]
        assert peak(rows, NOW) == (8, 16, day(15))
        assert peak([], NOW) == (0, 0, NOW)
