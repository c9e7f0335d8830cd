"""Promises: the GPUs kept for a waiting job, and the time by which it starts.

A promise has a part on each node of its place. A part counts every GPU once:

- `held`: free GPUs;
- `pins`: GPUs of a lease, by the lease's job. The lease ends by the promise's time;
- `after`: GPUs of an older promise, by its job. This job has its turn first.

The sum of the three does not change until the promise ends, so the GPUs are free when it is due.
Promises are part of the policy's memory, as plain JSON rows.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.ids import Each, IdKind, Row
from evenshare_core.domain.leases import Lease

_BY_JOB = Each(Row((IdKind.JOB,)))
# [job, GPU type, GPUs, due_us, made_us, [[node, held, [[job, GPUs]], [[job, GPUs]]]]]
PROMISE_IDS = Row(
    (IdKind.JOB, None, None, None, None, Each(Row((IdKind.NODE, None, _BY_JOB, _BY_JOB))))
)


@dataclass(slots=True)
class PromisedPart:
    """The GPUs of a promise on one node."""

    held: int = 0
    pins: dict[int, int] = field(default_factory=dict)
    after: dict[int, int] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        return self.held + sum(self.pins.values()) + sum(self.after.values())


@dataclass(slots=True)
class StartPromise:
    """A job's promised GPUs. It starts at the first round from `due_us` on at the latest."""

    job: int
    gpu_type: str
    gpus: int
    due_us: int
    made_us: int
    parts: dict[int, PromisedPart]  # by node

    @property
    def order(self) -> tuple[int, int, int]:
        """Return (due, made, job), the order in which promises have their turn."""
        return self.due_us, self.made_us, self.job

    @property
    def placement(self) -> Placement:
        return tuple((node, part.gpus) for node, part in sorted(self.parts.items()))


def read_promises(memory: Mapping[str, Any]) -> list[StartPromise]:
    return [
        StartPromise(
            job, gpu_type, gpus, due_us, made_us,
            {node: PromisedPart(held, dict(pins), dict(after)) for node, held, pins, after in rows},
        )
        for job, gpu_type, gpus, due_us, made_us, rows in memory.get("promises", ())
    ]  # fmt: skip # rows of what belongs together


def promise_rows(promises: Iterable[StartPromise]) -> list[list[Any]]:
    """Return promises as plain JSON, in the order of their turns."""
    return [
        [
            row.job, row.gpu_type, row.gpus, row.due_us, row.made_us,
            [
                [node, part.held, _pairs(part.pins), _pairs(part.after)]
                for node, part in sorted(row.parts.items())
            ],
        ]
        for row in sorted(promises, key=lambda row: row.order)
    ]  # fmt: skip # rows of what belongs together


def _pairs(gpus_by_job: Mapping[int, int]) -> list[list[int]]:
    return [list(pair) for pair in sorted(gpus_by_job.items())]


class PoolState(NamedTuple):
    """The pool before a round.

    `waits`: whether a promise's job still waits for these GPUs. `leases`: by job. `free`: for each
    node of a type that may be used, the GPUs that no lease holds.
    """

    waits: Callable[[StartPromise], bool]
    leases: Mapping[int, Lease]
    free: Callable[[str], Mapping[int, int]]


def settle(promises: Iterable[StartPromise], pool: PoolState) -> dict[int, StartPromise]:
    """Return the promises that still hold before a round, by job.

    A promise ends if its job does not wait any more, or if a node of its place is lost. If the job
    started on a node, its part there becomes a pin for the promises behind it. If not, they inherit
    the part, the earliest first. Each GPU is inherited once.
    """
    rows = sorted(promises, key=lambda row: row.order)
    kept: dict[int, StartPromise] = {}
    gone: list[StartPromise] = []
    for row in rows:
        nodes = pool.free(row.gpu_type)
        if pool.waits(row) and all(node in nodes for node in row.parts):
            kept[row.job] = row
        else:
            gone.append(row)
    _release_pins(rows, pool.leases)
    for row in gone:  # the earliest first, so that what a row inherits is known
        bequeath(row, rows, pool.leases)
    while (broken := _last_broken(kept, pool)) is not None:
        del kept[broken.job]
        bequeath(broken, kept.values(), {})
    return kept


