"""`local`: real processes on this machine, one shim each (see the package `shim`).

There is no isolation: jobs run as the portal's user. It is for a demo, a workstation, or a lab's
own machine.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from evenshare_core.units import MICROSECOND_NS, SECOND_US
from scheduling.engine.executors.base import ExecutorTraits
from scheduling.engine.executors.local_shims import LivingShim, LivingShims
from scheduling.engine.executors.local_spec import LeaseSpec, Surroundings, read_specs, search_path
from scheduling.engine.executors.shim.files import lease_folder, make_private, read_json, write_json
from scheduling.engine.executors.shim.processes import marked, signal_process
from scheduling.engine.executors.shim_executor import CLAIM_S, ShimExecutor
from scheduling.engine.executors.spans import GRAIN_US, EngineWord, instant

SHIM = Path(__file__).with_name("shim")
# Shims answer within tens of milliseconds. A shim that is slower is found by a later listing.
ANSWER_S = 3.0
# Jobs have a lower priority than the portal on the same machine.
NICE = 5
# Without O_NONBLOCK the open would block on a pipe without a reader.
_ERRORS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK

log = structlog.get_logger(__name__)

# Shims that this process started, to be reaped when they end.
_started: list[subprocess.Popen[bytes]] = []


class LocalExecutor(ShimExecutor):
    """Starts shims as processes of this machine, and finds them there."""

    traits = ExecutorTraits(
        keeps_output=True,
        keeps_files=True,
        reports_usage=True,
        runs_as_portal=True,
        is_exclusive=True,
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
        span = self._note(token, "span")
        make_private(self._root, span.parent)
        start.spec["span"] = str(span)
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
                # Do not pass on the portal's environment, which contains addresses and keys.
                env={"PATH": search_path(), "LANG": "C.UTF-8"},
            )
        _started.append(process)
        return process

    def _wake(self, tokens: Mapping[str, dict[str, Any] | None]) -> dict[str, EngineWord]:
        shims = LivingShims(self._root)
        for token, claim in tokens.items():
            shim = self._shim(token, shims, claim)
            if shim is not None:
                signal_process(shim.record, signal.SIGTERM)
        return self._seen(tokens, shims)

    def _look(self, tokens: Sequence[str], fresh: Collection[str]) -> dict[str, EngineWord | None]:  # noqa: ARG002 - the kernel knows new ones too
        seen = self._seen(tokens, LivingShims(self._root))
        return {token: seen.get(token) for token in tokens}

    def _settle(
        self,
        pool_id: int,  # noqa: ARG002 - one host
        tokens: Sequence[str],
    ) -> tuple[set[str], dict[str, EngineWord]]:
        """Record shims that died, and kill the processes that they left."""
        _collect()
        shims = LivingShims(self._root)
        for token in tokens:
            self._give_up_unclaimed(token, shims)
            self._clearing(token, partial(self._bury, token, shims))
        return set(), self._seen(tokens, shims)

    def _shim(
        self, token: str, shims: LivingShims, claim: Mapping[str, Any] | None
    ) -> LivingShim | None:
        return shims.of(lease_folder(self._root, token), self._span(token), claim)

    def _span(self, token: str) -> dict[str, Any] | None:
        """Return the start, later the end, from a record of the shim that the job cannot change."""
        return read_json(self._note(token, "span"))

    def _seen(self, tokens: Iterable[str], shims: LivingShims) -> dict[str, EngineWord]:
        saw = {token: self._saw(token, shims) for token in tokens}
        return {token: one for token, one in saw.items() if one is not None}

    def _saw(self, token: str, shims: LivingShims) -> EngineWord | None:
        """Return when a lease's shim started and ended; None if unknown."""
        claim = self._claim(token)
        shim = self._shim(token, shims, claim)
        # A shim records its end before it dies, so read this after searching for the shim.
        span = self._span(token) or {}
        started_us = instant(span.get("started_us"))
        if shim is None:
            ended_us = instant(span.get("ended_us"))
            if started_us is None and ended_us is None:
                return None
            return EngineWord(started_us, ended_us, None if ended_us is None else span)
        now_us = time.time_ns() // MICROSECOND_NS
        if started_us is not None and shim.began_us - GRAIN_US <= started_us <= now_us:
            return EngineWord(started_us)
        # The program has not started yet, or its job removed the record.
        says_start = instant((claim or {}).get("started_us")) is not None
        is_late = now_us - shim.began_us > CLAIM_S * SECOND_US
        return EngineWord(shim.began_us if says_start or is_late else None)

    def _bury(self, token: str, shims: LivingShims) -> None:
        folder = lease_folder(self._root, token)
        claim = self._claim(token)
        shim = self._shim(token, shims, claim)
        if shim is not None:
            if self._is_overdue(token):
                log.warning("executor.cut_off", token=token)
                signal_process(shim.record, signal.SIGKILL)
                self._kill_left(folder)
            return
        span = self._span(token)
        if span is None:
            # Read the exit after the search for the shim, which writes its exit before it dies.
            if claim is None or claim.get("never") or self._exit(token) is not None:
                return
        elif "ended_us" in span:
            return
        self._kill_left(folder)
        if span is not None:
            lost = {**span, "ended_us": time.time_ns() // MICROSECOND_NS, "lost": True}
            write_json(self._note(token, "span"), lost, durably=True)
        self._note_lost(token)

    def _kill_left(self, folder: Path) -> None:
        """Kill the processes that a shim left behind or cannot stop."""
        job, number = folder.parents[1], folder.name
        for pid in marked({"EVENSHARE_JOB_DIR": str(job), "EVENSHARE_LEASE": number}):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _give_up_unclaimed(self, token: str, shims: LivingShims | None = None) -> None:
        """Give up an unclaimed lease, unless its shim still runs: a job can remove the claim."""
        if shims is None or self._claim(token) is not None:
            return
        if self._shim(token, shims, None) is None:
            super()._give_up_unclaimed(token)


def _await_answers(shims: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait until each shim has closed its output: its program runs, or could not be started."""
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
    """Reap our shims that have ended, so that none stays a zombie."""
    _started[:] = [process for process in _started if process.poll() is None]
