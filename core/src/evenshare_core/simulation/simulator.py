"""The simulator: an event clock around the production core, `policies.base.decide_round`.

With a grid (`round_us` > 0) a round takes place at whole multiples of it, as in a live pool;
instants at which nothing changed, nothing waits and no lease is due are skipped, by the live
engine's own rule. More is never skipped: while a job waits, the keys of policies drift with
time. With `round_us` 0 a round takes place at every event, which is reaction without delay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason
from evenshare_core.policies.base import decide_round
from evenshare_core.simulation import strict_queue
from evenshare_core.simulation.books import Books, JobRow
from evenshare_core.simulation.resting import Resting
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.simulation.world import Rules, World
from evenshare_core.units import ONE_MILLI

# Nothing held, nothing to come and so many rounds without a grant: what waits waits for ever.
# One round posts the price of an empty pool, the next one may grant at it.
STUCK_ROUNDS = 3
# Leases with which a job did all of its work.
_WHOLE = (EndReason.FINISHED.value, EndReason.FAILED.value)


class ConservationError(Exception):
    """A run's sums do not add up; the message names which."""


@dataclass(slots=True)
class Outcome:
    """What came of a run. `stranded`: jobs that are not over. `decide_s`: if timed.

    `open`: leases that still hold, where the run was cut off.
    """

    books: Books
    rounds: int
    end_us: int
    stranded: tuple[int, ...] = ()
    open: tuple[Lease, ...] = ()
    decide_s: list[float] = field(default_factory=list)


