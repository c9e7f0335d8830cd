"""What the policy remembers between rounds, in plain JSON, and passes.

- `jobs`: [job, placement, base_us, served_gpu_us, rate] of every active job: its home and its pass.
- `nodes`: [node, base_us, served_gpu_us, rate]: the aggregate pass of a node's small jobs, of
  types that have jobs over several nodes.
- `blocked`: [job, since_us]: jobs of least pass that leases which have not expired keep out.
- `trades`: those that stand, in the order in which they were made.
- `quantum`: the last one in which jobs were moved and quota traded.
- `rated`: by GPU type, what the rates were made of.

A pass is base + served / rate, in us of a GPU share: exact, for base and served are integers and
the rate is one over a common unit; with the tickets of a tenant it changes, and is then rounded to
a microsecond. Passes are compared as correctly rounded quotients, so that equal ones are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from evenshare_core.domain.cluster import Node, Placement
from evenshare_core.domain.decision import Trade
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.gandiva_fair.rates import UNIT

NEVER = float("inf")


class Pass:
    """How far something that takes turns is: the least one is next.

    `rate`: its share in `UNIT` to a GPU; 0: it has no tickets, and comes last.
    """

    __slots__ = ("base_us", "rate", "served_gpu_us")

    def __init__(self, base_us: int = 0, served_gpu_us: int = 0, rate: int = 0) -> None:
        self.base_us, self.served_gpu_us, self.rate = base_us, served_gpu_us, rate

    @property
    def value(self) -> float:
        """The pass in us, correctly rounded."""
        rate = self.rate
        if not rate:
            return NEVER
        return (self.base_us * rate + self.served_gpu_us * UNIT) / rate

    @property
    def floor_us(self) -> int:
        """The pass, rounded down."""
        return self.base_us + (self.served_gpu_us * UNIT // self.rate if self.rate else 0)

    def set_rate(self, rate: int) -> None:
        """Go on from the present pass at another rate."""
        if rate != self.rate:
            self.base_us, self.served_gpu_us, self.rate = self.floor_us, 0, rate

    def raise_to(self, least_us: int) -> None:
        """Whoever could not take part has no turns to catch up with."""
        if self.floor_us < least_us:
            self.base_us, self.served_gpu_us = least_us, 0


class StrideJob:
    """An active job: its home, its pass, and the lease that it holds.

    `lease` has ended where `runs` is not set. `home` is empty before the job has one.
    """

    __slots__ = ("home", "is_new", "job", "lease", "order", "passes", "runs")

    def __init__(
        self, job: Job, home: Placement, passes: Pass, lease: Lease | None, *, runs: bool
    ) -> None:
        self.job, self.home, self.passes = job, home, passes
        self.lease, self.runs = lease, runs
        self.is_new = False
        self.order = (job.gpus, job.submitted_us, job.id)

    @property
    def turn(self) -> tuple[float, int, int, int]:
        """Who is next: the least pass, of equal ones the smallest, then whoever came first."""
        return (self.passes.value, *self.order)


class Memory(NamedTuple):
    """What was remembered, read."""

    jobs: dict[int, tuple[Placement, Pass]]
    nodes: dict[int, Pass]
    blocked: dict[int, int]
    trades: list[Trade]
    quantum: int
    rated: dict[str, str]


def read_memory(raw: dict[str, Any]) -> Memory:
    """Return the memory; empty where there is none."""
    return Memory(
        {
            job: (tuple([(node, gpus) for node, gpus in home]), Pass(*rest))
            for job, home, *rest in raw.get("jobs", ())
        },
        {node: Pass(*rest) for node, *rest in raw.get("nodes", ())},
        dict(raw.get("blocked", ())),
        [Trade(*row) for row in raw.get("trades", ())],
        raw.get("quantum", -1),
        dict(raw.get("rated", {})),
    )


def write_memory(jobs: Iterable[StrideJob], memory: Memory) -> dict[str, Any]:
    """Return the memory of the next round."""
    return {
        "blocked": [[job, since_us] for job, since_us in sorted(memory.blocked.items())],
        "jobs": [
            [
                one.job.id, [list(part) for part in one.home],
                one.passes.base_us, one.passes.served_gpu_us, one.passes.rate,
            ]
            for one in jobs
        ],
        "nodes": [
            [node, row.base_us, row.served_gpu_us, row.rate]
            for node, row in sorted(memory.nodes.items())
        ],
        "quantum": memory.quantum,
        "rated": memory.rated,
        "trades": [
            [getattr(trade, name) for name in trade.__struct_fields__] for trade in memory.trades
        ],
    }  # fmt: skip


def read_jobs(snapshot: Snapshot, memory: Memory) -> list[StrideJob]:
    """Return the active jobs by id, with homes that are still there.

    A job without memory that holds a lease is at home where it runs.
    """
    leases = {lease.job: lease for lease in snapshot.leases}
    nodes = {node.id: node for node in snapshot.nodes}
    rows = []
    for job in sorted(snapshot.jobs, key=_by_id):
        lease = leases.get(job.id)
        runs = lease is not None and not lease.ends_by(snapshot.at_us)
        known = memory.jobs.get(job.id)
        home = known[0] if known else (lease.placement if lease is not None else ())
        one = StrideJob(job, home, known[1] if known else Pass(), lease, runs=runs)
        one.is_new = known is None
        if not _is_there(one.home, nodes):
            one.home = ()
        rows.append(one)
    return rows


def _by_id(job: Job) -> int:
    return job.id


def _is_there(home: Placement, nodes: dict[int, Node]) -> bool:
    return all(node in nodes and nodes[node].gpus >= gpus for node, gpus in home)
