"""A cluster's processes other than its daemons: slurmstepd and the processes of jobs.

A slurmstepd outlives its slurmd, and a process may outlive its slurmstepd. All of them have the
path of their cluster's slurm.conf in their environment.
"""

import contextlib
import os
import signal
import time
from collections import defaultdict
from pathlib import Path

PROC = Path("/proc")
PATIENCE_S = 10.0


def processes(conf: Path, node: str = "") -> set[int]:
    """Return the job processes of the cluster or of one node, including slurmstepd."""
    parents = _parents()
    roots = {pid: name for pid in parents if (name := _node_of(pid, conf)) is not None}
    children = defaultdict(list)
    for pid, parent in parents.items():
        children[parent].append(pid)
    trees = {pid: _tree(pid, children) for pid in roots}
    if node:
        trees = {
            pid: tree
            for pid, tree in trees.items()
            if node in {roots.get(member) for member in tree}
        }
    return set().union(*trees.values()) if trees else set()


def kill_processes(conf: Path, node: str = "") -> set[int]:
    """Kill the processes and their new children; return those that survive."""
    deadline = time.monotonic() + PATIENCE_S
    while (left := processes(conf, node)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return left


def _parents() -> dict[int, int]:
    parents = {}
    for folder in PROC.iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if state not in ("Z", "X"):
                parents[int(folder.name)] = int(parent)
    return parents


def _node_of(pid: int, conf: Path) -> str | None:
    """Return the node of the process's job, empty if unknown; None if it is not of this cluster."""
    try:
        raw = (PROC / str(pid) / "environ").read_bytes()
        command = (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return None
    variables = dict(entry.partition(b"=")[::2] for entry in raw.split(b"\0"))
    if variables.get(b"SLURM_CONF") != os.fsencode(conf):
        return None
    # Users of Slurm's tools have SLURM_CONF too, and are not jobs.
    if command != "slurmstepd" and b"SLURM_JOB_ID" not in variables:
        return None
    return variables.get(b"SLURMD_NODENAME", b"").decode(errors="replace")


def _tree(root: int, children: dict[int, list[int]]) -> set[int]:
    members, todo = set(), [root]
    while todo:
        pid = todo.pop()
        if pid not in members:
            members.add(pid)
            todo += children.get(pid, [])
    return members
