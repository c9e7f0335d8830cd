"""Benchmarks are run by hand: that they could be is held here."""

from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS, HERE

MODULES = sorted(path.stem for path in HERE.glob("*.py") if path.stem != "__init__")


def test_all_of_make_bench_are_there() -> None:
    assert set(BENCHMARKS) <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_finds_its_modules_and_files(name: str) -> None:
    module = import_module(f"benchmarks.{name}")
    paths = [value for value in vars(module).values() if isinstance(value, Path)]
    assert [path for path in paths if not path.exists()] == []
