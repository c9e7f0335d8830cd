"""Test that answers of the REST API equal the recorded ones, byte for byte.

After an intended change, record them again: `EVENSHARE_RECORD=1 pytest -n0
tests/functional/test_rest_corpus.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from tests.functional.rest_corpus import answers, first_difference, read, write
from tests.functional.rest_stage import RestStage, fix_clock, rest_stage, seeded
from tests.plugin import Services


@pytest.fixture
def stage(
    committed_db: str, services: Services, settings: Settings, tmp_path: Path
) -> Iterator[RestStage]:
    with services.postgres.connect(committed_db) as owner:
        fix_clock(owner)
    settings.LOCAL_ROOT = str(tmp_path / "logs")
    settings.LOG_KEYS_DIR = str(tmp_path / "keys")
    settings.SECRET_KEY = "cursors are signed with it"
    with seeded("stage"):
        yield rest_stage(tmp_path / "logs")


class TestRestApi:
    def test_answers_match_the_recorded_corpus(self, stage: RestStage) -> None:
        found = answers(stage)
        assert len(found) >= 300
        if os.environ.get("EVENSHARE_RECORD"):
            write(found)
        recorded = read()
        wrong = [
            f"{ask}\n  {first_difference(recorded.get(ask, ''), found.get(ask, ''))}"
            for ask in sorted({*recorded, *found})
            if recorded.get(ask) != found.get(ask)
        ]
        assert not wrong, f"{len(wrong)} answers differ:\n" + "\n".join(wrong[:20])
