"""The configuration files of the cluster, as text: slurm.conf, gres.conf and cgroup.conf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PARTITION = "gpu"
HOST = "127.0.0.1"
# More than a job asks for, whatever the host has: only GPUs are scarce.
CORES, MEMORY_MB = 64, 64_000
# A node that is silent for so long is down; on a busy host none may seem lost that is not.
SLURMD_TIMEOUT_S = 15
# Of a heterogeneous job: one for each number of GPUs that a gang has on a node.
LARGEST_COMPONENT = 9
SCHEDULER = (
    "sched_interval=1",
    "sched_min_interval=0",
    "batch_sched_delay=0",
    "bf_interval=2",
    "default_queue_depth=2000",
)


@dataclass(frozen=True)
class SlurmNode:
    """A node that the cluster pretends to have."""

    name: str
    gpu_type: str
    gpus: int


NODES = (
    SlurmNode("node-1", "a100", 4),
    SlurmNode("node-2", "a100", 4),
    SlurmNode("node-3", "v100", 4),
    SlurmNode("node-4", "v100", 4),
    SlurmNode("node-5", "k80", 4),
)


@dataclass(frozen=True)
class Paths:
    """Where the files of a cluster lie: all in one folder, so that several may run beside.

    `sockets`: another folder for what has sockets in it, where the path of the first is too long
    for them; it may vanish when the cluster has ended.
    """

    folder: Path
    sockets: Path | None = None

    @property
    def _socket_folder(self) -> Path:
        return self.sockets or self.folder

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def spool(self) -> Path:
        return self._socket_folder / "spool"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def devices(self) -> Path:
        return self.folder / "devices"

    @property
    def munge(self) -> Path:
        return self._socket_folder / "munge"

    @property
    def munge_key(self) -> Path:
        return self.munge / "key"

    @property
    def munge_socket(self) -> Path:
        return self.munge / "socket"

    def step_socket(self, node: str) -> Path:
        """The longest path at which a slurmstepd of a node may listen, once numbers are large."""
        return self.spool / node / f"{node}_{2**32 - 1}.{2**32 - 1}.{LARGEST_COMPONENT}"


def slurm_conf(
    paths: Paths,
    nodes: Sequence[SlurmNode],
    *,
    user: str,
    ports: Mapping[str, int],
    slurmd_timeout_s: int,
) -> str:
    """The text of slurm.conf; `ports` has one for `slurmctld` and one for each node's name.

    For quick starts and for tests that lose nodes: the scheduler looks at once and every second, a
    silent node is soon down, and one that comes back is taken again.
    """
    lines = [
        "ClusterName=evenshare",
        # `localhost` is the one name of a host that slurmctld does not compare with the machine's.
        f"SlurmctldHost=localhost({HOST})",
        f"SlurmctldPort={ports['slurmctld']}",
        f"SlurmUser={user}",
        f"SlurmdUser={user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={paths.munge_socket}",
        # Nobody reaches the daemons from outside of this host.
        "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
        f"StateSaveLocation={paths.state}",
        f"SlurmdSpoolDir={paths.spool}/%n",
        f"SlurmctldPidFile={paths.state}/slurmctld.pid",
        f"SlurmdPidFile={paths.spool}/%n.pid",
        f"SlurmctldLogFile={paths.logs}/slurmctld.log",
        f"SlurmdLogFile={paths.logs}/%n.log",
        # Nodes declare more cores than the host has.
        "SlurmdParameters=config_overrides",
        "MailProg=/bin/true",
        "MpiDefault=none",
        # Control groups would need root and a host of our own.
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={paths.folder}/jobcomp.log",
        "PropagateResourceLimits=NONE",
        "PriorityType=priority/basic",
        "SchedulerType=sched/backfill",
        f"SchedulerParameters={','.join(SCHEDULER)}",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "GresTypes=gpu",
        # A lease is one job: when its node is lost, the portal decides what comes next.
        "JobRequeue=0",
        "MaxJobCount=20000",
        "MinJobAge=3600",
        "KillWait=5",
        "UnkillableStepTimeout=60",
        f"SlurmdTimeout={slurmd_timeout_s}",
        "ReturnToService=1",
        *(_node_line(node, ports[node.name]) for node in nodes),
        f"PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    ]
    return "\n".join(lines) + "\n"


def _node_line(node: SlurmNode, port: int) -> str:
    return (
        f"NodeName={node.name} NodeAddr={HOST} NodeHostname=localhost Port={port}"
        f" Sockets=1 CoresPerSocket={CORES} ThreadsPerCore=1 RealMemory={MEMORY_MB}"
        f" Gres=gpu:{node.gpu_type}:{node.gpus} Feature={node.gpu_type}"
    )


def gres_conf(paths: Paths, nodes: Sequence[SlurmNode]) -> str:
    """The text of gres.conf: the devices are links to /dev/null, see `make_devices`."""
    lines = [
        f"NodeName={node.name} Name=gpu Type={node.gpu_type}"
        f" File={paths.devices}/gpu[0-{node.gpus - 1}]"
        for node in nodes
    ]
    return "\n".join(["AutoDetect=off", *lines]) + "\n"


def cgroup_conf() -> str:
    """The text of cgroup.conf: slurmd wants the file where no group is used, too."""
    return "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"


def make_devices(paths: Paths, nodes: Sequence[SlurmNode]) -> None:
    """Make the fake GPUs: Slurm wants devices, and tells their numbers by the ends of their names.

    Without devices CUDA_VISIBLE_DEVICES stays empty. A link needs no root, and /dev/null is there
    in every container.
    """
    paths.devices.mkdir(exist_ok=True)
    for number in range(max(node.gpus for node in nodes)):
        device = paths.devices / f"gpu{number}"
        if not device.is_symlink():
            device.symlink_to("/dev/null")
