"""The offline optimum of Astraea-online's problem (3): the most revenue that any plan could have.

All jobs are known, nothing is priced, f counts from the arrival. Quotas fall away: (3a) and (3b)
say that all use together is at most all quotas, which servers hold anyway.

A choice is (workers, slots, centralised). Of all numbers of workers with one duration
the smallest is enough: fewer workers fit wherever more do, and give the same f. A distributed job
may have all its workers beside its PSs: it is only slower than it could be there.

`evenshare_research.formulations.market_ortools` states it by intervals, CP-SAT; a test slot by
slot, as a linear program in whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from evenshare_research.market.model import MarketJob, MarketPool


class PlanChoice(NamedTuple):
    """One way to run a job, but for when and where."""

    workers: int
    slots: int
    centralised: bool


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job of the optimum: workers by server, and PSs by server."""

    start: int
    end: int
    workers: Mapping[int, int]
    ps: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class MarketOptimum:
    """The best plan that was seen, and what no plan can exceed: equal where it is optimal."""

    value_micro: int
    bound_micro: int
    jobs: Mapping[int, PlannedJob]


def choices(pool: MarketPool, job: MarketJob, last: int) -> Iterator[PlanChoice]:
    """Yield the choices of a job that can end by slot `last` when they begin as it arrives."""
    largest = max(server.workers for server in pool.servers)
    for centralised in (True, False):
        most = min(job.chunks, largest if centralised else pool.workers)
        before = last - ceil(job.arrival) + 1
        for workers in range(1 if centralised or pool.ps else 2, most + 1):
            slots = job.duration(workers, centralised=centralised)
            if slots < before:
                before = slots
                yield PlanChoice(workers, slots, centralised)


def values_micro(job: MarketJob, last: int) -> list[int]:
    """Return f(completion - arrival) by the last slot, 0 where it is below 0 or cannot be."""
    first = ceil(job.arrival) + 1
    ends = range(first, last + 1)
    positive = [max(0, job.utility_micro(end - job.arrival)) for end in ends]
    return [0] * min(first, last + 1) + positive
