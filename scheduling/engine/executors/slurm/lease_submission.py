"""The Slurm job of a lease, on exactly the nodes that the round chose."""

import math
import time
from pathlib import Path

from scheduling.engine.executors.local_spec import CPU, LeaseSpec
from scheduling.engine.executors.shim.files import lease_folder
from scheduling.engine.executors.slurm.commands import NodeGroup, Submission, job_name
from scheduling.engine.executors.slurm.gang import node_groups
from scheduling.engine.executors.slurm.installed import SCRIPT, install_shim
from scheduling.engine.executors.slurm.options import SlurmOptions

# Slurm's time limit is a second dead man's switch. With this slack the limit is rarely moved.
SLACK_MINUTES = 30


def lease_submission(root: Path, options: SlurmOptions, token: str, one: LeaseSpec) -> Submission:
    """Return the job whose batch script is the shim of a lease, in the folders below `root`."""
    folder = lease_folder(root, token)
    shim = install_shim(root)
    return Submission(
        token=token,
        name=job_name(token),
        argv=(options.interpreter, "-I", "-S", str(shim), "--log", str(folder)),
        script=str(shim.with_name(SCRIPT)),
        folder=str(folder.parents[1]),
        # Slurm writes no log: a job could replace its next lease's log by a pipe, and Slurm would
        # wait for a reader. The shim writes its own log.
        output="/dev/null",
        groups=tuple(_group(options, one, names, gpus) for gpus, names in node_groups(one)),
        minutes=options.limit_minutes or _first_limit(one),
        account=options.account_of(one.lease.tenant.slug),
        user=options.user_of(one.lease.tenant.slug),
    )


def _group(options: SlurmOptions, one: LeaseSpec, names: tuple[str, ...], gpus: int) -> NodeGroup:
    gpu_type = one.lease.gpu_type.name
    is_gpu = gpu_type != CPU
    return NodeGroup(
        names,
        options.gres(gpu_type, gpus) if is_gpu else "",
        cpus=options.cpus_per_gpu * gpus if is_gpu else gpus,
        memory_mib=options.memory_mib_per_gpu * gpus,
    )


def _first_limit(one: LeaseSpec) -> int:
    """Return the minutes from now to the lease's limit, plus the slack."""
    return max(1, math.ceil((one.limit - time.time()) / 60)) + SLACK_MINUTES
