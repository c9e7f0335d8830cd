"""Slurm's nodes: reads a partition's nodes in one call of sinfo, and drains nodes with scontrol.

A drain by this portal is recognised by the prefix of its reason. The portal never undoes other
drains, which Slurm or its administrators made.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.node_source import EngineNode, EngineNodeState
from scheduling.engine.executors.slurm.cluster_text import parse_config
from scheduling.engine.executors.slurm.options import SlurmOptions
from scheduling.selectors import stored_texts as texts

OURS = "evenshare: "
REASON_MAX = 150
# The maximum number of node names in a command's arguments.
NAMES_AT_ONCE = 200
_COLUMN, _ROW = "\x1f", "\x1e"
# The reason is last, because it may contain any text.
_FIELDS = ("NodeList", "StateComplete", "Gres", "CPUs", "Memory", "TimeStamp", "Reason")
# A node that is powered down to save power is not down: Slurm wakes it for a job.
_DOWN = frozenset(
    (
        "down", "error", "future", "unknown", "no_respond", "not_responding", "invalid",
        "invalid_reg", "inval", "reboot_issued",
    )
)  # fmt: skip # a table
_DRAINING = frozenset(("drain", "drained", "draining", "fail", "failed", "failing", "maint"))
_DRAIN = frozenset(("drain", "drained", "draining"))
_SILENT = frozenset(("no_respond", "not_responding"))
_NO_REASON = frozenset(("", "none", "(null)", "n/a", "unknown"))
_THOUSANDS = {"K": 1024, "M": 1024**2}


class Tools(Protocol):
    """The interface to a cluster's tools, as in `slurm.commands.Slurm`."""

    options: SlurmOptions

    def ask(self, tool: str, *arguments: str) -> str:
        """Run a tool and return its output; raise ExecutorError if it fails."""


def read_nodes(slurm: Tools) -> list[EngineNode]:
    """Return the nodes of the partition.

    Raises:
        ExecutorError: Slurm does not answer, or the partition has no nodes. sinfo does not
            distinguish an empty partition from a missing one.
    """
    # A separator without a width makes the column as wide as its text.
    columns = [f"{name}:{_COLUMN}" for name in _FIELDS[:-1]] + [f"{_FIELDS[-1]}:{_ROW}"]
    partition = slurm.options.partition
    text = slurm.ask(
        "sinfo", "--noheader", "--Node", f"--partition={partition}", f"--Format={','.join(columns)}"
    )
    nodes = parse_nodes(text, slurm.options)
    if not nodes:
        raise ExecutorError(texts.NO_PARTITION.format(where="sinfo", partition=partition))
    return nodes


def read_cluster(slurm: Tools) -> str:
    """Return a key that identifies the cluster, independent of the slurm.conf in use.

    Raises:
        ExecutorError: Slurm does not answer.
    """
    settings = parse_config(slurm.ask("scontrol", "show", "config"))
    names = ("ClusterName", "SlurmctldHost[0]", "SlurmctldPort")
    return " ".join(settings.get(name, "") for name in names)


def drain_nodes(slurm: Tools, reasons: Mapping[str, str]) -> None:
    """Drain nodes, each with a reason that marks the drain as ours."""
    names: dict[str, list[str]] = {}
    for name, reason in sorted(reasons.items()):
        names.setdefault(reason_text(reason), []).append(name)
    for reason, drained in names.items():
        _update(slurm, drained, "State=DRAIN", f"Reason={reason}")


def resume_nodes(slurm: Tools, names: Collection[str]) -> None:
    """Undo drains. Slurm first checks nodes that went down meanwhile."""
    _update(slurm, sorted(names), "State=RESUME")


def reason_text(reason: str) -> str:
    """Return a reason as Slurm stores it: one line, without the quotes that scontrol strips."""
    return (OURS + _one_line(reason.replace('"', "'")))[:REASON_MAX].rstrip()


def _update(slurm: Tools, names: list[str], *changes: str) -> None:
    for start in range(0, len(names), NAMES_AT_ONCE):
        some = ",".join(names[start : start + NAMES_AT_ONCE])
        try:
            slurm.ask("scontrol", "update", f"NodeName={some}", *changes)
        except ExecutorError as error:
            if re.search(r"invalid user|permission", str(error), re.IGNORECASE):
                text = texts.NO_SLURM_OPERATOR.format(error=error, document="docs/slurm.md")
                raise ExecutorError(text) from error
            raise


