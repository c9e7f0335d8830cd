"""Test that docs/jobs.md and docs/cli.md match the client."""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from evenshare.cli.parser import parser
from evenshare.runtime import contract
from tests.architecture.sources import ROOT
from tests.tools import PATIENCE_S

from .job import SOURCE, Job

JOBS, CLI = ((ROOT / "docs" / name).read_text() for name in ("jobs.md", "cli.md"))
EXAMPLES = re.findall(r"(?s)```python\n(.*?)```", JOBS)


def leaves(top: argparse.ArgumentParser, name: str = "evenshare") -> dict[str, set[str]]:
    """Return every command with its options."""
    below = [a for a in top._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        return {name: {o for a in top._actions for o in a.option_strings if o.startswith("--")}}
    found: dict[str, set[str]] = {}
    for verb, part in below[0].choices.items():
        found |= leaves(part, f"{name} {verb}")
    return found


class TestJobsGuide:
    @pytest.mark.parametrize("source", EXAMPLES)
    def test_examples_run_outside_portal(self, source: str, tmp_path: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-c", source],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE)},
            cwd=tmp_path,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")

    @pytest.mark.parametrize("source", EXAMPLES)
    def test_examples_run_inside_job(self, source: str, tmp_path: Path) -> None:
        job = Job(tmp_path)
        assert job.start(source).wait(PATIENCE_S) == 0, job.text

    def test_lists_every_exit_code_and_variable(self) -> None:
        for code in (contract.CHECKPOINTED, contract.FENCED, contract.NOT_WRITTEN):
            assert f"| {code} |" in JOBS
        source = Path(contract.__file__).read_text()
        for name in set(re.findall(r"EVENSHARE_[A-Z_]+", source)):
            assert f"`{name}`" in JOBS


class TestCommandGuide:
    def test_lists_every_command(self) -> None:
        assert {name for name in leaves(parser()) if f"| `{name}" not in CLI} == set()

    def test_lists_exactly_existing_options(self) -> None:
        known = set().union(*leaves(parser()).values()) - {"--help"}
        named = set(re.findall(r"--[a-z][a-z-]+", CLI))
        assert named - known == set()
        assert known - named == set()
