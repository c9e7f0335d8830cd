"""Test that a job's report of its iterations is read as untrusted text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.engine.executors.base import Iterations
from scheduling.engine.executors.local_files import ITERATIONS_BYTES
from scheduling.engine.executors.local_iterations import IterationFile, parse_iterations

SAID: dict[str, Any] = {
    "version": 1, "lease": 3, "iterations": 12, "time_us": 600, "first_us": 1_000_050,
    "suspended_us": None, "memory_bytes": 7,
}  # fmt: skip


def parse(said: Any, *, lease: int = 3, started_us: object = 1_000_000, scale: int = 1) -> Any:
    text = said if isinstance(said, bytes) else json.dumps(said).encode()
    return parse_iterations(text, lease=lease, started_us=started_us, scale=scale)


class TestIterationReport:
    def test_is_converted_to_pool_time(self) -> None:
        assert parse(SAID).iterations == Iterations(12, 600, 50, None, 7)
        fast = parse({**SAID, "suspended_us": 4}, scale=60)
        assert fast.iterations == Iterations(12, 36_000, 3000, 240, 7)

    def test_of_earlier_lease_or_empty_is_ignored(self) -> None:
        assert parse(SAID, lease=4) == parse(b"") == IterationFile()

    @pytest.mark.parametrize("started_us", [None, "soon", 1_000_051])
    def test_drops_implausible_start(self, started_us: object) -> None:
        assert parse(SAID, started_us=started_us).iterations.resumed_us is None

    @pytest.mark.parametrize(
        ("said", "why"),
        [
            (b"{", "is no JSON"),
            (b"[" * 4000, "is no JSON"),
            (b"\xff\x00", "is no JSON"),
            (b" " * (ITERATIONS_BYTES + 1), "is longer than"),
            ([], "is not a JSON object"),
            ({}, "is not of version 1"),
            ({**SAID, "version": 2}, "is not of version 1"),
            ({**SAID, "iterations": -1}, "no whole number in iterations"),
            ({**SAID, "iterations": 1.0}, "no whole number in iterations"),
            ({**SAID, "iterations": True}, "no whole number in iterations"),
            ({**SAID, "time_us": 2**53}, "no whole number in time_us"),
            ({**SAID, "time_us": "600"}, "no whole number in time_us"),
            ({**SAID, "lease": None}, "no whole number in lease"),
            ({**SAID, "first_us": float("nan")}, "no whole number in first_us"),
            ({**SAID, "memory_bytes": [1]}, "no whole number in memory_bytes"),
            ({name: one for name, one in SAID.items() if name != "suspended_us"}, "suspended_us"),
        ],
    )
    def test_is_rejected_with_reason(self, said: Any, why: str) -> None:
        read = parse(said)
        assert read.iterations is None
        assert why in read.refused

    @given(st.binary(max_size=200) | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(sorted(SAID)), inner),
    ))  # fmt: skip
    def test_any_input_is_parsed_or_rejected(self, said: Any) -> None:
        read = parse(said)
        assert isinstance(read, IterationFile)
        assert len(read.refused) < 200
