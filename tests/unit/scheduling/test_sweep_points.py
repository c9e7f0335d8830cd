"""Test arrays, matrices, their points, and the commands made from them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.requests.sweep_points import (
    COMBINATIONS_MAX,
    POINTS_MAX,
    ROWS_MAX,
    ArraySpec,
    SweepPoint,
    filled_command,
    joined_row,
    matrix_rows,
    parse_array,
    read_array_field,
    read_matrix_field,
    read_rows_field,
    split_row,
    sweep_points,
)
from scheduling.requests.sweeps import SWEEP_FIELDS, SweepRequest, is_sweep
from tenants.input.errors import FieldErrors, InvalidInputError
from tenants.input.requests import read_request


def errors_of(errors: FieldErrors) -> list[tuple[str, str]]:
    return [(error.field, error.reason) for error in errors]


class TestArray:
    @pytest.mark.parametrize(
        ("text", "indices", "at_once"),
        [
            ("", (), None),
            ("7", (7,), None),
            ("0-3", (0, 1, 2, 3), None),
            ("0-9%3", tuple(range(10)), 3),
            ("0-99:10", tuple(range(0, 100, 10)), None),
            ("0-5:10", (0,), None),
            ("4,1,7", (1, 4, 7), None),
            ("1-3,2-4%1", (1, 2, 3, 4), 1),
            (" 0 - 2 , 5 % 2 ", (0, 1, 2, 5), 2),
            ("0-999", tuple(range(1000)), None),
            ("999999", (999_999,), None),
        ],
    )
    def test_is_parsed_as_in_slurm(
        self, text: str, indices: tuple[int, ...], at_once: int | None
    ) -> None:
        errors = FieldErrors()
        assert parse_array(text, errors) == ArraySpec(indices, at_once)
        assert not errors

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("a", "cannot be read at 'a'"),
            ("1,,2", "cannot be read at ''"),
            ("-3", "cannot be read at '-3'"),
            ("1-2-3", "cannot be read at '1-2-3'"),
            ("0-9:0", "has the step 0 in '0-9:0'"),
            ("9-0", "ends before it starts in '9-0'"),
            ("1000000", "has an index above 999,999 in '1000000'"),
            ("0-9%", "has no whole number from 1 after %"),
            ("0-9%0", "has no whole number from 1 after %"),
            ("0-9%x", "has no whole number from 1 after %"),
            ("%3", "cannot be read at ''"),
            ("0-1000", "makes more than 1,000 jobs"),
            ("0-999999", "makes more than 1,000 jobs"),
            ("0-600,700-1200", "makes more than 1,000 jobs"),
        ],
    )
    def test_is_refused_with_reason(self, text: str, reason: str) -> None:
        errors = FieldErrors()
        assert parse_array(text, errors) == ArraySpec()
        assert errors_of(errors) == [("array", reason)]

    def test_accepts_one_number_and_no_other_type(self) -> None:
        errors = FieldErrors()
        assert read_array_field({"array": 5}, errors) == "5"
        assert not errors
        refused: tuple[object, ...] = (True, 1.5, [1], {})
        for bad in refused:
            errors = FieldErrors()
            assert read_array_field({"array": bad}, errors) == ""
            assert errors_of(errors) == [("array", "must be a text")]

    @given(st.text(alphabet="0123456789-,:% a", max_size=30))
    def test_never_makes_too_many_jobs_or_raises(self, text: str) -> None:
        spec = parse_array(text, FieldErrors())
        assert len(spec.indices) <= POINTS_MAX
        assert list(spec.indices) == sorted(set(spec.indices))


class TestMatrix:
    @pytest.mark.parametrize(
        ("given", "values"),
        [
            ([0.1, 1e-5, 3, True, "a b"], ("0.1", "1e-05", "3", "true", "a b")),
            ("0.10, x", ("0.10", "x")),
            (5, ("5",)),
        ],
    )
    def test_values_become_texts(self, given: object, values: tuple[str, ...]) -> None:
        errors = FieldErrors()
        assert read_matrix_field({"matrix": {"lr": given}}, errors) == {"lr": values}
        assert not errors

    @pytest.mark.parametrize(
        ("matrix", "field"),
        [
            ([], "matrix"),
            ({"lr": []}, "matrix.lr"),
            ({"lr": {}}, "matrix.lr"),
            ({"lr": [[1]]}, "matrix.lr[0]"),
            ({"lr": ["a", "two\nlines"]}, "matrix.lr[1]"),
            ({"lr": ["x" * 201]}, "matrix.lr[0]"),
            ({"lr": "[" * 100_000}, "matrix.lr[0]"),
            ({"lr": ["1", 1]}, "matrix.lr"),
            ({"lr": list(range(1001))}, "matrix.lr"),
            ({"l r": [1]}, "matrix.l r"),
            ({"index": [1]}, "matrix.index"),
            ({"PATH": [1]}, "matrix.PATH"),
            ({"EVENSHARE_X": [1]}, "matrix.EVENSHARE_X"),
            ({f"p{i}": [1] for i in range(21)}, "matrix"),
        ],
    )
    def test_refuses_what_is_no_parameter(self, matrix: object, field: str) -> None:
        errors = FieldErrors()
        read_matrix_field({"matrix": matrix}, errors)
        assert [error.field for error in errors] == [field]


class TestPoints:
    def test_are_indices_of_array(self) -> None:
        points = sweep_points(ArraySpec((3, 5)), {}, FieldErrors())
        assert points == (SweepPoint(3, {}), SweepPoint(5, {}))

    def test_are_combinations_with_last_parameter_first(self) -> None:
        points = sweep_points(ArraySpec(), {"lr": ["1", "2"], "seed": ["7", "8"]}, FieldErrors())
        rows = [(point.index, *point.parameters.values()) for point in points]
        assert rows == [(0, "1", "7"), (1, "1", "8"), (2, "2", "7"), (3, "2", "8")]

    def test_run_each_combination_for_each_index(self) -> None:
        points = sweep_points(ArraySpec((4, 6)), {"lr": ["1", "2"]}, FieldErrors())
        rows = [(point.index, point.parameters["lr"]) for point in points]
        assert rows == [(4, "1"), (6, "1"), (4, "2"), (6, "2")]

    def test_are_at_most_a_thousand(self) -> None:
        errors = FieldErrors()
        matrix = {f"p{i}": ["1", "2"] for i in range(20)}
        assert sweep_points(ArraySpec(), matrix, errors) == ()
        assert errors_of(errors) == [("matrix", "makes more than 1,000 jobs")]
        errors = FieldErrors()
        array = ArraySpec(tuple(range(501)))
        assert sweep_points(array, {"lr": ["1", "2"]}, errors) == ()
        assert errors_of(errors) == [("matrix", "makes more than 1,000 jobs")]

    def test_are_none_without_array_and_matrix(self) -> None:
        assert sweep_points(ArraySpec(), {}, FieldErrors()) == ()


class TestIncludeAndExclude:
    def test_expand_example_of_github(self) -> None:
        # docs.github.com, "Expanding or adding matrix configurations".
        include = [
            {"color": "green"},
            {"color": "pink", "animal": "cat"},
            {"fruit": "apple", "shape": "circle"},
            {"fruit": "banana"},
            {"fruit": "banana", "animal": "cat"},
        ]
        matrix = {"fruit": ["apple", "pear"], "animal": ["cat", "dog"]}
        assert [" ".join(row.values()) for row in matrix_rows(matrix, include)] == [
            "apple cat pink circle", "apple dog green circle", "pear cat pink", "pear dog green",
            "banana", "banana cat",
        ]  # fmt: skip # rows of what belongs together

    def test_excluded_combinations_have_all_values_of_a_rule(self) -> None:
        matrix = {"lr": ["1", "2"], "seed": ["7", "8"]}
        exclude = [{"lr": "2", "seed": "8"}, {"lr": "1"}]
        points = sweep_points(ArraySpec((4, 6)), matrix, FieldErrors(), exclude=exclude)
        row = {"lr": "2", "seed": "7"}
        assert points == (SweepPoint(4, row), SweepPoint(6, row))

    def test_include_alone_lists_the_jobs(self) -> None:
        rows = ({"lr": "1"}, {"lr": "1", "seed": "7"})
        points = sweep_points(ArraySpec(), {}, FieldErrors(), include=rows)
        assert points == (SweepPoint(0, rows[0]), SweepPoint(1, rows[1]))

    @pytest.mark.parametrize(
        ("matrix", "rules", "field", "reason"),
        [
            ({"lr": ["1"]}, {"exclude": [{"lr": "1"}]}, "exclude", "leaves no job"),
            ({"lr": ["1"]}, {"exclude": [{"l": "1"}]}, "exclude[0].l", "is not in the matrix"),
            ({}, {"exclude": [{"lr": "1"}]}, "exclude[0].lr", "is not in the matrix"),
            (
                {f"p{i}": list(map(str, range(10))) for i in range(5)},
                {"exclude": [{"p0": "1"}]},
                "matrix",
                f"has more than {COMBINATIONS_MAX:,} combinations",
            ),
            (
                {f"p{i}": list(map(str, range(10))) for i in range(4)},
                {"exclude": [{"p0": "1"}]},
                "matrix",
                "makes more than 1,000 jobs",
            ),
            (
                {f"p{i}": ["1"] for i in range(20)},
                {"include": [{"more": "1"}]},
                "include",
                "makes more than 20 parameters",
            ),
        ],
    )
    def test_are_refused_with_field_and_reason(
        self, matrix: Any, rules: Any, field: str, reason: str
    ) -> None:
        errors = FieldErrors()
        assert sweep_points(ArraySpec(), matrix, errors, **rules) == ()
        assert errors_of(errors) == [(field, reason)]

    def test_are_bounded_with_an_array(self) -> None:
        errors = FieldErrors()
        array, matrix = ArraySpec(tuple(range(500))), {"lr": ["1", "2"]}
        assert len(sweep_points(array, matrix, errors, include=[{"lr": "1"}])) == 1000
        assert sweep_points(array, matrix, errors, include=[{"lr": "3"}]) == ()
        assert errors_of(errors) == [("matrix", "makes more than 1,000 jobs")]

    @given(
        st.dictionaries(st.sampled_from("abc"), st.lists(st.sampled_from("123"), unique=True)),
        st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from("123"), min_size=1)),
    )
    def test_never_change_a_value_of_the_matrix(
        self, matrix: dict[str, list[str]], include: list[dict[str, str]]
    ) -> None:
        plain, rows = matrix_rows(matrix), matrix_rows(matrix, include)
        for before, after in zip(plain, rows, strict=False):
            assert before.items() <= after.items()
        assert all(row in include for row in rows[len(plain) :])

    def test_are_read_beside_and_in_the_matrix(self) -> None:
        read, errors = read_rows_field("exclude"), FieldErrors()
        rule = {"lr": 0.1, "seed": True}
        nested = {"matrix": {"lr": ["1"], "exclude": [rule]}}
        want = ({"lr": "0.1", "seed": "true"},)
        assert read({"exclude": [rule]}, errors) == read(nested, errors) == want
        assert read({"exclude": ["lr=0.1, seed=true"]}, errors) == want
        assert read_matrix_field(nested, errors) == {"lr": ("1",)}
        assert not errors
        read({**nested, "exclude": [rule]}, errors)
        assert errors_of(errors) == [("exclude", "is in the matrix too")]

    @pytest.mark.parametrize(
        ("rows", "field"),
        [
            ({}, "include"),
            ("lr=1", "include"),
            ([{}] * (ROWS_MAX + 1), "include"),
            ([{}], "include[0]"),
            ([5], "include[0]"),
            (["lr"], "include[0]"),
            (["lr=1,lr=2"], "include[0]"),
            (["{" * 100_000], "include[0]"),
            ([{"lr": 1}, {"l r": 1}], "include[1].l r"),
            ([{"index": 1}], "include[0].index"),
            ([{"lr": ["1"]}], "include[0].lr"),
            ([{"lr": "x" * 201}], "include[0].lr"),
            ([{f"p{i}": 1 for i in range(21)}], "include[0]"),
        ],
    )
    def test_refuse_what_is_no_row(self, rows: object, field: str) -> None:
        errors = FieldErrors()
        read_rows_field("include")({"include": rows}, errors)
        assert [error.field for error in errors] == [field]

    @given(st.dictionaries(st.text(max_size=3), st.text(max_size=3), min_size=1, max_size=3))
    def test_rows_as_text_keep_their_values(self, row: dict[str, str]) -> None:
        assert split_row(joined_row(row)) == row


class TestCommand:
    def test_gets_values_of_its_point(self) -> None:
        errors = FieldErrors()
        words = ["t.py", "--lr={{ lr }}", "{{index}}", "{{ lr }}{{index}}", "{lr}", "{{ }}"]
        filled = filled_command(words, SweepPoint(4, {"lr": "{{ index }}"}), errors)
        # Values are not filled again.
        assert filled == ("t.py", "--lr={{ index }}", "4", "{{ index }}4", "{lr}", "{{ }}")
        assert not errors

    def test_joins_placeholders_that_were_split_into_words(self) -> None:
        errors = FieldErrors()
        text = "t --lr={{ lr }}{{ index }}.txt {{lr }} { lr } {{.Names}}"
        filled = filled_command(text.split(), SweepPoint(4, {"lr": "0.1"}), errors)
        assert filled == ("t", "--lr=0.14.txt", "0.1", "{", "lr", "}", "{{.Names}}")
        assert not errors

    @pytest.mark.parametrize("command", ["t {{", "t {{ lr", "t {{ learning-rate }}"])
    def test_refuses_placeholder_without_parameter(self, command: str) -> None:
        errors = FieldErrors()
        filled_command(command.split(), SweepPoint(4, {"lr": "1"}), errors)
        (error,) = errors
        assert error.reason == "has {{ without the name of a parameter and }}"

    def test_refuses_unknown_parameter(self) -> None:
        errors = FieldErrors()
        filled_command(["{{ rate }}"], SweepPoint(4, {"lr": "1"}), errors)
        (error,) = errors
        assert (error.field, error.reason) == ("command", "names the unknown parameter rate")
        assert error.hint == "Parameters: lr, index."


class TestRequest:
    def test_has_fields_of_job_and_its_own(self) -> None:
        assert SWEEP_FIELDS == ("array", "matrix", "include", "exclude", "at_once")
        with pytest.raises(InvalidInputError) as refused:
            read_request(SweepRequest, {"gpus": 1, "array": "x", "at_once": 0, "tasks": 3})
        assert [error.field for error in refused.value.errors] == ["array", "at_once", "tasks"]

    @pytest.mark.parametrize(
        ("spec", "is_one"),
        [
            ({"gpus": 1}, False),
            ({"gpus": 1, "array": "", "matrix": {}, "at_once": None}, False),
            ({"array": "0-3"}, True),
            ({"matrix": {"lr": [1]}}, True),
            ({"at_once": 3}, True),
            ({"include": [{"lr": "1"}]}, True),
            ("array", False),
        ],
    )
    def test_is_told_from_a_job(self, spec: object, is_one: bool) -> None:
        assert is_sweep(spec) is is_one
