"""The policy's memory between rounds, in plain JSON, and the passes of jobs and nodes.

- `jobs`: [job, base_us, served_gpu_us, rate, node] of every active job: its pass and its home. A
  home on several nodes is [..., node, gpus, node, gpus, ...]; a job without home has no node.
- `nodes`: [node, base_us, served_gpu_us, rate]: the aggregate pass of a node's small jobs, for
  types that have jobs over several nodes.
- `blocked`: [job, since_us]: jobs with the least pass that unexpired leases keep from running.
- `trades`: current trades, in the order in which they were made.
- `quantum_us`: the start of the last quantum in which jobs moved and quota was traded.
- `rated`: by GPU type, the inputs of its rates, and the resulting totals of tenants. The inputs are
  a hash without ids, and the tenants that have tickets, in order.
- `stale`: nodes whose jobs have changed since their rates were computed.

A pass is base + served / rate, in us of a GPU share. It is exact: base and served are integers, and
the rate is an integer in a common unit. When a tenant's tickets change, the rate changes, and the
pass is rounded to a microsecond. Passes are compared as correctly rounded quotients, so equal
passes compare equal.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import Trade
from evenshare_core.domain.ids import Each, Fields, IdKind, Row, shape_of
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.gandiva_fair.rates import UNIT
from evenshare_core.policies.gandiva_fair.tickets import GpuTypes

NEVER = float("inf")
MEMORY_IDS = Fields(
    {
        "blocked": Each(Row((IdKind.JOB,))),
        "jobs": Each(Row((IdKind.JOB,))),
        "nodes": None,
        "quantum_us": None,
        "rated": Each(Row((None, Each(Row((IdKind.TENANT,))), Each(IdKind.TENANT)))),
        "stale": None,
        "trades": Each(shape_of(Trade)),
    }
)


class Pass(msgspec.Struct, gc=False):
    """The progress of a job or node that takes turns; the one with the least pass is next.

    `rate`: its share, `UNIT` per GPU. A job with rate 0 has no tickets and comes last.
    """

    base_us: int = 0
    served_gpu_us: int = 0
    rate: int = 0

    @property
    def value(self) -> float:
        """Return the pass in us, correctly rounded."""
        rate = self.rate
        if not rate:
            return NEVER
        return (self.base_us * rate + self.served_gpu_us * UNIT) / rate

    @property
    def floor_us(self) -> int:
        """Return the pass in us, rounded down."""
        return self.base_us + (self.served_gpu_us * UNIT // self.rate if self.rate else 0)

    def set_rate(self, rate: int) -> None:
        """Change the rate and keep the current pass."""
        if rate != self.rate:
            self.base_us, self.served_gpu_us, self.rate = self.floor_us, 0, rate

    def raise_to(self, least_us: int) -> None:
        """Raise the pass to a minimum, so that a job does not catch up on turns that it missed."""
        if self.floor_us < least_us:
            self.base_us, self.served_gpu_us = least_us, 0


class StrideJob(msgspec.Struct, gc=False):
    """An active job: its home, its pass, and the lease that it holds.

    `runs`: whether the lease continues; if not, it has ended. `usable`: the GPU types that the job
    can run on, slowest first. `gpu_type`: the type of its home, "" without a home. `is_new`: the
    job was not active in the last round.
    """

    job: Job
    home: Placement
    passes: Pass
    lease: Lease | None = None
    runs: bool = False
    is_new: bool = False
    usable: tuple[str, ...] = ()
    gpu_type: str = ""

    @property
    def order(self) -> tuple[int, int, int]:
        """Return the key that orders jobs of equal pass: by size, then by submission."""
        job = self.job
        return (job.gpus, job.submitted_us, job.id)

    @property
    def turn(self) -> tuple[float, int, int, int]:
        """Return the sort key of turns: the least pass first, then `order`."""
        job = self.job
        return (self.passes.value, job.gpus, job.submitted_us, job.id)


class Rated(NamedTuple):
    """The inputs of the rates of a GPU type, and the resulting totals of tenants.

    `key`: a hash of nodes and tickets. Its tickets are those of `tenants`, in order.
    """

    key: str
    totals: dict[int, int]
    tenants: tuple[int, ...]


class Memory(NamedTuple):
    """The parsed memory; `jobs`: stored rows by job."""

    jobs: dict[int, list[int]]
    nodes: dict[int, Pass]
    blocked: dict[int, int]
    trades: list[Trade]
    quantum_us: int
    rated: dict[str, Rated]
    stale: list[int]


def read_memory(raw: dict[str, Any]) -> Memory:
    """Return the memory, or an empty memory if none is stored."""
    return Memory(
        {row[0]: row for row in raw.get("jobs", ())},
        {node: Pass(*rest) for node, *rest in raw.get("nodes", ())},
        dict(raw.get("blocked", ())),
        [Trade(*row) for row in raw.get("trades", ())],
        raw.get("quantum_us", -1),
        {
            name: Rated(key, dict(totals), tuple(tenants))
            for name, (key, totals, tenants) in raw.get("rated", {}).items()
        },
        list(raw.get("stale", ())),
    )


def write_memory(jobs: Iterable[StrideJob], memory: Memory, stale: list[int]) -> dict[str, Any]:
    """Return the memory for the next round. `stale` is explained in the module's docstring."""
    return {
        "blocked": [[job, since_us] for job, since_us in sorted(memory.blocked.items())],
        "jobs": [
            [one.job.id, (row := one.passes).base_us, row.served_gpu_us, row.rate, one.home[0][0]]
            if len(one.home) == 1
            else _job_row(one)
            for one in jobs
        ],
        "nodes": [
            [node, row.base_us, row.served_gpu_us, row.rate]
            for node, row in sorted(memory.nodes.items())
        ],
        "quantum_us": memory.quantum_us,
        "rated": {
            name: [row.key, [list(part) for part in sorted(row.totals.items())], list(row.tenants)]
            for name, row in memory.rated.items()
        },
        "stale": stale,
        "trades": [
            [getattr(trade, name) for name in trade.__struct_fields__] for trade in memory.trades
        ],
    }


