"""Provide a pool with past jobs and a queue, for tests of start forecasts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from scheduling.engine.clock import wall_now
from scheduling.models import Job, PoolClock, StartForecast
from scheduling.services import execute_forecast as executing
from scheduling.services import forecasts as service
from scheduling.services import price_forecasts as prices
from tests.factories import Cluster, cluster
from tests.stages import Stages

MINUTES = 60
Known = TypeVar("Known")


def busy_lab() -> Cluster:
    """Return 8 GPUs, 12 jobs that ended after ten minutes each, and a queue that does not fit."""
    made = cluster({"north": 4, "south": 4}, round_s=30)
    for _ in range(6):
        made.submit("north", 1, 10 * MINUTES)
        made.submit("south", 1, 10 * MINUTES)
    made.round()
    for _ in range(5):
        made.round(after_s=6 * MINUTES)
    for _ in range(8):
        made.submit("north", 2, 10 * MINUTES)
        made.submit("south", 1, 10 * MINUTES)
    made.rounds(2, every_s=30)
    set_clock(made)
    return made


@contextmanager
def lab_of(stages: Stages, make: Callable[[], Cluster] = busy_lab) -> Iterator[Cluster]:
    """Yield a copy of a pool, with a clock that shows the pool's own time."""
    with stages.copy(make) as lab:
        set_clock(lab)
        yield lab


def foreseen_lab() -> Cluster:
    """Return the pool of `busy_lab` with its start forecast, which has only a few prices."""
    made = busy_lab()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prices, "POINTS", 1)
        forecast()
    return made


def set_clock(lab: Cluster) -> None:
    PoolClock.objects.filter(pool=lab.pool).update(anchor_pool=lab.at, anchor_wall=wall_now())


def every_beat() -> Callable[[], float]:
    """Return a timer with which every 25th round sends a heartbeat."""
    return itertools.count(0, 0.04).__next__


def forecast(**options: Any) -> StartForecast:
    """Claim a forecast and make it in this process, as if it were the first."""
    StartForecast.objects.update(rest_until=None)
    claimed = service.claim_forecast()
    assert claimed is not None
    given = {"timer": every_beat(), "cpu": lambda: 1.5, **options}
    executing.execute_forecast(*claimed, **given)
    return StartForecast.objects.get(pk=claimed[0])


def known(value: Known | None) -> Known:
    assert value is not None
    return value


def queued(lab: Cluster) -> set[int]:
    jobs = Job.objects.filter(pool=lab.pool, state=Job.State.PENDING)
    return set(jobs.values_list("pk", flat=True))