def parse_nodes(text: str, options: SlurmOptions) -> list[EngineNode]:
    """Return the nodes in sinfo's output, each once; other rows are skipped."""
    nodes: dict[str, EngineNode] = {}
    for row in text.split(_ROW):
        columns = row.strip(" \r\n").split(_COLUMN)
        if len(columns) < len(_FIELDS):
            continue
        name, state, gres, cpus, memory, since = (one.strip() for one in columns[:6])
        reason = _COLUMN.join(columns[6:])
        if name:
            node = NodeText(name, state, gres, cpus, memory, since, reason)
            nodes[name] = engine_node(node, options)
    return [nodes[name] for name in sorted(nodes)]


class NodeText(NamedTuple):
    """A node as Slurm prints it, in the order of _FIELDS."""

    name: str
    state: str
    gres: str
    cpus: str
    memory: str
    since: str
    reason: str


def engine_node(text: NodeText, options: SlurmOptions) -> EngineNode:
    (gpu_type, gpus), unfit = read_gpus(text.gres, options)
    said = _read_state(text.state, text.reason, text.since, reserves=bool(options.reservation))
    return EngineNode(
        text.name, gpu_type, gpus, _count(text.cpus), _count(text.memory), said.state,
        said.reason, said.since, said.drained_here, unfit,
    )  # fmt: skip # rows of what belongs together


class _State(NamedTuple):
    state: EngineNodeState
    reason: str = ""
    since: datetime | None = None
    drained_here: bool = False


def _read_state(state: str, reason: str, since: str, *, reserves: bool) -> _State:
    """Interpret a node's flags and reason.

    `reserves`: the pool uses a reservation, which may be a maintenance reservation.
    """
    # Flags are words after a plus sign; a star means that the node does not respond.
    flags = {re.sub(r"[^a-z_]", "", flag) for flag in state.casefold().split("+")}
    if "*" in state:
        flags.add("not_responding")
    if "maintenance" in flags:
        flags.add("maint")
    if reserves:
        flags.discard("maint")
    why = _one_line(reason)
    why = "" if why.casefold() in _NO_REASON else why
    at = datetime.fromtimestamp(int(since), UTC) if re.fullmatch(r"[1-9]\d{0,9}", since) else None
    is_ours = bool(flags & _DRAIN) and why.startswith(OURS.strip())
    if is_ours:
        # The reason and time belong to our drain, even if the node has other problems.
        flags, why, at = flags - _DRAIN, "", None
    if flags & _DOWN:
        why = why or ("not responding" if flags & _SILENT else "")
        return _State(EngineNodeState.DOWN, why, at, is_ours)
    if flags & _DRAINING:
        why = why or ("in a maintenance reservation" if "maint" in flags else "")
        return _State(EngineNodeState.DRAINED, why, at, is_ours)
    return _State(EngineNodeState.UP, drained_here=is_ours)


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def read_gpus(gres: str, options: SlurmOptions) -> tuple[tuple[str, int], str]:
    """Return the GPU type and number in a `Gres` such as `gpu:a100:4(S:0-1)`, and an empty text.

    If the node cannot be used, return ("", 0) and the reason.
    """
    counts: Counter[str] = Counter()
    for entry in re.sub(r"\([^)]*\)", "", gres).split(","):
        kind, *rest = entry.strip().split(":")
        if kind == "gpu":
            *names, count = rest if rest and _is_count(rest[-1]) else [*rest, "1"]
            counts[names[0] if names else ""] += _count(count)
    counts = +counts
    if not counts:
        return ("", 0), "it has no GPUs"
    if len(counts) > 1:
        types = ", ".join(sorted(name or "untyped" for name in counts))
        return ("", 0), f"it has GPUs of several types ({types}); a node may have only one"
    ((name, gpus),) = counts.items()
    ours = [portal for portal, theirs in options.gres_types.items() if theirs == name]
    if len(ours) == 1 or (name and not ours):
        return (ours[0] if ours else name, gpus), ""
    called = name or "without a type"
    several = f"several types here ({', '.join(ours)})" if ours else "no type here"
    return ("", 0), f"its GPUs ({called}) are {several}: name one in gres_types of the options"


def _is_count(text: str) -> bool:
    return re.fullmatch(r"[0-9]+[KM]?", text) is not None


def _count(text: str) -> int:
    """Return a number from sinfo's output, where a plus sign follows if nodes differ."""
    match = re.match(r"([0-9]{1,12})([KM]?)", text)
    return int(match[1]) * _THOUSANDS.get(match[2], 1) if match else 0
