"""The specification that a shim reads: program, folder, clean environment and limits."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings

from scheduling.engine.executors.base import lease_token
from scheduling.engine.executors.limits import clock_skew, dead_mans_limit
from scheduling.engine.executors.session_files import session_facts
from scheduling.engine.executors.shim.files import lease_folder
from scheduling.models import Job, Lease, LeaseSlot, Pool
from scheduling.requests.sweep_points import INDEX, INDEX_VARIABLE
from tenants.scopes import site_scope

# The GPU type whose slots are CPUs instead of GPUs.
CPU = "cpu"
CHECKPOINT_SIGNAL = "SIGUSR1"
LOG_BYTES = 10 * 2**20
USAGE_EVERY_S = 10.0


class NodeShare(NamedTuple):
    """A node's name, and the slots that a lease holds on it."""

    node: str
    slots: tuple[int, ...]


@dataclass(frozen=True)
class LeaseSpec:
    """A lease (with its job and pool), its slots by node, and its shim's specification.

    `limit`: the dead man's limit, in seconds since 1970.
    """

    lease: Lease
    shares: tuple[NodeShare, ...]
    spec: dict[str, Any]
    limit: int


class Surroundings(NamedTuple):
    """The part of a program's environment that depends on the executor, not on the job.

    `path`: the PATH of programs. `names_gpus`: slots are GPU indices that programs receive; if
    False, the starter of the shim assigns GPUs. `lifeline`: a file whose lock is held as long as
    programs may run.
    """

    path: str
    names_gpus: bool
    nice: int = 0
    lifeline: str = ""


def read_specs(
    root: Path, job_ids: Iterable[int], surroundings: Callable[[Pool], Surroundings]
) -> dict[str, LeaseSpec]:
    """Return the specifications of the live leases of jobs, by token."""
    leases = (
        Lease.objects.filter(job_id__in=list(job_ids))
        .exclude(state=Lease.State.ENDED)
        .select_related("job", "tenant", "pool__clock", "gpu_type")
    )
    rows = LeaseSlot.objects.filter(lease__in=leases).order_by("lease_id", "node_id", "slot")
    with site_scope():
        live = list(leases)
        held = list(rows.values_list("lease_id", "node__name", "slot"))
    slots: dict[int, dict[str, list[int]]] = {}
    for lease_id, node, slot in held:
        slots.setdefault(lease_id, {}).setdefault(node, []).append(slot)
    specs = {}
    skew = clock_skew() if live else timedelta(0)
    for lease in live:
        token = lease_token(lease.job_id, lease.number, settings.INSTALLATION)
        by_node = slots.get(lease.pk, {})
        shares = tuple(NodeShare(node, tuple(held)) for node, held in by_node.items())
        spec = _spec(root, token, lease, shares, surroundings(lease.pool))
        limit = dead_mans_limit(lease.pool, lease.expires_at, skew)
        specs[token] = LeaseSpec(lease, shares, spec, limit)
    return specs


def _spec(
    root: Path,
    token: str,
    lease: Lease,
    shares: Sequence[NodeShare],
    surroundings: Surroundings,
) -> dict[str, Any]:
    job, pool = lease.job, lease.pool
    folder = lease_folder(root, token).parents[1]
    grace_s = pool.grace_s / pool.clock.scale
    facts = {
        "EVENSHARE_JOB_ID": str(job.uid),
        "EVENSHARE_LEASE": str(lease.number),
        "EVENSHARE_JOB_DIR": str(folder),
        "EVENSHARE_CHECKPOINT_SIGNAL": CHECKPOINT_SIGNAL,
        "EVENSHARE_GRACE_S": f"{grace_s:g}",
        "EVENSHARE_PROGRESS": str(folder / "progress.json"),
        "EVENSHARE_ITERATIONS": str(folder / "iterations.json"),
        "EVENSHARE_METRICS": str(folder / "metrics.json"),
        # Set only in profiling runs, so that programs can test whether the variable exists.
        **({"EVENSHARE_PROFILING": "1"} if job.profiling_s else {}),
        **_stop_facts(job, folder),
        **_sweep_facts(job),
        **session_facts(lease, folder),
    }
    slots = [slot for share in shares for slot in share.slots]
    if surroundings.names_gpus:
        facts["EVENSHARE_SLOTS"] = ",".join(map(str, slots))
    gpus = slots if surroundings.names_gpus and lease.gpu_type.name != CPU else None
    environment = job_environment(
        job.environment, facts, home=str(folder), path=surroundings.path, gpus=gpus
    )
    return {
        "argv": [str(word) for word in job.command],
        "env": environment,
        "cwd": pool.source_dir or str(folder),
        "signal": CHECKPOINT_SIGNAL,
        "grace_s": grace_s,
        "log_bytes": getattr(settings, "LOCAL_LOG_BYTES", LOG_BYTES),
        # The job's own PATH must not decide which tools the shim calls.
        "tools_path": surroundings.path,
        "usage_every_s": getattr(settings, "LOCAL_USAGE_EVERY_S", USAGE_EVERY_S),
        "nice": surroundings.nice,
        "lifeline": surroundings.lifeline,
    }


def _stop_facts(job: Job, folder: Path) -> dict[str, str]:
    """Return the variables of a job's stopping metric, and of the file for its values."""
    if not job.stop_metric or job.stop_value is None:
        return {}
    return {
        "EVENSHARE_EVALUATIONS": str(folder / "evaluations.json"),
        "EVENSHARE_STOP_METRIC": job.stop_metric,
        "EVENSHARE_STOP_RULE": job.stop_rule,
        "EVENSHARE_STOP_VALUE": f"{job.stop_value:f}",
    }


def _sweep_facts(job: Job) -> dict[str, str]:
    """Return the variable of a sweep's job: its array's index, or else its place in the sweep.

    Parameters of a matrix are in the job's own environment.
    """
    if job.sweep_index is None:
        return {}
    return {INDEX_VARIABLE: str((job.parameters or {}).get(INDEX, job.sweep_index))}


def job_environment(
    wanted: Mapping[str, Any],
    facts: Mapping[str, str],
    *,
    home: str,
    path: str,
    gpus: Sequence[int] | None,
) -> dict[str, str]:
    """Return a job's whole environment; it contains no variable of the portal.

    `gpus` are device indices, or None if the slots are not GPUs: then no device is named.
    """
    environment = {
        "PATH": path,
        "HOME": home,
        "LANG": "C.UTF-8",
        # Without buffering, a program's output is visible while it runs.
        "PYTHONUNBUFFERED": "1",
        **{str(key): str(value) for key, value in wanted.items()},
        **facts,
    }
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    if gpus is not None:
        # CUDA's default order is by speed; NVML's indices follow the bus.
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    return environment


def search_path() -> str:
    """Return the portal's PATH, preceded by the folder of its Python, which provides `python`."""
    own = str(Path(sys.executable).parent)
    return f"{own}{os.pathsep}{os.environ.get('PATH') or os.defpath}"
