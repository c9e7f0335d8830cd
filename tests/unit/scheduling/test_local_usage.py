"""Test that samples in a lease's folder are read as untrusted text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.engine.executors.local_files import USAGE_BYTES
from scheduling.engine.executors.local_usage import (
    GpuState,
    UsageFile,
    most_rows,
    parse_usage,
)
from scheduling.engine.executors.shim.usage import LEAST_ROWS, rows_of_each

ROW: list[Any] = [1000, 900, 5, 7, [500], [12]]
SAID: dict[str, Any] = {
    "version": 1, "rank": 2, "cpus": 8, "gpus": 1, "gpu_state": "ok", "gpu_mib": 80000,
    "rows": [ROW, [2000, 900, None, None, [None], [None]], [3000, 950, 1, 1, [], []]],
}  # fmt: skip


def parse(said: Any, rank: int = 2) -> UsageFile:
    text = said if isinstance(said, bytes) else json.dumps(said).encode()
    return parse_usage(text, rank=rank)


def with_row(place: int, value: Any) -> dict[str, Any]:
    row = list(ROW)
    row[place] = value
    return {**SAID, "rows": [row]}


class TestSamples:
    def test_are_parsed(self) -> None:
        usage = parse(SAID).usage
        assert usage is not None
        assert (usage.cpus, usage.gpu_state, usage.rows[0].busy) == (8, GpuState.OK, (500,))
        assert usage.rows[1].memory_bytes is None

    def test_empty_file_is_empty_result(self) -> None:
        assert parse(b"") == UsageFile()

    @pytest.mark.parametrize(
        ("said", "why"),
        [
            (b"{", "is not as described"),
            (b"\xff\xfe", "is not as described"),
            (b"[" * 100_000, "is not as described"),
            (b"1e999", "is not as described"),
            (b" " * (USAGE_BYTES + 1), "is longer than 262144 bytes"),
            ([SAID], "is not as described"),
            ({**SAID, "version": 2}, "is not of version 1"),
            ({**SAID, "rank": 1}, "belongs to another rank"),
            ({**SAID, "cpus": 0}, "is not as described"),
            ({**SAID, "gpu_state": "<b>"}, "is not as described"),
            ({**SAID, "rows": [ROW] * 300}, "is not as described"),
            ({**SAID, "rows": [ROW, ROW]}, "has rows out of order"),
            ({**SAID, "rows": [ROW, [2000, 899, 1, 1, [], []]]}, "has rows out of order"),
            (with_row(0, -1), "is not as described"),
            (with_row(0, 2**62), "is not as described"),
            (with_row(0, 10**400), "is not as described"),
            (with_row(1, 0.5), "is not as described"),
            (with_row(1, float("nan")), "is not as described"),
            (with_row(1, float("inf")), "is not as described"),
            (with_row(2, True), "is not as described"),
            (with_row(2, 8), "has a mean above its peak"),
            (with_row(3, "7"), "is not as described"),
            (with_row(4, [1001]), "is not as described"),
            (with_row(4, [1] * 33), "is not as described"),
            (with_row(4, [1, 2]), "has rows with different numbers of GPUs"),
            (with_row(5, [2**25]), "is not as described"),
        ],
    )
    def test_invalid_file_is_rejected_with_reason(self, said: Any, why: str) -> None:
        usage, refused = parse(said)
        assert usage is None
        assert refused.startswith(why)

    @pytest.mark.parametrize(
        ("ranks", "rows"), [(1, 256), (4, 256), (5, 192), (64, LEAST_ROWS), (500, LEAST_ROWS)]
    )
    def test_row_limit_shrinks_with_gang_size(self, ranks: int, rows: int) -> None:
        assert most_rows(ranks) == rows >= rows_of_each(ranks)

    @pytest.mark.parametrize(
        ("rows", "gpus", "why"), [(2, 1, "has more than 2 rows"), (3, 0, "has more GPUs than")]
    )
    def test_exceeding_rows_or_gpus_are_rejected(self, rows: int, gpus: int, why: str) -> None:
        text = json.dumps(SAID).encode()
        assert parse_usage(text, rank=2, rows=rows, gpus=gpus).refused.startswith(why)
        assert not parse_usage(text, rank=2, rows=3, gpus=1).refused

    @given(st.binary(max_size=300))
    def test_any_bytes_are_parsed_or_rejected(self, text: bytes) -> None:
        usage, refused = parse(text)
        assert usage is None or not refused

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=20,
        ),
        st.sampled_from([*SAID]),
    )
    def test_any_field_value_is_parsed_or_rejected(self, value: Any, name: str) -> None:
        usage, refused = parse({**SAID, name: value})
        assert (usage is None) == bool(refused)
        assert refused.isascii()
