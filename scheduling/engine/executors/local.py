"""`local`: real processes on this machine, one shim each (see the package `shim`).

No isolation: jobs run as the user of the portal. For a demo, a workstation, a lab's own box.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from scheduling.engine.executors.base import ExecutorTraits
from scheduling.engine.executors.local_spec import LeaseSpec, Surroundings, read_specs, search_path
from scheduling.engine.executors.shim.files import lease_folder, read_json
from scheduling.engine.executors.shim.processes import is_alive, marked, signal_process
from scheduling.engine.executors.shim_executor import ShimExecutor

SHIM = Path(__file__).with_name("shim")
# A shim answers within tens of milliseconds; one that does not is adopted later.
ANSWER_S = 3.0
# Jobs give way to the portal that runs beside them.
NICE = 5
# Without O_NONBLOCK a pipe that nobody reads would be waited for.
_ERRORS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK

# Shims whose starter this process is, to be collected when they end.
_started: list[subprocess.Popen[bytes]] = []


class LocalExecutor(ShimExecutor):
    """Starts shims as processes of its own machine, and finds them there."""

    traits = ExecutorTraits(
        keeps_output=True, reports_usage=True, runs_as_portal=True, is_exclusive=True
    )

    def _specs(self, job_ids: Sequence[int]) -> dict[str, LeaseSpec]:
        here = Surroundings(search_path(), True, NICE, os.environ.get("EVENSHARE_LIFELINE", ""))
        return read_specs(self._root, job_ids, lambda _pool: here)

    def _start(self, wanted: Mapping[str, LeaseSpec]) -> None:
        _collect()
        _await_answers(
            [
                self._clearing(token, partial(self._spawn, token, one))
                for token, one in wanted.items()
            ]
        )

    def _spawn(self, token: str, start: LeaseSpec) -> subprocess.Popen[bytes]:
        self._prepare(token, start)
        folder = lease_folder(self._root, token)
        with os.fdopen(os.open(folder / "shim.log", _ERRORS, 0o600), "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(SHIM), str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                cwd=self._root,
                # Not the portal's environment: it holds addresses and keys.
                env={"PATH": search_path(), "LANG": "C.UTF-8"},
            )
        _started.append(process)
        return process

    def _wake(self, tokens: Mapping[str, dict[str, Any] | None]) -> None:
        for record in tokens.values():
            if record is not None:
                signal_process(record, signal.SIGTERM)

    def _settle(self, pool_id: int, tokens: Sequence[str]) -> set[str]:  # noqa: ARG002 - one host
        """Shims that are not alive are dead; what one left behind is killed."""
        _collect()
        for token in tokens:
            self._give_up_unclaimed(token)
            self._clearing(token, partial(self._bury, token))
        return set()

    def _bury(self, token: str) -> None:
        folder = lease_folder(self._root, token)
        record = self._claim(token)
        # In this order: a shim writes its exit before it dies.
        if record is None or record.get("never") or is_alive(record):
            return
        if read_json(folder / "exit.json") is not None:
            return
        job, number = folder.parents[1], folder.name
        for pid in marked({"EVENSHARE_JOB_DIR": str(job), "EVENSHARE_LEASE": number}):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._note_lost(token)


def _await_answers(shims: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait until each shim has closed its output: its program runs, or cannot."""
    waiting = {shim.stdout.fileno(): shim for shim in shims if shim.stdout is not None}
    poll = select.poll()
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + ANSWER_S
    answered = 0
    while answered < len(waiting) and (left_s := deadline - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(left_s * 1000):
            poll.unregister(descriptor)
            answered += 1
    for shim in waiting.values():
        if shim.stdout is not None:
            shim.stdout.close()


def _collect() -> None:
    """Collect the shims of ours that have ended, so that none stays a zombie."""
    _started[:] = [process for process in _started if process.poll() is None]
