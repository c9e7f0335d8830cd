"""Provide a real shim that a test starts, and an `nvidia-smi` with scripted output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduling.engine.executors.local_usage import NodeUsage, parse_usage
from tests.tools import PATIENCE_S, eventually

END = "while [ ! -e end ]; do sleep 0.05; done"
SHIM = Path(__file__).parents[3] / "scheduling" / "engine" / "executors" / "shim"


def fake_tool(folder: Path, script: str) -> str:
    """Write an `nvidia-smi` shell script, and return its folder for a PATH."""
    folder.mkdir(exist_ok=True)
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return str(folder)


@dataclass
class ShimStage:
    """A job's first lease, whose program is a shell script."""

    root: Path
    every_s: float = 0.1

    @property
    def folder(self) -> Path:
        return self.root / "7" / "leases" / "1"

    def start(
        self, text: str, *, path: str = "/usr/bin:/bin", gpus: str | None = None, **spec: Any
    ) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True)
        environment = {"PATH": os.environ["PATH"]}
        if gpus is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpus
        wanted = {
            "argv": ["/bin/sh", "-c", text], "env": environment, "cwd": str(self.root),
            "signal": "SIGUSR1", "grace_s": 30, "log_bytes": 2**20, "nice": 0, "lifeline": "",
            "usage_every_s": self.every_s, "tools_path": path,
        }  # fmt: skip
        (self.folder / "spec.json").write_text(json.dumps({**wanted, **spec}))
        (self.folder / "until").write_text("1e12")
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(SHIM), str(self.folder)],
            env={"PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            # The process that starts a shim also waits until this pipe is closed.
            stdout=subprocess.PIPE,
        )

    def run(self, text: str, **options: Any) -> NodeUsage:
        """Run a program to its end, and return its samples."""
        with self.start(text, **options) as shim:
            assert shim.wait() == 0
        return self.usage()

    def sampled(self, text: str, until: Callable[[NodeUsage], bool], **options: Any) -> NodeUsage:
        """Run a program until its samples meet a condition, then end it and return the samples."""
        shim = self.start(f"{text}\n{END}", **options)
        assert shim.stdout is not None
        try:
            eventually(lambda: (self.folder / "usage.0.json").exists() and until(self.usage()))
            return self.usage()
        finally:
            (self.root / "end").touch()
            shim.wait(PATIENCE_S)
            shim.stdout.close()

    def usage(self) -> NodeUsage:
        said = parse_usage((self.folder / "usage.0.json").read_bytes(), rank=0)
        assert said.usage is not None, said.refused
        return said.usage

    def exit(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads((self.folder / "exit.json").read_text())
        return answer
