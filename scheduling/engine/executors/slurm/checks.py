"""Check a real cluster against a pool's requirements: query its tools, and apply `findings`."""

import contextlib
import os
import pwd
import re
import time
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.local_files import jobs_root
from scheduling.engine.executors.local_spec import CPU
from scheduling.engine.executors.slurm import findings
from scheduling.engine.executors.slurm.cluster_text import (
    NODE_FORMAT,
    SlurmNodeText,
    parse_config,
    parse_fields,
    parse_nodes,
)
from scheduling.engine.executors.slurm.commands import Slurm
from scheduling.engine.executors.slurm.findings import ClusterFinding, Level, PoolNeeds
from scheduling.engine.executors.slurm.options import SlurmOptions
from scheduling.engine.executors.slurm.restd import connect
from scheduling.engine.executors.slurm.restd_findings import power_findings, restd_findings
from scheduling.engine.executors.slurm.trial import trial_findings
from scheduling.engine.executors.slurm.user_checks import usable_users, user_findings
from scheduling.models import Node, Pool
from tenants.scopes import site_scope

TOOLS = ("sinfo", "squeue", "sbatch", "scancel", "scontrol", "srun")
_OPERATORS = ("Operator", "Administrator")


def pool_needs(pool: Pool) -> PoolNeeds:
    """Return the requirements of a pool for its cluster."""
    with site_scope():
        rows = Node.objects.filter(pool=pool).values_list("name", "gpu_type__name", "gpus")
        nodes = {name: (gpu_type, gpus) for name, gpu_type, gpus in rows if gpu_type != CPU}
        nodes |= {name: ("", 0) for name, gpu_type, _ in rows if gpu_type == CPU}
    return PoolNeeds(pool.lease_s, pool.grace_s, pool.outage_grace_s, nodes)


def check_cluster(options: SlurmOptions, pool: PoolNeeds | None) -> Iterator[ClusterFinding]:
    """Check everything that needs no job; a failed query is a finding too."""
    yield from restd_findings(options)
    slurm = Slurm(options)
    missing = list(_missing_tools(slurm))
    yield from missing
    if missing:
        return
    try:
        yield from findings.version_findings(slurm.ask("sinfo", "--version"))
        yield _controller(slurm)
        config = slurm.ask("scontrol", "show", "config")
    except ExecutorError as error:
        text = f"{error}: is slurmctld up, MUNGE running here, and slurm.conf the cluster's?"
        yield ClusterFinding(Level.ERROR, "controller", text)
        return
    said = parse_config(config)
    yield from power_findings(options, said.get("SlurmUser", "").partition("(")[0])
    yield from findings.config_findings(said, pool)
    yield from _clocks(config)
    yield from findings.rights_findings(options, is_operator=_is_operator(slurm, said))
    yield from user_findings(slurm, jobs_root())
    yield from _partition(slurm, pool)


def check_by_trial(options: SlurmOptions, root: Path, node: str = "") -> Iterator[ClusterFinding]:
    """Run a tiny job on a node (default: the first that is up), below `root`.

    If tenants have users, run one job as each of them.
    """
    slurm = connect(options)
    try:
        up = [one.name for one in partition_nodes(slurm) if one.is_up]
        chosen = node or next(iter(up), "")
        if not chosen:
            yield ClusterFinding(Level.ERROR, "trial", "no node of the partition is up")
            return
    except ExecutorError as error:
        yield ClusterFinding(Level.ERROR, "trial", str(error))
        return
    for user in usable_users(options) if options.users else (None,):
        try:
            yield from trial_findings(slurm, root, chosen, user=user)
        except (ExecutorError, OSError) as error:
            about = f"trial as {user.name}" if user else "trial"
            yield ClusterFinding(Level.ERROR, about, str(error))


def partition_nodes(slurm: Slurm) -> list[SlurmNodeText]:
    """Return the nodes of the partition from sinfo.

    Raises:
        ExecutorError: Slurm does not answer.
    """
    where = ("--noheader", "--Node", "--partition", slurm.options.partition)
    return parse_nodes(slurm.ask("sinfo", *where, "--format", NODE_FORMAT))


def _missing_tools(slurm: Slurm) -> Iterator[ClusterFinding]:
    for tool in TOOLS:
        try:
            slurm.ask(tool, "--version")
        except ExecutorError as error:
            is_missing = isinstance(error.__cause__, FileNotFoundError)
            remedy = "install slurm-client" if is_missing else "correct slurm.conf, or `conf`"
            yield ClusterFinding(Level.ERROR, tool, f"{error}; {remedy}")


def _controller(slurm: Slurm) -> ClusterFinding:
    said = slurm.ask("scontrol", "ping").strip()
    if re.search(r"\bUP\b", said):
        return ClusterFinding(Level.OK, "controller", said.splitlines()[0])
    return ClusterFinding(
        Level.ERROR, "controller", f"{said or 'does not answer'}: start slurmctld"
    )


def _clocks(config: str) -> Iterator[ClusterFinding]:
    """Check the controller's clock, whose time is in the first line of the answer."""
    match = re.match(r"Configuration data as of (\d{9,})\b", config)
    if match:
        yield findings.clock_finding("the controller", int(match[1]) - time.time())


def _is_operator(slurm: Slurm, said: dict[str, str]) -> bool:
    own = pwd.getpwuid(os.geteuid()).pw_name
    if os.geteuid() == 0 or said.get("SlurmUser", "").partition("(")[0] == own:
        return True
    # Without accounting, only these two users are operators.
    with contextlib.suppress(ExecutorError):
        show = ("--noheader", "--parsable2", "show", "user", own, "format=adminlevel")
        return any(level in slurm.ask("sacctmgr", *show) for level in _OPERATORS)
    return False


def _partition(slurm: Slurm, pool: PoolNeeds | None) -> Iterator[ClusterFinding]:
    name = slurm.options.partition
    try:
        fields = parse_fields(slurm.ask("scontrol", "show", "partition", name))
    except ExecutorError as error:
        text = f"{error}: add it to slurm.conf, or correct `partition` in executor_options"
        yield ClusterFinding(Level.ERROR, f"partition {name}", text)
        return
    yield from findings.partition_findings(fields, slurm.options, pool)
    try:
        yield from findings.node_findings(partition_nodes(slurm), slurm.options, pool)
        everywhere = slurm.ask("sinfo", "--noheader", "--Node", "--format=%N|%P")
        yield from findings.shared_node_findings(everywhere, name)
        jobs = slurm.table("squeue", findings.OWNER_COLUMNS, "--noheader", "--partition", name)
        own = {pwd.getpwuid(os.geteuid()).pw_name, *slurm.options.users.values()}
        yield from findings.others_findings(jobs, own, settings.INSTALLATION)
    except ExecutorError as error:
        yield ClusterFinding(Level.ERROR, f"partition {name}", str(error))
