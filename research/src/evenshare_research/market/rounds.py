"""A_round (algorithm 2) and Astraea (algorithm 1): job batches, own quota before shared resources.

`interval = geometric` is the paper's mode. Jobs that arrived in [2^(l-1), 2^l), and jobs that are
left over, are scheduled in (lambda 2^l, lambda 2^(l+1)] by lambda rounds. Each schedule is within
its round, and f is measured from the start of the round. Only this mode has the bounds of section
4.5, but its waits are too long in practice.

`interval = fixed` decides on new jobs and left-over jobs at every multiple of `batch`. A schedule
ends within `horizon`. A batch is a single round, and f is measured from the arrival. Earlier
schedules continue (the paper's rule: nothing is preempted). So a borrowed schedule may still hold
an owner's capacity in the owner's next batch.

| paper | here |
|---|---|
| tau_l | 2^l (printed: 2^(l-1), which contradicts tau_1 = 2) |
| lambda | `MarketRules.rounds`, by default of Lemma 1 |
| window of round i | (lambda + i - 1) tau_l, (lambda + i) tau_l |
| J_l minus the scheduled | `MarketRound.left` |
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, floor
from typing import Literal

from evenshare_research.market.book import Ints, MarketBook
from evenshare_research.market.max_revenue import schedule_jobs
from evenshare_research.market.model import MarketJob, MarketPool, MarketSchedule, by_arrival
from evenshare_research.market.prices import lemma_rounds

WEEK_SLOTS = 7 * 24


@dataclass(frozen=True, slots=True)
class MarketRules:
    """The rules of batches. Times are in slots.

    In the geometric mode, `rounds` is lambda, by default that of Lemma 1. `intervals` is its last
    l, by default two more than the last arrival needs. `batch` and `horizon` belong to the fixed
    mode.
    """

    interval: Literal["fixed", "geometric"] = "fixed"
    rounds: int | None = None
    intervals: int | None = None
    batch: int = 1
    horizon: int = WEEK_SLOTS

    def __post_init__(self) -> None:
        """Validate the rules.

        Raises:
            ValueError: an unknown interval, or a number below 1.
        """
        if self.interval not in {"fixed", "geometric"}:
            raise ValueError("interval: must be fixed or geometric")
        for name in ("rounds", "intervals", "batch", "horizon"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name}: must be at least 1")


@dataclass(frozen=True, slots=True)
class MarketRound:
    """The result of a round in the slots after `after`.

    `idle_workers`, `idle_ps`: by owner, the idle quota in each slot before the shared phase. The
    operator's is the capacity without an owner.
    """

    after: int
    slots: int
    own: tuple[MarketSchedule, ...]
    borrowed: tuple[MarketSchedule, ...]
    idle_workers: Mapping[int, Ints]
    idle_ps: Mapping[int, Ints]
    left: tuple[MarketJob, ...]

    @property
    def schedules(self) -> tuple[MarketSchedule, ...]:
        return self.own + self.borrowed


@dataclass(frozen=True, slots=True)
class MarketRun:
    """The results of all rounds, and the jobs that no round scheduled."""

    rounds: tuple[MarketRound, ...]
    left: tuple[MarketJob, ...]

    @property
    def schedules(self) -> tuple[MarketSchedule, ...]:
        return tuple(chain.from_iterable(row.schedules for row in self.rounds))


def schedule_round(
    pool: MarketPool,
    jobs: Iterable[MarketJob],
    *,
    after: int,
    slots: int,
    running: Iterable[MarketSchedule] = (),
    reference: float | None = None,
) -> MarketRound:
    """Schedule jobs in the slots after `after`, first within own quotas, then on unused resources.

    The utility f is measured from `reference`, or from each job's arrival if `reference` is None.
    """
    book = MarketBook(pool, after, slots, running)
    own, rest = schedule_jobs(book, jobs, shared=False, reference=reference)
    idle_workers, idle_ps = book.idle()
    borrowed, left = schedule_jobs(book, rest, shared=True, reference=reference)
    return MarketRound(
        after, slots, tuple(own), tuple(borrowed), idle_workers, idle_ps, tuple(left)
    )


def run_market(pool: MarketPool, jobs: Iterable[MarketJob], rules: MarketRules) -> MarketRun:
    """Run Astraea over jobs as they arrive.

    Raises:
        ValueError: a job's id is repeated; in the geometric mode, Lemma 1 has no answer.
    """
    ordered = sorted(jobs, key=by_arrival)
    if len({job.id for job in ordered}) < len(ordered):
        raise ValueError("jobs: give each id once")
    run = _fixed if rules.interval == "fixed" else _geometric
    rounds = tuple(run(pool, ordered, rules))
    placed = {schedule.job for row in rounds for schedule in row.schedules}
    return MarketRun(rounds, tuple(job for job in ordered if job.id not in placed))


def paper_rounds(pool: MarketPool, jobs: Sequence[MarketJob]) -> int:
    """Return lambda of Lemma 1 for these jobs, with f at each job's shortest duration.

    Jobs whose f is not positive are left out. If no job is left, lambda is 1.

    Raises:
        ValueError: theta is too small for the formula.
    """
    values = [job.utility_micro(job.duration(job.chunks, centralised=True)) for job in jobs]
    positive = [value for value in values if value > 0]
    if not positive:
        return 1
    thetas = (pool.worker_theta_milli, pool.ps_theta_milli)
    return lemma_rounds(sum(positive), min(positive), *thetas)


def _geometric(
    pool: MarketPool, jobs: Sequence[MarketJob], rules: MarketRules
) -> Iterator[MarketRound]:
    lam = rules.rounds or paper_rounds(pool, jobs)
    last = max((floor(job.arrival) for job in jobs), default=0).bit_length()
    waiting: list[MarketJob] = []
    for level in range(1, (rules.intervals or last + 2) + 1):
        length = 1 << level
        # Earlier arrivals belong to the first interval.
        since = 0 if level == 1 else length // 2
        waiting += [job for job in jobs if since <= job.arrival < length]
        for number in range(lam):
            if not waiting:
                break
            after = (lam + number) * length
            row = schedule_round(pool, waiting, after=after, slots=length, reference=after)
            waiting = list(row.left)
            yield row


def _fixed(
    pool: MarketPool, jobs: Sequence[MarketJob], rules: MarketRules
) -> Iterator[MarketRound]:
    running: list[MarketSchedule] = []
    waiting: list[MarketJob] = []
    coming = list(reversed(jobs))
    after = 0
    while coming or waiting:
        if not waiting:
            after = max(after, ceil(coming[-1].arrival / rules.batch) * rules.batch)
        while coming and coming[-1].arrival <= after:
            waiting.append(coming.pop())
        waiting = [job for job in waiting if not _is_too_late(job, after, rules.horizon)]
        running = [schedule for schedule in running if schedule.end > after]
        if waiting:
            row = schedule_round(pool, waiting, after=after, slots=rules.horizon, running=running)
            waiting = list(row.left)
            running += row.schedules
            yield row
            if not (coming or running):
                return  # In an empty pool, the remaining jobs would be refused forever.
        after += rules.batch


def _is_too_late(job: MarketJob, after: int, horizon: int) -> bool:
    """Return whether every schedule from now on has f <= 0. It stays so, because f never grows."""
    slots = job.duration(job.chunks, centralised=True)
    return slots > horizon or job.utility_micro(after + slots - job.arrival) <= 0