def simulate(
    cluster: Cluster,
    jobs: tuple[SimJob, ...],
    rules: Rules,
    *,
    start_us: int = 0,
    until_us: int | None = None,
    skip: bool = True,
    shortcuts: bool = True,
    timer: Callable[[], float] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Run a pool until every job is over, or until `until_us`.

    `skip` off ticks every instant of the grid, `shortcuts` off asks the policy every time: both
    to prove that they change nothing. `timer` gives seconds; `progress` is told how many jobs
    are over.

    Raises:
        ConservationError: GPU-time, credits or jobs were lost or made.
        InvariantViolation: the policy broke an invariant.
    """
    if shortcuts and not start_us and until_us is None and strict_queue.suits(cluster, jobs, rules):
        return _strict(cluster, jobs, rules)
    world = World(cluster, jobs, rules, start_us=start_us)
    outcome = Outcome(world.books, 0, start_us)
    play(
        world, outcome, until_us=until_us, skip=skip, shortcuts=shortcuts, timer=timer,
        progress=progress,
    )  # fmt: skip
    return _closed(world, outcome, jobs, until_us)


def play(
    world: World,
    outcome: Outcome,
    *,
    until_us: int | None = None,
    skip: bool = True,
    shortcuts: bool = True,
    timer: Callable[[], float] | None = None,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Let a world's rounds happen, up to and at `until_us`; the options are those of `simulate`."""
    resting = None
    if shortcuts and Resting.suits(world):
        resting = Resting(world, asks=timer is None)
    last_us: int | None = None
    idle_rounds = 0
    while idle_rounds < STUCK_ROUNDS:
        at_us = _next_instant(world, last_us, skip=skip)
        if at_us is None or (until_us is not None and at_us > until_us):
            break
        last_us = at_us
        world.advance(at_us)
        if skip and world.is_quiet:
            continue
        granted = resting.round() if resting is not None else None
        if granted is None:
            granted = _round(world, outcome, timer)
        outcome.rounds += 1
        is_stuck = not granted and not world.leases and world.events.is_over
        idle_rounds = idle_rounds + 1 if is_stuck else 0
        if progress is not None:
            progress(len(world.books.jobs))


def _strict(cluster: Cluster, jobs: tuple[SimJob, ...], rules: Rules) -> Outcome:
    books, rounds, stranded = strict_queue.run(cluster, jobs, rules)
    end_us = max((row.end_us for row in books.jobs), default=0)
    outcome = Outcome(books, rounds, end_us, tuple(stranded))
    check_conservation(outcome, cluster, jobs)
    return outcome


def _next_instant(world: World, last_us: int | None, *, skip: bool) -> int | None:
    """When the next round may be due; None when nothing is to come."""
    next_us, round_us = world.events.next_us, world.rules.round_us
    if last_us is None:  # the quotas, before anything happens
        return -(-world.at_us // round_us) * round_us if round_us else world.at_us
    if not round_us:
        if next_us is None and world.waiting:
            return last_us + 1  # stuck: let it be seen
        return next_us
    if not skip or world.changes or world.waiting:
        return last_us + round_us if next_us is not None or world.waiting else None
    if next_us is None:
        return None
    return -(-next_us // round_us) * round_us


def _round(world: World, outcome: Outcome, timer: Callable[[], float] | None) -> int:
    snapshot = world.snapshot()
    began = timer() if timer is not None else 0.0
    decision = decide_round(snapshot)
    if timer is not None:
        outcome.decide_s.append(timer() - began)
    world.apply(decision)
    return len(decision.grants)


def _closed(
    world: World, outcome: Outcome, jobs: tuple[SimJob, ...], until_us: int | None
) -> Outcome:
    cluster = world.cluster
    outcome.end_us = world.at_us if until_us is None else until_us
    outcome.stranded = tuple(world.runs)
    outcome.open = tuple(world.leases.values())
    if until_us is None:
        check_conservation(outcome, cluster, jobs)
    return outcome


def check_conservation(outcome: Outcome, cluster: Cluster, jobs: tuple[SimJob, ...]) -> None:
    """GPU-time allocated = used + overhead, work = used x speed; charges = incomes; no job is lost.

    Raises:
        ConservationError: one of them does not hold.
    """
    books = outcome.books
    over = sorted([row.job for row in books.jobs] + list(outcome.stranded))
    if over != sorted(job.id for job in jobs):
        raise ConservationError(f"{len(over)} jobs are accounted for, there are {len(jobs)}")
    if sum(books.charged.values()) != sum(books.earned.values()):
        raise ConservationError("charges are not incomes")
    by_id = {job.id: job for job in jobs}
    allocated = sum((row.end_us - row.start_us) * by_id[row.job].gpus for row in books.leases)
    held = sum((row.ends_us - row.starts_us) * (row.own + row.borrowed) for row in books.terms)
    if allocated != held:
        raise ConservationError(f"leases held {allocated} GPU-us, their terms {held}")
    worked = _worked(books, cluster, by_id)
    for row in books.jobs:
        _check_job(row, by_id[row.job], worked.get(row.job, 0))


def _worked(books: Books, cluster: Cluster, by_id: dict[int, SimJob]) -> dict[int, int]:
    """Work done by job: the sum over its leases of useful time x speed, each rounded down.

    The last lease of a job that did all its work lasts as long as the rest of it takes, rounded
    up to a microsecond: it did what was left if it lasted exactly so long, else what it could.
    """
    worked: dict[int, int] = {}
    for lease in books.leases:  # those of a job in the order of their ends
        job = by_id[lease.job]
        done_us = worked.get(lease.job, 0)
        useful_us = lease.end_us - lease.start_us - lease.overhead_us
        if cluster.has_speeds:
            speed = cluster.speed_milli(job.profile, lease.gpu_type)
            left_us = job.duration_us - done_us
            is_last = lease.reason in _WHOLE and useful_us == -(-left_us * ONE_MILLI // speed)
            useful_us = left_us if is_last else useful_us * speed // ONE_MILLI
        worked[lease.job] = done_us + useful_us
    return worked


def _check_job(row: JobRow, job: SimJob, worked_us: int) -> None:
    """`worked_us`: what its leases add up to."""
    if row.state != "cancelled" and row.useful_us != job.duration_us:
        raise ConservationError(f"job {row.job} ended without all of its work")
    if worked_us != row.useful_us:
        raise ConservationError(f"job {row.job} worked {worked_us} us, used {row.useful_us}")
    if row.end_us < job.submitted_us:
        raise ConservationError(f"job {row.job} ended before it was submitted")
