"""The offline optimum of Astraea-online's problem (3): the highest revenue of any plan.

All jobs are known, nothing has a price, and f is measured from the arrival. Quotas are ignored:
(3a) and (3b) only limit the total use to the sum of all quotas, and the servers limit it to that
already.

A choice is (workers, slots, centralised). Of the numbers of workers with equal duration, only the
smallest is needed. Fewer workers fit wherever more workers fit, with the same f. A distributed job
may have all its workers on the server of its PSs, but is then slower than a centralised one.

`evenshare_research.formulations.market_ortools` formulates it with intervals for CP-SAT. A test
formulates it slot by slot as an integer linear program.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from evenshare_research.market.model import MarketJob, MarketPool


class PlanChoice(NamedTuple):
    """A configuration of a job: its workers and duration, without its start and servers."""

    workers: int
    slots: int
    centralised: bool


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job of the optimum, with its workers and PSs by server."""

    start: int
    end: int
    workers: Mapping[int, int]
    ps: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class MarketOptimum:
    """The best plan found, and an upper bound on all plans. An optimal plan equals its bound."""

    value_micro: int
    bound_micro: int
    jobs: Mapping[int, PlannedJob]


def choices(pool: MarketPool, job: MarketJob, last: int) -> Iterator[PlanChoice]:
    """Yield the choices with which a job that starts at its arrival ends by slot `last`."""
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
    """Return f(completion - arrival) for each end slot; 0 if negative or impossible."""
    first = ceil(job.arrival) + 1
    ends = range(first, last + 1)
    positive = [max(0, job.utility_micro(end - job.arrival)) for end in ends]
    return [0] * min(first, last + 1) + positive
