"""Test `manage.py shares`: one JSON object, a table, and errors that name the field."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

W = "[[1,2],[1,5]]"


def shares(*arguments: str) -> str:
    out = StringIO()
    call_command("shares", *arguments, stdout=out, stderr=out)
    return out.getvalue()


def asked(policy: str, *rest: str, speedups: str = W, capacity: str = "[1,1]") -> dict[str, Any]:
    told = shares(
        *("--policy", policy, "--speedups", speedups, "--capacity", capacity, "--json", *rest)
    )
    found: dict[str, Any] = json.loads(told)
    return found


class TestSharesCommand:
    def test_prints_json_object(self) -> None:
        found = asked("oef")
        assert found["shares"][0] == pytest.approx([1, 0.25])
        assert found["throughputs"] == pytest.approx([1.5, 3.75])
        assert found["total"] == pytest.approx(5.25)
        assert found["prices"] == pytest.approx([1.75, 3.5])
        properties = found["properties"]
        assert properties["envy_free"]
        assert properties["sharing_incentive"]
        assert properties["capacity_kept"]
        assert not properties["equal_throughput"]
        assert properties["pareto_slack"] == pytest.approx(0, abs=1e-6)
        assert properties["envy"][0][1] == pytest.approx(0, abs=1e-6)

    @pytest.mark.parametrize(
        ("policy", "rest", "throughputs"),
        [
            ("oef", ["--option", "environment=noncooperative"], [15 / 7, 15 / 7]),
            (
                "oef",
                ["--option", "environment=noncooperative", "--weights", "[1,2]"],
                [5 / 3, 10 / 3],
            ),
            ("oef", ["--option", "backend=highs"], [1.5, 3.75]),
            ("max_min", [], [1.5, 3]),
            ("max_efficiency", [], [1, 5]),
            ("gavel", ["--option", "time_fractions=false"], [5 / 3, 10 / 3]),
            ("max_efficiency", ["--caps", "[null,0.5]"], [2, 2.5]),
        ],
    )
    def test_supports_policies_and_their_options(
        self, policy: str, rest: list[str], throughputs: list[float]
    ) -> None:
        assert asked(policy, *rest)["throughputs"] == pytest.approx(throughputs)

    def test_matches_gavel_with_one_gpu_at_a_time(self) -> None:
        found = asked("gavel", speedups="[[1,2],[1,3],[1,4]]")
        assert found["shares"][0] == pytest.approx([10 / 11, 1 / 11])

    def test_reports_pareto_slack_of_cooperative_rule(self) -> None:
        found = asked("oef", speedups="[[1,1,1],[1,4,12],[1,4,16]]", capacity="[1,1,1]")
        assert found["throughputs"] == pytest.approx([1, 8, 10])
        assert found["properties"]["pareto_slack"] == pytest.approx(2 / 3, rel=1e-5)
        assert not found["properties"]["pareto_efficient"]

    def test_prints_table(self) -> None:
        told = shares("--policy", "oef", "--speedups", W, "--capacity", "[1,1]")
        assert "total 5.250000, by fast (optimal)" in told
        assert "envy_free: yes" in told

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["oef", "[[1,2],", "[1,1]"], r"speedups: is not JSON .*give a row per tenant"),
            (["oef", "[[1,2],[1]]", "[1,1]"], r"speedups: needs rows of equal length"),
            (["oef", "[[1,-2]]", "[1,1]"], r"speedups: must not be negative; \[0\]\[1\] is; give"),
            (["oef", "[[1,NaN]]", "[1,1]"], r"speedups: \[0\]\[1\] is not a number"),
            (
                ["oef", "[[1,1e30],[1,5]]", "[1,1]"],
                r"speedups: must be at most 1e\+12; \[0\]\[1\] is",
            ),
            (["oef", f"[[1,{'9' * 400}]]", "[1,1]"], r"speedups: must be at most 1e\+12"),
            (["oef", W, "[1,1e300]"], r"capacity: must be at most 1e\+12; \[1\] is more"),
            (["oef", W, "[1,1]", "--weights", "[1e308,1e308]"], r"weights: must be at most 1e\+12"),
            (["oef", W, "[1,1]", "--caps", "[1e300,null]"], r"caps: must be at most 1e\+12"),
            (["oef", '[[1,"2"]]', "[1,1]"], r"speedups: \[0\] holds \"2\", not a number"),
            (["oef", "[[1,true]]", "[1,1]"], r"speedups: \[0\] holds true"),
            (["oef", "{}", "[1,1]"], "speedups: is not a list"),
            (["oef", "[]", "[1,1]"], "speedups: needs rows of numbers"),
            (["oef", W, "[1]"], "capacity: has 1 values for 2 GPU types; give the GPUs"),
            (["oef", W, "[1,null]"], r"capacity: \[1\] holds null"),
            (["oef", W, "[1,1]", "--weights", "[0,1]"], "weights: must be above 0"),
            (["drf", W, "[1,1]"], "policy: 'drf' is none of oef, gavel"),
            (["oef", W, "[1,1]", "--option", "mode=x"], "option: oef has no option 'mode'"),
            (["max_min", W, "[1,1]", "--option", "a=b"], "no option 'a'; it has none"),
            (["oef", W, "[1,1]", "--option", "backend=glpk"], "backend is one of fast, highs"),
        ],
    )
    def test_error_names_field_reason_and_hint(self, arguments: list[str], told: str) -> None:
        policy, speedups, capacity, *rest = arguments
        with pytest.raises(CommandError, match=told):
            asked(policy, *rest, speedups=speedups, capacity=capacity)
