"""Check the options, the preset and the reasons in docs/policies/ltgf.md against the policy."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec

from evenshare_core.domain.reasons import Reason
from evenshare_core.policies.ltgf.options import PAPER_EVALUATION, LtgfOptions
from evenshare_core.policies.registry import options

TEXT = (Path(__file__).resolve().parents[2] / "docs/policies/ltgf.md").read_text(encoding="utf-8")


class TestDocument:
    def test_lists_every_option_and_default(self) -> None:
        told = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", TEXT, re.MULTILINE))
        defaults = msgspec.to_builtins(LtgfOptions())
        assert {name: json.loads(value) for name, value in told.items()} == defaults

    def test_preset_matches_paper_evaluation(self) -> None:
        (example,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
        assert options("ltgf", json.loads(example)) == PAPER_EVALUATION

    def test_explains_every_reason(self) -> None:
        explained = set(re.findall(r"`(\w+)`", TEXT[TEXT.index("## Why a job is queued") :]))
        assert {reason.value for reason in Reason} <= explained
