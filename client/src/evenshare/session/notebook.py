"""Jupyter in a lease: started with the lease's secret, and watched for use."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from evenshare.runtime.contract import CHECKPOINTED, margin_seconds

from .contract import TICK_S, SessionContract, SessionFile, listener

# The first that is installed is used.
MODULES = ("jupyterlab", "jupyter_server")
ABSENT = "Jupyter is not installed in the job's Python {python}: run pip install jupyterlab"
UNAVAILABLE = 69
STARTS = 5
POLL_S = 10.0


class NotebookServer:
    """A Jupyter process of a lease."""

    def __init__(self, contract: SessionContract, root: Path) -> None:
        self._contract, self._root = contract, root
        self._file = SessionFile(contract)
        self._is_ending = False

    def run(self) -> int:
        """Serve until Jupyter ends, the time is over, or the lease ends; return the exit code."""
        module = next((one for one in MODULES if importlib.util.find_spec(one)), "")
        if not module:
            return self._fail(ABSENT.format(python=sys.executable))
        signal.signal(self._contract.signal, self._on_signal)
        for _ in range(STARTS):
            process, port = self._start(module)
            code = self._watch(process, port)
            if code is not None:
                return code
        return self._fail("Jupyter could not be started: see the log")

    def _fail(self, problem: str) -> int:
        sys.stderr.write(f"evenshare: {problem}\n")
        self._file.write(0, problem)
        return UNAVAILABLE

    def _on_signal(self, *_: object) -> None:
        self._is_ending = True

    def _start(self, module: str) -> tuple[subprocess.Popen[bytes], int]:
        bound = listener(self._contract)
        port = int(bound.getsockname()[1])
        bound.close()
        values = {k: v for k, v in os.environ.items() if not k.startswith("EVENSHARE_SESSION")}
        command = [
            *(sys.executable, "-m", module, "--no-browser"),
            *([] if os.geteuid() else ["--allow-root"]),
            f"--ServerApp.ip={self._contract.bind}",
            f"--ServerApp.port={port}",
            "--ServerApp.port_retries=0",
            # The proxy passes on the session's own host name, which Jupyter compares with origins.
            "--ServerApp.allow_remote_access=True",
            f"--ServerApp.root_dir={self._root}",
        ]
        # In the environment: other users of the node can read arguments.
        values["JUPYTER_TOKEN"] = self._contract.secret
        return subprocess.Popen(command, env=values, start_new_session=True), port

    def _watch(self, process: subprocess.Popen[bytes], port: int) -> int | None:
        """Return the session's exit code, or None if Jupyter did not get its port."""
        is_up, polled = False, 0.0
        while process.poll() is None:
            if self._is_ending or self._file.left_s <= 0:
                self._end(process)
                self._file.write(0)
                return CHECKPOINTED if self._is_ending else 0
            # A neighbour may take the port first; it must not get the secret.
            is_up = is_up or is_listening(process.pid, port)
            if is_up and time.monotonic() - polled >= POLL_S:
                polled = time.monotonic()
                self._poll(port)
            self._file.write(port if is_up else 0)
            time.sleep(TICK_S if is_up else 0.1)
        return process.returncode if is_up else None

    def _poll(self, port: int) -> None:
        """Note when kernels and terminals were used."""
        host = "127.0.0.1" if self._contract.bind == "0.0.0.0" else self._contract.bind  # noqa: S104 - compared
        for path in ("/api/kernels", "/api/terminals"):
            for row in self._get(host, port, path):
                if row.get("execution_state") == "busy":
                    self._file.touch()
                with contextlib.suppress(ValueError, TypeError, KeyError):
                    at = datetime.fromisoformat(row["last_activity"].replace("Z", "+00:00"))
                    self._file.touch((datetime.now(timezone.utc) - at).total_seconds())

    def _get(self, host: str, port: int, path: str) -> list[dict[str, Any]]:
        try:
            connection = http.client.HTTPConnection(host, port, timeout=5)
            connection.request(
                "GET", path, headers={"Authorization": f"token {self._contract.secret}"}
            )
            said = json.loads(connection.getresponse().read(2**20))
            connection.close()
        except (OSError, ValueError, http.client.HTTPException):
            return []
        rows = said if isinstance(said, list) else []
        return [row for row in rows if isinstance(row, dict)]

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        grace_s = self._contract.grace_s
        process.terminate()
        try:
            process.wait(max(0.0, grace_s - margin_seconds(grace_s)))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def is_listening(pid: int, port: int) -> bool:
    """Return whether this process itself listens on the port."""
    inodes = set()
    with contextlib.suppress(OSError):
        for name in ("tcp", "tcp6"):
            for line in Path("/proc/net", name).read_text().splitlines()[1:]:
                parts = line.split()
                if parts[3] == "0A" and int(parts[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{parts[9]}]")
    held = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                held.add(str(entry.readlink()))
    return bool(inodes & held)
