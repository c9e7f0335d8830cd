"""Slurm's nodes without Slurm: the output of sinfo, and the effects of scontrol."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from scheduling.engine.executors.base import ExecutorError, ExecutorTraits
from scheduling.engine.executors.node_source import EngineNode
from scheduling.engine.executors.slurm.nodes import drain_nodes, read_nodes, resume_nodes
from scheduling.engine.executors.slurm.options import SlurmOptions
from scheduling.engine.executors.virtual import VirtualExecutor


def row(name: str, state: str = "idle", reason: str = "none", **columns: str) -> str:
    """Return a node's row as sinfo prints it for `read_nodes`."""
    asked = {"gres": "gpu:v100:4", "cpus": "64", "memory": "64000", "since": "Unknown", **columns}
    return "\x1f".join([name, state, *asked.values(), reason]) + "\x1e\n"


@dataclass
class PretendedNode:
    """A simulated node: its base state, whether it drains, and its single reason."""

    base: str = "idle"
    drains: bool = False
    reason: str = ""

    @property
    def state(self) -> str:
        return self.base + ("+drain" if self.drains else "")


@dataclass
class PretendedSlurm:
    """Simulates the tools of slurmctld.

    If `refuses`, it refuses operators' commands; if `is_silent`, it answers no command.
    """

    nodes: dict[str, PretendedNode]
    options: SlurmOptions = field(default_factory=lambda: SlurmOptions(partition="gpu"))
    calls: list[tuple[str, ...]] = field(default_factory=list)
    is_silent: bool = False
    refuses: bool = False

    def ask(self, tool: str, *arguments: str) -> str:
        self.calls.append((tool, *arguments))
        if self.is_silent:
            raise ExecutorError(f"{tool} did not answer within 5 s")
        if tool == "sinfo":
            rows = (row(name, one.state, one.reason or "none") for name, one in self.nodes.items())
            return "".join(rows)
        if self.refuses:
            raise ExecutorError(f"{tool}: slurm_update error: Invalid user id")
        given = dict(word.split("=", 1) for word in arguments if "=" in word)
        for name in given["NodeName"].split(","):
            node = self.nodes[name]
            if given["State"] == "DRAIN":
                node.drains, node.reason = True, given["Reason"]
            else:
                assert given["State"] == "RESUME"
                node.drains, node.reason, node.base = False, "", "idle"
        return ""


class PretendedExecutor(VirtualExecutor):
    """The virtual executor with nodes of a simulated Slurm."""

    traits = ExecutorTraits(simulates=True, has_nodes=True, title="Slurm")

    def __init__(self, slurm: PretendedSlurm) -> None:
        super().__init__()
        self.slurm = slurm

    def cluster(self, _pool_id: int) -> str:
        return "pretended"

    def nodes(self, _pool_id: int) -> list[EngineNode]:
        return read_nodes(self.slurm)

    def drain(self, _pool_id: int, reasons: Mapping[str, str]) -> None:
        drain_nodes(self.slurm, reasons)

    def resume(self, _pool_id: int, names: Collection[str]) -> None:
        resume_nodes(self.slurm, names)
