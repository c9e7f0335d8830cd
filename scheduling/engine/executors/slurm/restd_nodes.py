"""The nodes of a partition from slurmrestd, as `nodes.read_nodes` reads them from sinfo."""

import msgspec

from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.node_source import EngineNode
from scheduling.engine.executors.slurm.nodes import NodeText, engine_node
from scheduling.engine.executors.slurm.restd import RestdSlurm
from scheduling.engine.executors.slurm.restd_http import RestdAnswer
from scheduling.selectors import stored_texts as texts


class RestdNode(msgspec.Struct, frozen=True):
    """A node as slurmrestd lists it; memory in MiB, `reason_changed_at` seconds since 1970."""

    name: str
    state: str
    state_flags: tuple[str, ...]
    gres: str | None
    cpus: int
    real_memory: int
    reason: str | None
    reason_changed_at: int
    partitions: tuple[str, ...]


class RestdNodes(RestdAnswer, frozen=True):
    nodes: tuple[RestdNode, ...]


def read_restd_nodes(slurm: RestdSlurm) -> list[EngineNode]:
    """Return the nodes of the partition.

    Raises:
        ExecutorError: slurmrestd does not answer, or its partition has no nodes.
    """
    partition = slurm.options.partition
    every = slurm.client.ask(RestdNodes, "GET", "nodes").nodes
    lines = [_text(node) for node in every if partition in node.partitions]
    if not lines:
        where = slurm.client.where
        raise ExecutorError(texts.NO_PARTITION.format(where=where, partition=partition))
    return [engine_node(text, slurm.options) for text in sorted(lines)]


def _text(node: RestdNode) -> NodeText:
    return NodeText(
        node.name,
        "+".join((node.state, *node.state_flags)),
        node.gres or "",
        str(node.cpus),
        str(node.real_memory),
        str(node.reason_changed_at),
        node.reason or "",
    )
