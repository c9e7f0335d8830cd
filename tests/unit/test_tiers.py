"""Selection of tests by command, the number of processes, and a run's output."""

from __future__ import annotations

from argparse import Namespace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import budget, spread, tiers

VALUES = {"address": range(12), "role": range(4), "state": range(3)}


def case(name: str, **indices: int) -> Any:
    """Return an object with the attributes of a collected test that the selection reads."""
    parameters = {key: f"{key}-{index}" for key, index in indices.items()}
    marks = "-".join(parameters.values())
    call = SimpleNamespace(indices=indices, params=parameters)
    return SimpleNamespace(
        nodeid=f"{name}[{marks}]", callspec=call, get_closest_marker=lambda _: None
    )


MATRIX = [
    case("tests/functional/test_a.py::test_b", **dict(zip(VALUES, indices, strict=True)))
    for indices in product(*VALUES.values())
]


class TestSample:
    @pytest.mark.parametrize("strength", [1, 2, 3])
    def test_covers_every_combination_of_given_strength(self, strength: int) -> None:
        chosen = tiers.sample(MATRIX, strength)
        kept = [item for item in MATRIX if item.nodeid in chosen]
        assert tiers.combined(kept, strength) == tiers.combined(MATRIX, strength)

    def test_covers_every_pair_of_values(self) -> None:
        chosen = tiers.sample(MATRIX, 2)
        pairs = {(i.callspec.indices["role"], i.callspec.indices["state"]) for i in MATRIX}
        kept = [i.callspec.indices for i in MATRIX if i.nodeid in chosen]
        assert {(row["role"], row["state"]) for row in kept} == pairs
        assert 12 * 4 <= len(kept) < len(MATRIX) / 2

    def test_covers_each_of_two_tests(self) -> None:
        other = [case("tests/functional/test_a.py::test_c", role=index) for index in range(4)]
        assert {item.nodeid for item in other} <= tiers.sample([*MATRIX, *other], 1)

    def test_does_not_depend_on_order(self) -> None:
        assert tiers.sample(MATRIX[::-1], 2) == tiers.sample(MATRIX, 2)


class TestTier:
    @pytest.mark.parametrize(
        ("policy", "belongs"), [("ltgf", ["test"]), ("gavel", ["rest"])], ids=str
    )
    def test_selects_cases_by_policy(self, policy: str, belongs: list[str]) -> None:
        item = case("tests/unit/test_a.py::test_b", policy=0)
        item.callspec.params["policy"] = policy
        rest = tiers.left_to_rest([item])
        assert [tier for tier in ("test", "rest") if tiers.belongs(item, tier, rest)] == belongs

    def test_each_case_belongs_to_exactly_one_tier(self) -> None:
        rest = frozenset(tiers.sample(MATRIX, 1))
        for item in MATRIX:
            tests = [tier for tier in ("test", "rest") if tiers.belongs(item, tier, rest)]
            assert len(tests) == 1

    def test_property_tests_belong_to_both_tiers(self) -> None:
        item = case("tests/unit/test_a.py::test_b")
        item.obj = SimpleNamespace(is_hypothesis_test=True)
        for tier in ("test", "rest"):
            assert tiers.belongs(item, tier, frozenset())

    @pytest.mark.parametrize("process", [{}, {"workerinput": {}}], ids=["first", "distributed"])
    @pytest.mark.parametrize(("source", "tier"), [("ARGS", "all"), ("TESTPATHS", "test")])
    def test_paths_take_precedence(self, process: Any, source: str, tier: str) -> None:
        sources = pytest.Config.ArgsSource
        config = SimpleNamespace(
            ArgsSource=sources,
            args_source=sources[source],
            option=SimpleNamespace(tier="test"),
            **process,
        )
        tiers.pytest_configure(config)  # type: ignore[arg-type]  # all that is read of it
        assert config.option.tier == tier


class TestProcesses:
    @pytest.fixture(autouse=True)
    def four_cores(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.sched_getaffinity", lambda _: range(4), raising=False)
        for name in ("PYTEST_XDIST_AUTO_NUM_WORKERS", "PYTEST_XDIST_WORKER"):
            monkeypatch.delenv(name, raising=False)

    @pytest.mark.parametrize(
        ("paths", "number"),
        [
            ([], 5),
            (["tests/functional"], 5),
            (["tests/unit", "tests/functional"], 5),
            (["tests/unit", "tests/papers"], 4),
            (["tests/unit/core/"], 4),
            (["tests/unit/billing"], 0),
            (["tests/unit/test_tiers.py", "tests/unit/test_sweep.py"], 0),
            (["tests/functional/test_jobs.py"], 0),
            (["tests/functional/test_jobs.py::TestList::test_a[b]"], 0),
            (["tests/functional/test_jobs.py", "tests/functional/test_front.py"], 5),
        ],
        ids=str,
    )
    def test_are_as_many_as_the_paths_need(self, paths: list[str], number: int) -> None:
        options = self.options(numprocesses="auto", file_or_dir=paths)
        assert spread.processes(options) == number
        assert spread.distributes(options) == bool(number)

    def test_number_of_variable_takes_precedence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "7")
        assert spread.processes(self.options(file_or_dir=["tests/unit/billing"])) == 7

    @pytest.mark.parametrize("number", [None, 0, 2])
    def test_number_of_command_line_takes_precedence(self, number: int | None) -> None:
        assert spread.distributes(self.options(numprocesses=number)) == bool(number)

    @pytest.mark.parametrize("option", spread.COLLECTING)
    def test_collects_itself_with_option(self, option: str) -> None:
        assert not spread.distributes(self.options(numprocesses=2, **{option: True}))

    def test_distributed_process_runs_tests(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
        assert not spread.distributes(self.options(numprocesses=2))

    @staticmethod
    def options(**given: Any) -> Namespace:
        return Namespace(**{**dict.fromkeys(spread.COLLECTING, False), "file_or_dir": [], **given})


class TestBudget:
    def test_is_read_from_document(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        document = tmp_path / "testing.md"
        document.write_text("| folder | a | b |\n|---|--:|--:|\n| `tests/unit` | 90 | 1,150 |\n")
        monkeypatch.setattr(budget, "DOCUMENT", document)
        assert budget.read_budgets("test") == {"tests/unit": 90}
        assert budget.read_budgets("rest") == {"tests/unit": 1150}
        assert budget.read_budgets("all") == {}

    def test_exceeded_budget_gives_warning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(budget, "read_budgets", lambda _: {"tests/unit": 2, "tests/papers": 9})
        spent = budget.Spent("test")
        for name, seconds in (("unit/test_a.py", 1.5), ("unit/test_b.py", 1.0), ("papers/c.py", 3)):
            spent.pytest_runtest_logreport(
                SimpleNamespace(nodeid=f"tests/{name}::test", duration=seconds)  # type: ignore[arg-type]  # all that is read of it
            )
        lines: list[str] = []
        spent.pytest_terminal_summary(
            SimpleNamespace(write_line=lambda text, **_: lines.append(text))  # type: ignore[arg-type]  # all that is read of it
        )
        assert [line for line in lines if line.startswith("warning")] == [
            "warning: tests/unit passes its budget (docs/testing.md)"
        ]
        assert lines[1].split() == ["3.0", "tests/papers/c.py"]