def gpus_on(lease: Lease | None, node: int) -> int:
    """Return the GPUs of a lease on a node, or 0 if there is no lease."""
    return 0 if lease is None else sum(gpus for name, gpus in lease.placement if name == node)


def kept_gpus(rows: Iterable[StartPromise], node: int, due: Container[int]) -> int:
    """Return the GPUs that promises keep on a node: free ones, and those of jobs in `due`."""
    parts = [row.parts[node] for row in rows if node in row.parts]
    pinned = sum(gpus for part in parts for job, gpus in part.pins.items() if job in due)
    return pinned + sum(part.held for part in parts)


def owed_as_much(
    claim: tuple[int, str], leases: Iterable[Lease], key: Callable[[tuple[int, str]], float]
) -> set[int]:
    """Return the jobs with leases whose tenants have at most the `key` of a claim."""
    here = [lease for lease in leases if lease.gpu_type == claim[1]]
    keys = {tenant: key((tenant, claim[1])) for tenant in {lease.tenant for lease in here}}
    most = key(claim)
    return {lease.job for lease in here if keys[lease.tenant] <= most}


def pinned_gpus(rows: Iterable[StartPromise]) -> dict[tuple[int, int], int]:
    """Return the GPUs that promises pin, by (node, job of the lease)."""
    pinned: dict[tuple[int, int], int] = {}
    for row in rows:
        for node, part in row.parts.items():
            for job, gpus in part.pins.items():
                pinned[node, job] = pinned.get((node, job), 0) + gpus
    return pinned


def _release_pins(rows: Iterable[StartPromise], leases: Mapping[int, Lease]) -> None:
    """Convert pins of leases that have ended into held GPUs."""
    for row in rows:
        for node, part in row.parts.items():
            for job, gpus in list(part.pins.items()):
                if gpus > gpus_on(leases.get(job), node):
                    part.held += part.pins.pop(job)


def bequeath(gone: StartPromise, rows: Iterable[StartPromise], leases: Mapping[int, Lease]) -> None:
    """Give the parts of a promise that ended to the promises behind it.

    `leases`: by job; without the job's own, the job did not start.
    """
    lease = leases.get(gone.job)
    for node, part in gone.parts.items():
        behind = [row for row in rows if node in row.parts and gone.job in row.parts[node].after]
        left = PromisedPart(part.held, dict(part.pins), dict(part.after))
        is_here = lease is not None and gpus_on(lease, node) >= part.gpus
        for row in behind:
            mine = row.parts[node]
            gpus = mine.after.pop(gone.job)
            if is_here:
                mine.pins[gone.job] = mine.pins.get(gone.job, 0) + gpus
            else:
                _inherit(mine, left, gpus)


def _inherit(mine: PromisedPart, left: PromisedPart, gpus: int) -> None:
    """Move `gpus` of what is left of a part: held GPUs first, then pins, then older promises."""
    taken = min(gpus, left.held)
    mine.held += taken
    left.held -= taken
    gpus -= taken
    for source, target in ((left.pins, mine.pins), (left.after, mine.after)):
        for job in sorted(source):
            taken = min(gpus, source[job])
            if taken:
                target[job] = target.get(job, 0) + taken
                source[job] -= taken
                gpus -= taken


def _last_broken(kept: Mapping[int, StartPromise], pool: PoolState) -> StartPromise | None:
    """Return the last promise that lost GPUs, or None.

    A node may have fewer free GPUs than its promises hold, because it lost GPUs, or because the
    last decision was only partly applied.
    """
    held: dict[int, int] = {}
    for row in kept.values():
        for node, part in row.parts.items():
            held[node] = held.get(node, 0) + part.held
    short = {
        node
        for row in kept.values()
        for node in row.parts
        if held[node] > pool.free(row.gpu_type).get(node, 0)
    }
    broken = [
        row
        for row in kept.values()
        if sum(part.gpus for part in row.parts.values()) != row.gpus
        or any(part.held and node in short for node, part in row.parts.items())
        or any(part.after.keys() - kept.keys() for part in row.parts.values())
    ]
    return max(broken, key=lambda row: row.order, default=None)
