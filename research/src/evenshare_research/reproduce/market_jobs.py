"""The workload of Astraea-online's section 5.1: servers and jobs by seed, Philly's arrivals.

Bandwidths are drawn once per pool, all other values per job, uniformly within the paper's bounds. A
slot is an hour. Two more lines of 5.1:

- "We extract the correspondence between virtual clusters and machines to count each user's fair
  share". So servers are dealt in proportion to the nodes of Philly's virtual clusters. A cluster
  without known nodes gets one server.
- "The number of GPUs requested by jobs is regarded as their demand for workers". So each job keeps
  the GPUs that its job of the trace requests (`requested`). The paper's own algorithm chooses the
  number of workers itself, up to the number of chunks (3e).
"""

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from evenshare_core.money.fixed_point import largest_remainder
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.trace_reads import TraceLine
from evenshare_core.simulation.workloads import read_partitions
from evenshare_core.units import HOUR_US
from evenshare_research.market.model import (
    ConvexUtility,
    LinearUtility,
    MarketJob,
    MarketPool,
    MarketServer,
    Owner,
    Utility,
)
from evenshare_research.reproduce.runs import DATA

TRACE, NODES = DATA / "philly.csv.gz", DATA / "philly_vc_nodes.csv"
TENANTS = 14
HOURS = 48  # hours of the trace that a workload takes
# Philly has 321 machines of 2 GPUs and 231 of 8 (Jeon et al., ATC 2019). Each machine has a CPU, so
# it can run a PS.
SMALL, LARGE, SMALL_PART = 2, 8, 58
MEGABIT_PER_MEGABYTE, HOUR_S = 8, 3600
MS_PER_HOUR = 1000 * HOUR_S


class MarketWorkload(NamedTuple):
    """A pool, the owner of each server, and jobs with the GPUs that each requests in the trace."""

    pool: MarketPool
    owners: tuple[int, ...]
    jobs: tuple[MarketJob, ...]
    requested: tuple[int, ...]


@cache
def _arrivals() -> tuple[list[tuple[float, str, int]], dict[str, int]]:
    """Return (hour, virtual cluster, GPUs) for jobs of Philly's 14 clusters with most jobs.

    Also return these clusters' nodes.
    """
    with TRACE.open("rb") as file:
        lines = [line for line in trace_lines(file)[1] if isinstance(line, TraceLine)]
    counts = dict(Counter(line.tenant for line in lines).most_common(TENANTS))
    rows = [
        (line.submit_us / HOUR_US, line.tenant, line.gpus)
        for line in lines
        if line.tenant in counts
    ]
    with NODES.open(encoding="utf-8") as file:
        nodes = read_partitions(file)
    return sorted(rows), {name: nodes.get(name, 0) for name in counts}


def workload(kind: str, jobs: int, servers: int, seed: int) -> MarketWorkload:
    """Return the workload of a seed. `kind`: linear or convex utilities."""
    draw = random.Random(seed)  # noqa: S311 - a seeded workload, not a secret
    rows, nodes = _arrivals()
    first = draw.uniform(rows[0][0], rows[-1][0] - HOURS)
    window = [row for row in rows if first <= row[0] < first + HOURS]
    while len(window) < jobs:  # these hours have too few jobs, so others are drawn
        first = draw.uniform(rows[0][0], rows[-1][0] - HOURS)
        window = [row for row in rows if first <= row[0] < first + HOURS]
    ids = {name: number for number, name in enumerate(sorted(nodes), start=1)}
    arrivals = [
        (hour - first, ids[name], gpus) for hour, name, gpus in sorted(draw.sample(window, jobs))
    ]
    sizes, owners = _dealt(servers, [nodes[name] for name in sorted(nodes)])
    return _made(draw, kind, arrivals, sizes, owners)


def small_workload(kind: str, jobs: int, servers: int, seed: int) -> MarketWorkload:
    """Return a workload that an exact solver can plan, with two users and few jobs and servers.

    Servers have 8 GPUs, and all jobs arrive within ten hours. Jobs have a tenth of the usual epochs
    and a quarter of the chunks, so that a day or two of slots is enough.
    """
    draw = random.Random(seed)  # noqa: S311 - a seeded workload, not a secret
    arrivals = sorted((draw.uniform(0, 10), draw.randint(1, 2), 1) for _ in range(jobs))
    owners = tuple(1 + server % 2 for server in range(servers))
    return _made(draw, kind, arrivals, (LARGE,) * servers, owners, part=10)


def _made(
    draw: random.Random,
    kind: str,
    arrivals: Sequence[tuple[float, int, int]],
    sizes: Sequence[int],
    owners: tuple[int, ...],
    *,
    part: int = 1,
) -> MarketWorkload:
    worker_mbps = draw.uniform(100, 5 * 1024)
    ps_mbps = draw.uniform(5, 20) * 1024
    made = tuple(
        MarketJob(
            number,
            tenant,
            arrival,
            epochs=max(1, draw.randint(50, 100) // part),
            chunks=max(1, draw.randint(20, 50) // (1 if part == 1 else 4)),
            batches=draw.randint(10, 50),
            batch_time=draw.uniform(0.001, 0.05),
            update_time=draw.uniform(10, 100) / MS_PER_HOUR,
            transfer_time=draw.uniform(30, 575) * MEGABIT_PER_MEGABYTE / worker_mbps / HOUR_S,
            utility=_utility(draw, kind),
        )
        for number, (arrival, tenant, _) in enumerate(arrivals)
    )
    servers = [MarketServer(size, 1) for size in sizes]
    quotas = [
        Owner(
            tenant,
            sum(size for size, owner in zip(sizes, owners, strict=True) if owner == tenant),
            owners.count(tenant),
        )
        for tenant in sorted(set(owners))
    ]
    pool = MarketPool(servers, quotas, round(worker_mbps), round(ps_mbps))
    return MarketWorkload(pool, owners, made, tuple(gpus for *_, gpus in arrivals))


def _utility(draw: random.Random, kind: str) -> Utility:
    if kind == "linear":
        return LinearUtility(draw.uniform(-2.0, -0.1), draw.uniform(100, 1000))
    return ConvexUtility(draw.uniform(100, 1000), draw.uniform(1.0, 2.0))


def _dealt(servers: int, weights: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sizes and owners of servers, in proportion to weights.

    If possible, each tenant gets a large server.
    """
    small = round(servers * SMALL_PART / 100)
    sizes: list[int] = []
    owners: list[int] = []
    for size, count in ((LARGE, servers - small), (SMALL, small)):
        least = min(1, count // len(weights)) if size == LARGE else 0
        parts = largest_remainder(count - least * len(weights), weights)
        for tenant, part in enumerate(parts, start=1):
            sizes += [size] * (part + least)
            owners += [tenant] * (part + least)
    return tuple(sizes), tuple(owners)
