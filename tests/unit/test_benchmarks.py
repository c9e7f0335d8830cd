"""Test that the benchmarks can be imported; people run them by hand."""

import subprocess
import sys

import pytest

from benchmarks.__main__ import BENCHMARKS, HERE

MODULES = sorted(path.stem for path in HERE.glob("*.py") if path.stem != "__init__")
# Each benchmark is imported in a separate process, because some benchmarks set environment
# variables.
PROGRAM = """
import importlib, pathlib, sys
module = importlib.import_module(f"benchmarks.{sys.argv[1]}")
paths = [value for value in vars(module).values() if isinstance(value, pathlib.Path)]
print(*[path for path in paths if not path.exists()])
"""


def test_all_benchmarks_have_module() -> None:
    assert set(BENCHMARKS) <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_module_imports_and_finds_its_files(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        cwd=HERE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
