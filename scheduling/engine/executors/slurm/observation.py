"""Observes a partition through squeue and sinfo only, without changing it.

Each job is polled until it is over; its known state is kept (`ObservedRow`) and merged with the
next poll. Rows are identified by id and submission time, since Slurm reuses ids.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from evenshare_core.domain.cluster import Node
from evenshare_core.simulation.pool_files import NamedNode
from evenshare_core.simulation.shadow import ObservedJob
from evenshare_core.simulation.workloads import ONE_TYPE
from evenshare_core.units import MINUTE_US, SECOND_US
from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.slurm.cluster_text import (
    NODE_FORMAT,
    expand_nodes,
    parse_gpus,
    parse_nodes,
)
from scheduling.engine.executors.slurm.commands import (
    UNLIMITED,
    Slurm,
    is_over,
    parse_instant,
    parse_minutes,
)
from scheduling.selectors import stored_texts as texts

# The maximum number of jobs per poll. A partition with more jobs cannot be observed.
MOST_JOBS = 200_000
TENANT_KEYS = ("account", "user")
# Columns of squeue with their widths. squeue pads rows to these widths, so they are small. A list
# of nodes that fills its column may be cut, and is requested again.
_COLUMNS = {
    "jobarrayid": 40, "state": 20, "account": 64, "username": 64, "numnodes": 12, "numtasks": 12,
    "tres-alloc": 200, "tres-per-job": 80, "tres-per-node": 80, "tres-per-task": 80,
    "submittime": 20, "eligibletime": 20, "starttime": 20, "endtime": 20, "timelimit": 20,
    "nodelist": 400,
}  # fmt: skip # a table
_QUEUED = frozenset(("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"))


@dataclass(frozen=True)
class ObservedRow:
    """A job as last observed. Times are seconds since 1970; None if unknown or not reached.

    `gpus` is 0 if the job requests none. `gpu_type` is Slurm's name of the requested type; empty
    for any type. `is_lost`: the job vanished from the list before its end was observed.
    """

    job: str
    tenant: str
    state: str
    gpus: int
    gpu_type: str
    submitted: int
    ready: int | None
    started: int | None
    ended: int | None
    limit_minutes: int
    nodes: tuple[str, ...]
    last_seen: int
    is_lost: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """The key of the job: its id and submission."""
        return (self.job, self.submitted)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or is no longer listed."""
        return self.is_lost or is_over(self.state)


def look(slurm: Slurm, at: int, *, tenant: str = "account") -> dict[tuple[str, int], ObservedRow]:
    """Return the jobs that Slurm lists now, by (id, submission).

    It calls squeue once, and a second time if a list of nodes is longer than its column. `tenant`
    selects the tenant's name: `account`, or `user`. A job without an account gets its user.

    Raises:
        ExecutorError: Slurm does not answer, lists more than MOST_JOBS, or no longer listed a job
            with a long list of nodes in the second call.
    """
    columns = ",".join(f"{name}:{width}|" for name, width in _COLUMNS.items())
    options = ["--noheader", "--states=all", "--array", "--partition", slurm.options.partition]
    rows = _named_rows(slurm.ask("squeue", *options, "--Format", columns))
    cut = [row for row in rows if len(row["nodelist"]) >= _COLUMNS["nodelist"]]
    if cut:
        # Only the older option prints a field at full length.
        table = slurm.ask("squeue", *options, "--format=%i|%N")
        whole = dict(line.strip().split("|", 1) for line in table.splitlines() if "|" in line)
        for row in cut:
            row["nodelist"] = whole.get(row["jobarrayid"], "")
            if not row["nodelist"]:
                raise ExecutorError(texts.NODES_NOT_LISTED.format(job=row["jobarrayid"]))
    observed = (_row(cells, at, tenant) for cells in rows)
    return {row.key: row for row in observed if row is not None}


def _named_rows(table: str) -> list[dict[str, str]]:
    lines = table.splitlines()
    if len(lines) > MOST_JOBS:
        text = texts.MANY_LISTED.format(count=f"{len(lines):,}", most=f"{MOST_JOBS:,}")
        raise ExecutorError(text)
    rows = ([cell.strip() for cell in line.split("|")] for line in lines)
    # A row ends with a separator, so there is an empty cell after it.
    return [
        dict(zip(_COLUMNS, cells, strict=False))
        for cells in rows
        if len(cells) == len(_COLUMNS) + 1
    ]


