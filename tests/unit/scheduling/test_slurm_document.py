"""Test that docs/slurm.md and docs/shadow-mode.md match the options and commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import load_command_class

from scheduling.engine.executors.slurm.options import SlurmOptions

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "slurm.md").read_text(encoding="utf-8")
SHADOW = (ROOT / "docs" / "shadow-mode.md").read_text(encoding="utf-8")
# Options that Django adds to every command.
COMMON = {
    "--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color",
    "--force-color", "--skip-checks", "--help",
}  # fmt: skip


class TestSlurmDocument:
    def test_lists_every_option_of_pool(self) -> None:
        table = TEXT.partition("## Options")[2].partition("## ")[0]
        first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
        assert set(re.findall(r"`(\w+)`", "".join(first))) == set(SlurmOptions.__struct_fields__)

    @pytest.mark.parametrize("name", ["check_slurm", "shadow_slurm"])
    def test_lists_every_option_of_command(self, name: str) -> None:
        parser = load_command_class("scheduling", name).create_parser("manage.py", name)
        options = {
            option
            for action in parser._actions
            for option in action.option_strings
            if option.startswith("--")
        }
        assert {option for option in options - COMMON if option not in TEXT + SHADOW} == set()
