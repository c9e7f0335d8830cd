"""Test that a job's curves and links are checked: they are untrusted text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import astuple

from scheduling.engine.executors.local_files import METRICS_BYTES
from scheduling.engine.executors.local_metrics import (
    MOST_METRICS,
    MOST_NAMES,
    MOST_POINTS,
    ReportedPoint,
    parse_metrics,
)
from scheduling.services.job_metrics import evenly


def said(series: Any, **more: Any) -> bytes:
    return json.dumps({"version": 1, "series": series, **more}).encode()


class TestUsableFile:
    def test_has_points_by_step(self) -> None:
        read = parse_metrics(said({"loss": [[3, 1, 30], [1, 0.5, 10], [3, 2]]}, thinned=True))
        assert read.series == {"loss": [ReportedPoint(1, 0.5, 10), ReportedPoint(3, 2.0)]}
        assert (read.is_thinned, read.left_out, read.refused) == (True, 0, "")

    def test_is_empty_without_file(self) -> None:
        assert parse_metrics(b"") == parse_metrics(said({"loss": []}))

    def test_leaves_out_other_names_and_excess(self) -> None:
        names = ["<script>", "a b", "", "x" * 65, *(f"m{n:03}" for n in range(MOST_METRICS + 3))]
        read = parse_metrics(said({name: [[1, 1]] for name in names}))
        assert list(read.series) == [f"m{n:03}" for n in range(MOST_METRICS)]
        assert read.left_out == 7

    def test_leaves_out_values_that_charts_cannot_show(self) -> None:
        text = said({"loss": [[1, 1], [2, 3e200]], "gone": [[1, -2e300]]})
        assert parse_metrics(text).series == {"loss": [ReportedPoint(1, 1.0)]}


class TestUnusableFile:
    @pytest.mark.parametrize(
        "text",
        [
            b"{", b"\x00\xff", b"[]", b"[" * 100_000, b"{}", b"x" * (METRICS_BYTES + 1),
            said(3), said({"a": 3}), said({"a": [1]}), said({"a": [[1, 2, 3, 4]]}),
            said({"a": [["1", 2]]}), said({"a": [[1, float("nan")]]}), said({"a": [[-1, 2]]}),
            said({"a": [[2**70, 2]]}), said({"a": [[1.5, 2]]}), said({}, version=2),
            said({}, links=["https://a.b"]), b'{"version": 1, "series": {"a": [[1, 1e999]]}}',
        ],
    )  # fmt: skip
    def test_is_refused_with_reason(self, text: bytes) -> None:
        read = parse_metrics(text)
        assert read.series == {}
        assert read.refused.startswith("is ")

    def test_is_refused_if_it_has_too_many_names_or_points(self) -> None:
        names = said({str(n): [] for n in range(MOST_NAMES + 1)})
        points = b'{"version": 1, "series": {"a": [' + b"[1,1]," * MOST_POINTS + b"[2,2]]}}"
        for text in (names, points):
            assert parse_metrics(text).refused == "has more than 1000 names or 50000 points"


class TestLinks:
    def test_have_name_address_and_host(self) -> None:
        (link,) = parse_metrics(said({}, links={"W&B": "https://WandB.ai:443/a?b#c"})).links
        assert astuple(link) == ("W&B", "https://WandB.ai:443/a?b#c", "wandb.ai")

    @pytest.mark.parametrize(
        "url",
        [
            "http://a.b/", "javascript:alert(1)", "https://", "https://good.org@evil.org/", "//a.b",
            "https://a.b\\@c.d/", "https://a.b/ c", "https://a.b/\u202e", "https://\u0430.b/",
            "https://a.b/" + "x" * 500, " https://a.b/", "https://a.b/\n",
        ],
    )  # fmt: skip
    def test_are_only_plain_https_addresses(self, url: str) -> None:
        assert parse_metrics(said({}, links={"run": url})).links == ()

    @pytest.mark.parametrize("name", ["", "x" * 65, "a\n", "a\u202eb"])
    def test_have_printable_names(self, name: str) -> None:
        assert parse_metrics(said({}, links={name: "https://a.b"})).links == ()

    def test_are_at_most_eight(self) -> None:
        links = {f"l{n}": "https://a.b" for n in range(20)}
        assert len(parse_metrics(said({}, links=links)).links) == 8


class TestEvenly:
    @pytest.mark.parametrize(("count", "most"), [(0, 2), (5, 5), (100, 2), (1001, 7), (999, 998)])
    def test_keeps_first_and_last(self, count: int, most: int) -> None:
        kept = evenly(range(count), most)
        assert len(kept) == min(count, most)
        assert kept[:1] == [0][:count]
        assert kept[-1:] == [count - 1][:count]
        assert kept == sorted(set(kept))
