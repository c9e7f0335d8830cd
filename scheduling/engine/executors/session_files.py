"""Interactive leases: their environment, and the file in which they report their port.

The file is in the job's folder, so it is untrusted. Whatever it says, the proxy connects only to
the nodes of the lease, and to the ports of `SESSION_PORTS`.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.utils.crypto import salted_hmac

from scheduling.engine.executors.base import executor_traits
from scheduling.engine.executors.local_files import said_of_job
from scheduling.models import Job, Lease

FILE, FILE_BYTES = "session.json", 4096
PROBLEM_MAX = 400
# An older report (wall time) names no port: its server hangs or has ended, and another program may
# have the port.
FRESH_S = 60.0
_LOOPBACK = "127.0.0.1"


class SessionReport(NamedTuple):
    """The report of a lease's server. `port` is 0 while it does not serve; `age_s`: wall time."""

    host: str
    port: int
    idle_s: float
    used_s: float
    problem: str
    age_s: float

    @property
    def is_ready(self) -> bool:
        return self.port > 0 and self.age_s <= FRESH_S

    @property
    def unused_s(self) -> float:
        """Return how long the session was not used, also if its server hangs."""
        return self.idle_s + self.age_s


def session_facts(lease: Lease, folder: Path) -> dict[str, str]:
    """Return the variables of an interactive lease; empty for other jobs."""
    job = lease.job
    if not job.session:
        return {}
    ports = settings.SESSION_PORTS
    facts = {
        "EVENSHARE_SESSION": job.session,
        "EVENSHARE_SESSION_SECRET": session_secret(job, lease.number),
        "EVENSHARE_SESSION_PORTS": f"{ports[0]}-{ports[-1]}",
        "EVENSHARE_SESSION_BIND": _LOOPBACK if _is_here(lease.pool.executor) else "0.0.0.0",  # noqa: S104 - the proxy is on another machine
        "EVENSHARE_SESSION_FILE": str(folder / FILE),
        "EVENSHARE_SESSION_IDLE_S": str(idle_limit_s(job)),
    }
    return facts | ({"EVENSHARE_SESSION_S": str(job.session_s)} if job.session_s else {})


def session_secret(job: Job, lease_number: int) -> str:
    """Return the secret with which the proxy authenticates to a lease's server."""
    name = f"{settings.INSTALLATION}/{job.uid}/{lease_number}"
    return salted_hmac("evenshare.session.upstream", name, algorithm="sha256").hexdigest()


def idle_limit_s(job: Job) -> int:
    """Return after how long without use the job's lease is not renewed."""
    return min(job.session_idle_s or settings.SESSION_IDLE_S, settings.SESSION_IDLE_MAX_S)


def read_session(job_id: int, lease_number: int) -> SessionReport | None:
    """Return the report of this lease's server; None without a usable report."""
    text, modified_s = said_of_job(job_id, FILE, FILE_BYTES)
    return parse_session(text, lease_number, max(0.0, time.time() - modified_s))


def parse_session(text: bytes, lease_number: int, age_s: float) -> SessionReport | None:
    """Return the report in a file's text; None if it is not well formed, or of another lease."""
    try:
        said = json.loads(text) if len(text) <= FILE_BYTES else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, Mapping) or said.get("version") != 1:
        return None
    host, port, problem = said.get("host"), said.get("port"), said.get("problem")
    times = [said.get("idle_s"), said.get("used_s")]
    if said.get("lease") != lease_number or not isinstance(host, str) or len(host) > 255:
        return None
    if type(port) is not int or not (port == 0 or port in settings.SESSION_PORTS):
        return None
    if not isinstance(problem, str) or not all(map(_is_time, times)):
        return None
    clean = "".join(letter for letter in problem[:PROBLEM_MAX] if letter.isprintable())
    return SessionReport(host, port, float(times[0] or 0), float(times[1] or 0), clean, age_s)


def upstream(lease: Lease, report: SessionReport, nodes: Sequence[str]) -> str:
    """Return `host:port` of a ready server on one of the lease's `nodes`; empty without a server.

    The job names the port, and on several nodes the node.
    """
    if not report.is_ready:
        return ""
    if _is_here(lease.pool.executor):
        return f"{_LOOPBACK}:{report.port}"
    host = report.host or (nodes[0] if len(nodes) == 1 else "")
    if host not in nodes or not _is_node_name(host):
        return ""
    return f"{host}:{report.port}"


def _is_here(executor: str) -> bool:
    """Return whether an executor's leases run on the portal's own machine."""
    return executor_traits(executor).runs_as_portal


def _is_node_name(host: str) -> bool:
    """Return whether it is a name of another machine, and no address or name of this one."""
    name = host.lower()
    is_plain = all(letter.isalnum() or letter in "-." for letter in name) and name.isascii()
    return is_plain and any(map(str.isalpha, name)) and name.partition(".")[0] != "localhost"


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(float(value)) and 0 <= float(value) < 1e9  # type: ignore[arg-type]  # it is a number
