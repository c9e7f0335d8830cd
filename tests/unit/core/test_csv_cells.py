"""Test CSV files: no cell is a formula, and reading returns the original text."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.csv_cells import neutral_cell, plain_cell, write_csv
from evenshare_core.simulation.tables import read_table

TEXTS = st.text(alphabet="'=+-@\t\r19.e a\",\n", max_size=6)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-cmd", "'-cmd"),
        ("-1+1", "'-1+1"),
        ("@sum", "'@sum"),
        ("\tx", "'\tx"),
        ("\rx", "'\rx"),
        ("-1.500000", "-1.500000"),
        ("-1e-05", "-1e-05"),
        ("a=b", "a=b"),
        ("'=x", "''=x"),
        ("'tis", "'tis"),
        ("", ""),
    ],
)
def test_neutralizes_formula_cells(text: str, written: str) -> None:
    assert neutral_cell(text) == written


@given(TEXTS)
def test_cell_round_trips(text: str) -> None:
    assert plain_cell(neutral_cell(text)) == text


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=3))
def test_table_round_trips(rows: list[tuple[str, str]]) -> None:
    lines = csv.reader(io.StringIO(write_csv(("a", "b"), rows), newline=""))
    assert [tuple(plain_cell(cell) for cell in line) for line in lines][1:] == rows


def test_read_table_restores_formula_cells() -> None:
    text = write_csv(("a", "b"), [("=1+1", "-2")])
    (row,) = read_table(text, "rows", required=("a", "b"))
    assert (row.cells["a"], row.cells["b"]) == ("=1+1", "-2")
