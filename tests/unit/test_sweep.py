"""Leftovers of killed test runs."""

import os
import subprocess
import sys
from pathlib import Path

from tests.plugin import PREFIX, sweep


class TestRunFolder:
    def test_is_removed_after_its_process_has_ended(self, tmp_path: Path) -> None:
        over = subprocess.Popen([sys.executable, "-S", "-c", ""])
        over.wait()
        (tmp_path / f"{PREFIX}{over.pid}-abc" / "postgres").mkdir(parents=True)
        going_on = tmp_path / f"{PREFIX}{os.getpid()}-abc"
        others = [tmp_path / f"{PREFIX}notes", tmp_path / "evenshare"]
        for folder in (going_on, *others):
            folder.mkdir()
        sweep(tmp_path)
        assert set(tmp_path.iterdir()) == {going_on, *others}