def _job_row(one: StrideJob) -> list[int]:
    """Return the stored row of a job whose home is not a single node."""
    passes = one.passes
    row = [one.job.id, passes.base_us, passes.served_gpu_us, passes.rate]
    for node, gpus in one.home:
        row += (node, gpus)
    return row


def nodes_of(row: list[int]) -> list[int]:
    """Return the nodes of the home that a stored row gives."""
    return row[4::2]


def _home_of(row: list[int], gpus: dict[int, int]) -> Placement:
    """Return the home that the row of a job on several nodes gives, if these nodes still exist."""
    home = tuple(zip(row[4::2], row[5::2], strict=True))
    return home if _is_there(home, gpus) else ()


def _is_there(home: Placement, gpus: dict[int, int]) -> bool:
    return all(gpus.get(node, 0) >= count for node, count in home)


def read_jobs(snapshot: Snapshot, memory: Memory, types: GpuTypes) -> list[StrideJob]:
    """Return the active jobs by id, with homes that still exist.

    If a job holds a lease and has no stored row, its home is the nodes of the lease.
    """
    leases = {lease.job: lease for lease in snapshot.leases}
    gpus = {node.id: node.gpus for node in snapshot.nodes}
    at_us, usable, stored = snapshot.at_us, types.usable, memory.jobs
    places: dict[tuple[int, int], Placement] = {}  # jobs with the same home share one value
    rows = []
    for job in sorted(snapshot.jobs, key=attrgetter("id")):
        job_id = job.id
        lease, known = leases.get(job_id), stored.get(job_id)
        if known is not None:
            passes = Pass(known[1], known[2], known[3])
            if len(known) == 5:
                place = (known[4], job.gpus)
                home = places.get(place)
                if home is None:
                    home = places[place] = (place,) if gpus.get(place[0], 0) >= place[1] else ()
            else:
                home = _home_of(known, gpus)
        else:
            home, passes = (lease.placement if lease is not None else ()), Pass()
            home = home if _is_there(home, gpus) else ()
        runs = lease is not None and not lease.ends_by(at_us)
        rows.append(StrideJob(job, home, passes, lease, runs, known is None, usable(job)))
    return rows
