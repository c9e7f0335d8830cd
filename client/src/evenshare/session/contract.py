"""The environment of an interactive job, and its file for the portal."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import random
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenshare.runtime.contract import ContractError, checkpoint_signal, grace_seconds

NOTEBOOK, SHELL = "notebook", "shell"
TICK_S = 2.0
# A session that ends by its time limit, or soon becomes idle, is warned this long before.
NOTICE_S = 300.0
PROBLEM_MAX = 400


@dataclass(frozen=True)
class SessionContract:
    """An interactive lease. `limit_s` is 0 for a session without a time limit."""

    kind: str
    secret: str
    file: Path
    folder: Path
    bind: str
    ports: range
    job: str
    lease: int
    limit_s: float
    idle_s: float
    signal: int
    grace_s: float


def read_contract(values: Mapping[str, str]) -> SessionContract:
    """Return the session's settings. Raises ContractError outside an interactive job."""
    kind = values.get("EVENSHARE_SESSION", "")
    if kind not in (NOTEBOOK, SHELL):
        raise ContractError("this is no interactive job: submit it with `session: notebook`")
    try:
        first, _, last = values["EVENSHARE_SESSION_PORTS"].partition("-")
        return SessionContract(
            kind=kind,
            secret=values["EVENSHARE_SESSION_SECRET"],
            file=Path(values["EVENSHARE_SESSION_FILE"]),
            folder=Path(values["EVENSHARE_JOB_DIR"]),
            bind=values["EVENSHARE_SESSION_BIND"],
            ports=range(int(first), int(last) + 1),
            job=values.get("EVENSHARE_JOB_ID", ""),
            lease=int(values["EVENSHARE_LEASE"]),
            limit_s=float(values.get("EVENSHARE_SESSION_S") or 0),
            idle_s=float(values.get("EVENSHARE_SESSION_IDLE_S") or 0),
            signal=checkpoint_signal(values),
            grace_s=grace_seconds(values) or 10.0,
        )
    except (KeyError, ValueError) as problem:
        raise ContractError(f"the environment of the session is not complete: {problem}") from None


def is_secret(contract: SessionContract, authorization: str) -> bool:
    """Return whether a request has the lease's secret."""
    wanted = f"token {contract.secret}".encode()
    return bool(contract.secret) and hmac.compare_digest(wanted, authorization.encode())


def listener(contract: SessionContract) -> socket.socket:
    """Return a listening socket on a random free port of the range. Raises OSError."""
    for port in random.sample(contract.ports, len(contract.ports)):
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        with contextlib.suppress(OSError):
            made.bind((contract.bind, port))
            made.listen(16)
            return made
        made.close()
    raise OSError(f"no port from {contract.ports[0]} to {contract.ports[-1]} is free")


class SessionFile:
    """The report of a session: its port, its idle time, and how long all its leases have run."""

    def __init__(self, contract: SessionContract) -> None:
        self._contract = contract
        self._before_s = _used_before(contract)
        self._started = self._active = time.monotonic()

    def touch(self, age_s: float = 0.0) -> None:
        """Note that the session was used `age_s` seconds ago."""
        self._active = max(self._active, time.monotonic() - max(0.0, age_s))

    @property
    def idle_s(self) -> float:
        return time.monotonic() - self._active

    @property
    def left_s(self) -> float:
        """Return the seconds until the time limit."""
        if not self._contract.limit_s:
            return float("inf")
        return self._contract.limit_s - self._used_s

    @property
    def _used_s(self) -> float:
        return self._before_s + time.monotonic() - self._started

    def write(self, port: int, problem: str = "") -> None:
        """Replace the file. A full disk must not end a session."""
        said = {
            "version": 1,
            "lease": self._contract.lease,
            # The first node of a gang; empty if the lease has one node.
            "host": os.environ.get("EVENSHARE_NODES", "").partition(",")[0],
            "port": port,
            "idle_s": round(self.idle_s, 1),
            "used_s": round(self._used_s, 1),
            "problem": problem[:PROBLEM_MAX],
        }
        file = self._contract.file
        beside = file.with_name(f".{file.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            beside.write_text(json.dumps(said))
            beside.replace(file)


def _used_before(contract: SessionContract) -> float:
    """Return how long earlier leases have run, in seconds."""
    said: Any = None
    with contextlib.suppress(OSError, ValueError):
        said = json.loads(contract.file.read_text())
    used_s = said.get("used_s") if isinstance(said, dict) else None
    return float(used_s) if isinstance(used_s, (int, float)) and used_s > 0 else 0.0
