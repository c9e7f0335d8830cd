"""What a simulation is given: jobs of a trace or of a seed, nodes, quotas, failures of nodes.

Ids of jobs and tenants are numbered here: jobs by (submission, line), tenants by name, both
from 1, so that equal input gives equal ids.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from billing.money import largest_remainder, to_micro
from scheduling.domain.cluster import Node
from scheduling.domain.entitlements import Entitlement
from scheduling.domain.profiles import PLAIN_MILLI, Profile
from scheduling.domain.values import HOUR_US, SECOND_US
from scheduling.simulation.trace_formats import Read, TraceLine

ONE_TYPE = "gpu"


@dataclass(frozen=True, slots=True)
class SimJob:
    """A job with what only the world knows: how long it runs, whether it fails or is cancelled.

    `duration_us` is its work on a GPU type of speed 1. `estimate_us` is what a policy may know
    of that. `failed`: its work ends in an error, after as long.
    """

    id: int
    tenant: int
    gpus: int
    submitted_us: int
    duration_us: int
    gpu_types: tuple[str, ...] = ()
    weight: int = 1
    max_price_micro: int | None = None
    deadline_us: int | None = None
    estimate_us: int | None = None
    profile: int = 0
    cancel_us: int | None = None
    failed: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class NodeChange:
    """From `at_us` on a node offers `gpus` GPUs (0: it is lost)."""

    at_us: int
    node: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes, quotas before they are scaled to live capacity, prices and speeds.

    `prices`: GPU type -> (base in micro-credits per GPU-hour, theta in thousandths).
    `speeds`: GPU type -> thousandths of the speed that durations are told for, for jobs without a
    profile; `profiles` by their ids.
    """

    nodes: tuple[Node, ...]
    quotas: tuple[Entitlement, ...]
    prices: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    speeds: Mapping[str, int] = field(default_factory=dict)
    changes: tuple[NodeChange, ...] = ()
    profiles: Mapping[int, Profile] = field(default_factory=dict)

    @property
    def capacity(self) -> int:
        """GPUs of all nodes while none is lost."""
        return sum(node.gpus for node in self.nodes)

    @property
    def has_speeds(self) -> bool:
        """Whether GPU types differ in speed for any job."""
        return bool(self.speeds or self.profiles)

    def speed_milli(self, profile: int, gpu_type: str) -> int:
        """Thousandths of the speed that a job's duration is told for, on a GPU type."""
        if profile:
            return self.profiles[profile].speed_milli(gpu_type)
        return self.speeds.get(gpu_type, PLAIN_MILLI)


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in order of their ids, and tenants' names by id."""

    jobs: tuple[SimJob, ...]
    tenants: Mapping[int, str]


def workload_read(lines: Iterable[Read]) -> Workload:
    """Return the jobs of a trace's lines; estimates are true unless the trace gives them."""
    found = [line for line in lines if isinstance(line, TraceLine)]
    found.sort(key=lambda line: (line.submit_us, line.line))
    names = sorted({line.tenant for line in found})
    ids = {name: index for index, name in enumerate(names, start=1)}
    jobs = tuple(_job(index, line, ids[line.tenant]) for index, line in enumerate(found, start=1))
    return Workload(jobs, {index: name for name, index in ids.items()})


def _job(index: int, line: TraceLine, tenant: int) -> SimJob:
    extra = line.extra
    types, weight, price = extra.get("gpu_types"), extra.get("weight"), extra.get("max_price")
    estimate = extra.get("estimate_s")
    return SimJob(
        id=index,
        tenant=tenant,
        gpus=line.gpus,
        submitted_us=line.submit_us,
        duration_us=line.duration_us,
        gpu_types=tuple(sorted(types)) if isinstance(types, list) else (),
        weight=weight if isinstance(weight, int) else 1,
        max_price_micro=to_micro(Decimal(price)) if isinstance(price, str) else None,
        estimate_us=estimate * SECOND_US if isinstance(estimate, int) else line.duration_us,
        failed=bool(extra.get("exit_code")),
        name=line.name,
    )


def nodes_make(counts: Mapping[str, int], gpus_per_node: int) -> tuple[Node, ...]:
    """Return equal nodes, numbered from 1 through the types in their given order."""
    types = [gpu_type for gpu_type, count in counts.items() for _ in range(count)]
    return tuple(Node(index, name, gpus_per_node) for index, name in enumerate(types, start=1))


