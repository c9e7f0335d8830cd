"""Run a job as an executor does: with a folder, a lease, a process and a signal."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.architecture.sources import ROOT
from tests.tools import PATIENCE_S, eventually

SOURCE = ROOT / "client" / "src"


@dataclass
class Job:
    """The folder of a job; `start` runs a lease."""

    folder: Path
    lease: int = 0
    grace_s: float = 20.0
    python: str = sys.executable
    criterion: tuple[str, str, str] | None = None

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def progress(self) -> dict[str, Any]:
        file = self.folder / "progress.json"
        return json.loads(file.read_text()) if file.exists() else {}

    @property
    def iterations(self) -> dict[str, Any]:
        file = self.folder / "iterations.json"
        return json.loads(file.read_text()) if file.exists() else {}

    @property
    def evaluations(self) -> dict[str, Any]:
        file = self.folder / "evaluations.json"
        return json.loads(file.read_text()) if file.exists() else {}

    @property
    def metrics(self) -> dict[str, Any]:
        file = self.folder / "metrics.json"
        return json.loads(file.read_text()) if file.exists() else {}

    @property
    def checkpoints(self) -> list[Path]:
        return sorted((self.folder / "checkpoints").glob("*.ckpt"))

    def grant(self) -> int:
        """Grant the next lease, after which older processes may not write."""
        self.lease += 1
        beside = self.folder / "lease.new"
        beside.write_text(f"{self.lease}\n")
        beside.rename(self.folder / "lease")
        return self.lease

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SOURCE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "EVENSHARE_JOB_ID": "7f1c6f5e-0000-4000-8000-000000000001",
            "EVENSHARE_LEASE": str(self.lease),
            "EVENSHARE_JOB_DIR": str(self.folder),
            "EVENSHARE_SLOTS": "0,1",
            "EVENSHARE_CHECKPOINT_SIGNAL": "SIGUSR1",
            "EVENSHARE_GRACE_S": str(self.grace_s),
            "EVENSHARE_PROGRESS": str(self.folder / "progress.json"),
            "EVENSHARE_ITERATIONS": str(self.folder / "iterations.json"),
            "EVENSHARE_METRICS": str(self.folder / "metrics.json"),
            **self.stop,
        }

    @property
    def stop(self) -> dict[str, str]:
        """Return the variables that an executor sets for a job with a stopping metric."""
        if self.criterion is None:
            return {}
        names = ("EVENSHARE_STOP_METRIC", "EVENSHARE_STOP_RULE", "EVENSHARE_STOP_VALUE")
        where = str(self.folder / "evaluations.json")
        return {"EVENSHARE_EVALUATIONS": where, **dict(zip(names, self.criterion, strict=True))}

    def start(self, program: str | Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Run source text or a Python file under a new lease."""
        self.grant()
        first = [str(program)] if isinstance(program, Path) else ["-c", program]
        return self.run([self.python, *first, *arguments])

    def run(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command, env=self.environment(), stdout=log, stderr=log, start_new_session=True
            )

    def says(self, text: str) -> None:
        eventually(lambda: text in self.text or None)

    def reaches(self, step: int) -> None:
        """Wait until the current lease reaches a step, even if an earlier lease had passed it."""

        def is_there() -> bool:
            told = self.progress
            return bool(told.get("lease") == self.lease and told.get("step", 0) >= step)

        eventually(is_there)

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def preempt(process: subprocess.Popen[bytes]) -> int:
    """End a lease with the signal, and return the program's exit code."""
    process.send_signal(signal.SIGUSR1)
    return process.wait(PATIENCE_S)