def _row(named: Mapping[str, str], at: int, tenant: str) -> ObservedRow | None:
    submitted = parse_instant(named["submittime"])
    if submitted is None:
        return None
    state, nodes = named["state"], expand_nodes(_text(named["nodelist"]))
    # For a queued job this is the expected start; for a requeued job, the time of the requeue.
    started = parse_instant(named["starttime"]) if nodes and state not in _QUEUED else None
    gpus, gpu_type = _gpus(named)
    account, user = _text(named["account"]), _text(named["username"])
    ready = parse_instant(named["eligibletime"])
    return ObservedRow(
        job=named["jobarrayid"],
        tenant=(account if tenant == "account" else "") or user,
        state=state,
        gpus=gpus,
        gpu_type=gpu_type,
        submitted=submitted,
        ready=submitted if ready is None and started is not None else ready,
        started=started,
        ended=parse_instant(named["endtime"]) if is_over(state) else None,
        limit_minutes=parse_minutes(named["timelimit"]),
        nodes=nodes,
        last_seen=at,
    )


def _gpus(named: Mapping[str, str]) -> tuple[int, str]:
    """Return a job's total GPUs, and the type that it requested."""
    tasks, nodes = _count(named["numtasks"]), _count(named["numnodes"])
    asked = (("tres-per-job", 1), ("tres-per-node", nodes), ("tres-per-task", tasks))
    counts: list[tuple[str, int]] = []
    for column, times in asked:
        counts = [(name, count * times) for name, count in parse_gpus(named[column])]
        if counts:
            break
    types = {name for name, _ in counts if name}
    # If Slurm counts GPUs (AccountingStorageTRES=gres/gpu), its count is exact.
    allocated = parse_gpus(named["tres-alloc"])
    of_all = [count for name, count in allocated if not name]
    total = of_all[0] if of_all else sum(count for _, count in counts or allocated)
    types = types or {name for name, _ in allocated if name}
    return total, types.pop() if len(types) == 1 else ""


def join(
    known: Mapping[tuple[str, int], ObservedRow],
    seen: Mapping[tuple[str, int], ObservedRow],
) -> dict[tuple[str, int], ObservedRow]:
    """Merge a poll into the known rows.

    If a queued or running job is no longer listed, its end is the time at which it was last
    observed. Slurm forgets ended jobs after MinJobAge.
    """
    joined = dict(known)
    for key, row in known.items():
        if not row.is_over and key not in seen:
            joined[key] = replace(row, ended=row.last_seen, is_lost=True)
    joined.update(seen)
    return joined


def observed_jobs(
    rows: Iterable[ObservedRow], nodes: Iterable[NamedNode], names: Mapping[str, str]
) -> list[ObservedJob]:
    """Return the jobs for a comparison: those that have started or could start.

    `names` maps Slurm's names of GPU types to ours. GPUs are spread evenly over a job's nodes;
    Slurm may have distributed them differently.
    """
    sizes = {one.name: one.node.gpus for one in nodes}
    useful = [row for row in rows if row.ready is not None and row.gpus]
    times = Counter(row.job for row in useful)
    return [
        _observed(
            row, row.job if times[row.job] == 1 else f"{row.job}@{row.submitted}", sizes, names
        )
        for row in useful
    ]


def _observed(
    row: ObservedRow, name: str, sizes: Mapping[str, int], names: Mapping[str, str]
) -> ObservedJob:
    started, ended = row.started, row.ended
    ready = row.submitted if row.ready is None else row.ready
    first = ready if started is None else min(ready, started)
    return ObservedJob(
        name,
        row.tenant,
        row.gpus,
        first * SECOND_US,
        (names.get(row.gpu_type, row.gpu_type),) if row.gpu_type else (),
        None if started is None else started * SECOND_US,
        None if ended is None else max(ended, started or first) * SECOND_US,
        _shares(row, sizes) if started is not None else (),
        None if row.limit_minutes == UNLIMITED else row.limit_minutes * MINUTE_US,
    )


def _shares(row: ObservedRow, sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    each, more = divmod(row.gpus, len(row.nodes))
    shares = [(name, each + (index < more)) for index, name in enumerate(row.nodes)]
    known = all(gpus <= sizes.get(name, gpus) for name, gpus in shares)
    return tuple((name, gpus) for name, gpus in shares if gpus) if known else ()


def observed_nodes(
    slurm: Slurm, names: Mapping[str, str], used: frozenset[str]
) -> tuple[NamedNode, ...]:
    """Return the partition's nodes; a node that is down has no GPUs, unless `used` contains it.

    If a node has GPUs of several types, only those of the first type are returned.
    """
    options = ("--noheader", "--Node", "--partition", slurm.options.partition)
    rows = parse_nodes(slurm.ask("sinfo", *options, "--format", NODE_FORMAT))
    nodes = []
    for number, row in enumerate(sorted(rows, key=lambda row: row.name), start=1):
        name, gpus = row.gpus[0] if row.gpus else ("", 0)
        gpus = gpus if row.is_up or row.name in used else 0
        nodes.append(NamedNode(row.name, Node(number, names.get(name, name) or ONE_TYPE, gpus)))
    return tuple(nodes)


def _text(cell: str) -> str:
    return "" if cell in ("(null)", "N/A", "None") else cell


def _count(cell: str) -> int:
    return int(cell) if cell.isdecimal() else 1