def quotas_by_demand(jobs: Sequence[SimJob], nodes: Sequence[Node]) -> tuple[Entitlement, ...]:
    """Give each tenant GPUs of every type in proportion to the sum of its jobs' gangs.

    Source: LTGF 6.1.2, the weights of the Philly workload.
    """
    asked: dict[int, int] = {}
    for job in jobs:
        asked[job.tenant] = asked.get(job.tenant, 0) + job.gpus
    tenants = sorted(asked)
    capacity: dict[str, int] = {}
    for node in nodes:
        capacity[node.gpu_type] = capacity.get(node.gpu_type, 0) + node.gpus
    rows = []
    for gpu_type, gpus in sorted(capacity.items()):
        parts = largest_remainder(gpus, [asked[tenant] for tenant in tenants])
        rows += [
            Entitlement(tenant, gpu_type, part) for tenant, part in zip(tenants, parts, strict=True)
        ]
    return tuple(sorted(rows, key=lambda row: (row.tenant, row.gpu_type)))


def partitions_read(text: Iterable[str]) -> dict[str, int]:
    """Read a CSV of tenant and nodes with one header line.

    Raises:
        ValueError: a line is not (name, whole number), or a tenant is there twice.
    """
    rows = [row for row in csv.reader(text) if row][1:]
    found: dict[str, int] = {}
    for row in rows:
        if len(row) < 2 or not row[1].strip().isdigit():
            raise ValueError(f"needs a tenant and a number of nodes: {','.join(row)!r}")
        if row[0].strip() in found:
            raise ValueError(f"tenant {row[0].strip()!r} is there twice")
        found[row[0].strip()] = int(row[1])
    return found


def churn_read(text: Iterable[str], nodes: Sequence[Node], seed: int) -> tuple[NodeChange, ...]:
    """Read (time, active, total) per minute: that share of the nodes is up, from 0 on.

    The count of nodes that are up is rounded down; which of them go is drawn from the seed, in
    one order for the whole run, so that a node which is lost first returns last.
    """
    order = list(nodes)
    rng = random.Random(seed)  # noqa: S311 - a history, not a secret
    rng.shuffle(order)
    changes: list[NodeChange] = []
    up = len(order)
    for minute, row in enumerate(csv.DictReader(text)):
        now_up = len(order) * int(row["active"]) // max(1, int(row["total"]))
        at_us = minute * 60 * SECOND_US
        changes += [NodeChange(at_us, node.id, 0) for node in order[now_up:up]]
        changes += [NodeChange(at_us, node.id, node.gpus) for node in order[up:now_up]]
        up = now_up
    return tuple(changes)


def noisy_estimates(jobs: Sequence[SimJob], seed: int, error: float) -> tuple[SimJob, ...]:
    """Return jobs whose estimate is wrong by up to the share `error`, evenly drawn."""
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    return tuple(
        replace(job, estimate_us=max(1, int(job.duration_us * (1 + rng.uniform(-error, error)))))
        for job in jobs
    )


def synthetic(
    *, seed: int, jobs: int, tenants: int, hours: int, failed: float = 0.0, cancelled: float = 0.0
) -> Workload:
    """Draw a workload: even arrivals, gangs as in the Philly trace, log-normal durations."""
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    arrivals = sorted(rng.randrange(hours * 3600) for _ in range(jobs))
    rows = []
    for index, second in enumerate(arrivals, start=1):
        duration_us = max(1, int(rng.lognormvariate(7.0, 1.6))) * SECOND_US
        taken_back = rng.random() < cancelled
        rows.append(
            SimJob(
                id=index,
                tenant=rng.randint(1, tenants),
                gpus=rng.choices((1, 2, 4, 8, 16), (70, 10, 10, 9, 1))[0],
                submitted_us=second * SECOND_US,
                duration_us=duration_us,
                estimate_us=duration_us,
                cancel_us=second * SECOND_US + rng.randrange(HOUR_US) if taken_back else None,
                failed=rng.random() < failed,
                name=f"job-{index}",
            )
        )
    return Workload(tuple(rows), {index: f"tenant-{index}" for index in range(1, tenants + 1)})
