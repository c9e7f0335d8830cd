"""Forecast of the next hours' prices: a pool simulated several times under its own policy.

As in `simulation.starts`, each run draws the unknown values again. A price band is from the 2nd to
the 18th smallest of 19 runs at an instant. With the real price as a 20th draw, these are p10 and
p90. If the draws are right, four of five prices lie inside; the portal counts how many did.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from math import ceil
from random import Random
from typing import NamedTuple

from evenshare_core.simulation.present import PresentState, Start
from evenshare_core.simulation.simulator import SimulationResult, run
from evenshare_core.simulation.starts import RUNS, EnoughError, Futures, History


class NoPriceBand(StrEnum):
    """Why prices cannot be forecast. Names are part of the API."""

    TOO_LITTLE_KNOWN = "too_little_known"  # too few jobs have ended to know how long jobs take
    TOO_MUCH_WORK = "too_much_work"  # the runs were stopped before the first instant


class PriceBand(NamedTuple):
    """Quantiles of the price in force at an instant, in micro-credits per GPU-hour."""

    at_us: int
    p10_micro: int
    p50_micro: int
    p90_micro: int


@dataclass(frozen=True, slots=True)
class PriceOutlook:
    """Bands by GPU type, at the equal steps that every run reached; `reason` if empty."""

    at_us: int
    bands: dict[str, tuple[PriceBand, ...]] = field(default_factory=dict)
    reason: NoPriceBand | None = None


def estimate_prices(
    start: Start,
    history: History,
    *,
    step_us: int,
    points: int,
    rng: Random,
    stop: Callable[[int], bool] = lambda _: False,
) -> PriceOutlook:
    """Return bands of the prices at `points` instants, `step_us` apart, after a snapshot's.

    `stop` is called after every round with the run's number, from 0. If it returns True, the run
    stops, and later instants have no band.

    Raises:
        KeyError: a job of the snapshot has no work.
        InvariantViolation: the policy broke an invariant.
    """
    at_us = start.snapshot.at_us
    futures = Futures(start, history, rng)
    if not (futures.knows_all and futures.knows_arrivals):
        return PriceOutlook(at_us, reason=NoPriceBand.TOO_LITTLE_KNOWN)
    instants = [at_us + step_us * number for number in range(1, points + 1)]
    runs = [
        _prices(futures.draw(instants[-1]), instants, partial(stop, number))
        for number in range(RUNS)
    ]
    reached = min(len(prices) for prices in runs)
    if not reached:
        return PriceOutlook(at_us, reason=NoPriceBand.TOO_MUCH_WORK)
    bands = {
        row.gpu_type: tuple(
            PriceBand(instants[index], *quantiles([prices[index][place] for prices in runs]))
            for index in range(reached)
        )
        for place, row in enumerate(start.snapshot.prices)
    }
    return PriceOutlook(at_us, bands)


def quantiles(values: Sequence[int]) -> tuple[int, int, int]:
    """Return p10, p50 and p90 of the next draw: the ceil(q (n + 1))-th smallest of n values."""
    ordered, more = sorted(values), len(values) + 1
    first, middle, last = (ordered[ceil(tenths * more / 10) - 1] for tenths in (1, 5, 9))
    return first, middle, last


def _prices(
    start: Start, instants: Sequence[int], stop: Callable[[], bool]
) -> list[tuple[int, ...]]:
    """Return a run's prices at each instant, by GPU type in order; fewer if the run was stopped."""
    state = PresentState(start)
    seen: list[tuple[int, ...]] = []
    last = tuple(row.price_micro for row in state.prices)
    is_cut = False

    def look(_: int) -> None:
        nonlocal last, is_cut
        while len(seen) < len(instants) and instants[len(seen)] < state.last_us:
            seen.append(last)
        last = tuple(row.price_micro for row in state.prices)
        is_cut = stop()
        if is_cut or len(seen) == len(instants):
            raise EnoughError

    with suppress(EnoughError):
        run(state, SimulationResult(state.books, 0, state.at_us), until_us=instants[-1],
            progress=look)  # fmt: skip # rows of what belongs together
    if not is_cut:
        seen += [last] * (len(instants) - len(seen))
    return seen
