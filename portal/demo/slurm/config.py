"""The configuration files of the cluster, as text: slurm.conf, gres.conf and cgroup.conf."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PARTITION = "gpu"
HOST = "127.0.0.1"
# More than a job requests, whatever the host has, so that only GPUs are scarce.
CORES, MEMORY_MB = 64, 64_000
# Seconds of silence after which a node is down; long enough for live nodes on a busy host.
SLURMD_TIMEOUT_S = 15
# Largest component number of a heterogeneous job: one component per distinct number of GPUs on a
# node.
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
    """A simulated node of the cluster."""

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
    """The file paths of a cluster: one folder, so that several clusters may run at once.

    `sockets`: another folder for files with sockets, if the first path is too long for them. It may
    vanish when the cluster has ended.
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
        """Return the longest path of a slurmstepd socket of a node, with the largest numbers."""
        return self.spool / node / f"{node}_{2**32 - 1}.{2**32 - 1}.{LARGEST_COMPONENT}"


def slurm_conf(
    paths: Paths,
    nodes: Sequence[SlurmNode],
    *,
    user: str,
    ports: Mapping[str, int],
    slurmd_timeout_s: int,
) -> str:
    """Return slurm.conf; `ports` has a port for `slurmctld` and for each node's name.

    The settings are for quick starts and for tests that lose nodes. The scheduler runs at once and
    every second, a silent node is soon down, and a node that returns is used again.
    """
    lines = [
        "ClusterName=evenshare",
        # slurmctld does not compare the name `localhost` with the machine's name.
        f"SlurmctldHost=localhost({HOST})",
        f"SlurmctldPort={ports['slurmctld']}",
        f"SlurmUser={user}",
        f"SlurmdUser={user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={paths.munge_socket}",
        # The daemons are not reachable from other hosts.
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
        # Control groups would need root and a dedicated host.
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
        # A lease is one job: if its node is lost, the portal decides whether it runs again.
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
    """Return gres.conf: the devices are links to /dev/null, see `make_devices`."""
    lines = [
        f"NodeName={node.name} Name=gpu Type={node.gpu_type}"
        f" File={paths.devices}/gpu[0-{node.gpus - 1}]"
        for node in nodes
    ]
    return "\n".join(["AutoDetect=off", *lines]) + "\n"


def cgroup_conf() -> str:
    """Return cgroup.conf: slurmd needs the file even if no control group is used."""
    return "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"


def make_devices(paths: Paths, nodes: Sequence[SlurmNode]) -> None:
    """Make the fake GPUs: Slurm needs devices whose names end in their numbers.

    Without devices CUDA_VISIBLE_DEVICES stays empty. A link needs no root, and every container has
    /dev/null.
    """
    paths.devices.mkdir(exist_ok=True)
    for number in range(max(node.gpus for node in nodes)):
        device = paths.devices / f"gpu{number}"
        if not device.is_symlink():
            device.symlink_to("/dev/null")
