"""Simulation of a pool: its events and rounds, in order of time.

With `round_us` > 0, rounds take place at multiples of `round_us`, as in a live pool. By the rule of
the live engine, a round is left out if nothing changed, no job waits and no lease is due.

While a job waits, a round is not computed as long as the policy's answer stays the same
(`simulation.fast_forward`), but it still counts. With `round_us` 0, every event triggers a round
without delay.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason
from evenshare_core.policies.registry import options as policy_options
from evenshare_core.simulation import single_tenant
from evenshare_core.simulation.books import Books, JobRecord
from evenshare_core.simulation.fast_forward import Rounds
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import ONE_MILLI

# After this many rounds without grants, leases or events, the waiting jobs would wait forever. The
# first round posts the price of an empty pool, and the second may grant at that price.
STUCK_ROUNDS = 3
# End reasons of leases whose job did all its work.
_WHOLE = (EndReason.FINISHED.value, EndReason.FAILED.value)


class ConservationError(Exception):
    """The sums of a run do not add up; the message names the sum."""


@dataclass(slots=True)
class SimulationResult:
    """The result of a run.

    `stranded` has the ids of jobs that have not ended, and `open` the leases that have not.
    `decide_s` has the seconds of each round, if timed.
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
    fast_forward: bool = True,
    timer: Callable[[], float] | None = None,
    progress: Callable[[int], None] | None = None,
) -> SimulationResult:
    """Run a pool until every job has ended, or until `until_us`.

    Without `skip`, no multiple of `round_us` is left out; without `fast_forward`, every round calls
    `decide_round`. Tests use both options to show that the results are the same. `timer` returns
    seconds. `progress` is called after each round with the number of ended jobs.

    Raises:
        ConservationError: GPU-time, credits or jobs were lost or created.
        InvariantViolation: the policy broke an invariant.
    """
    if fast_forward and not start_us and until_us is None:
        alone = single_tenant.run(cluster, jobs, rules)
        if alone is not None:
            end_us = max((row.end_us for row in alone.books.jobs), default=0)
            result = SimulationResult(alone.books, alone.rounds, end_us, alone.stranded)
            check_conservation(result, cluster, jobs)
            return result
    state = SimulationState(cluster, jobs, rules, start_us=start_us)
    result = SimulationResult(state.books, 0, start_us)
    run(
        state, result, until_us=until_us, skip=skip, fast_forward=fast_forward, timer=timer,
        progress=progress,
    )  # fmt: skip # rows of what belongs together
    result.end_us = state.at_us if until_us is None else until_us
    result.stranded = tuple(state.runs)
    result.open = tuple(state.leases.values())
    if until_us is None:
        check_conservation(result, cluster, jobs)
    return result


def run(
    state: SimulationState,
    result: SimulationResult,
    *,
    until_us: int | None = None,
    skip: bool = True,
    fast_forward: bool = True,
    timer: Callable[[], float] | None = None,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Run the rounds of a state up to and including `until_us`, with the options of `simulate`."""
    rounds = Rounds(state, fast_forward=fast_forward, timer=timer)
    last_us: int | None = None
    idle_rounds = 0
    options, round_us = (
        policy_options(state.policy.name, dict(state.rules.options)),
        state.rules.round_us,
    )
    stuck = STUCK_ROUNDS + (-(-options.interval_us // round_us) if round_us else 0)
    while idle_rounds < stuck:
        at_us = _next_instant(state, last_us, skip=skip)
        if at_us is None or (until_us is not None and at_us > until_us):
            break
        last_us = at_us
        state.advance(at_us)
        if skip and state.is_quiet:
            continue
        granted = rounds.run()
        result.rounds += 1
        is_stuck = not granted and not state.leases and state.events.is_over
        is_stuck = is_stuck and not state.has_surcharge  # a falling price may admit a job
        idle_rounds = idle_rounds + 1 if is_stuck else 0
        if skip and state.queue and not granted and not is_stuck and state.rules.round_us:
            passed = rounds.pass_over(_until(state, until_us))
            result.rounds += passed
            last_us += passed * state.rules.round_us
        if progress is not None:
            progress(len(state.books.jobs))
    result.decide_s += rounds.decide_s
    rounds.close()


def _until(state: SimulationState, until_us: int | None) -> int:
    """Return the next event's time, at most 1 us after `until_us`; earlier rounds may be skipped.

    Return the current time if no event is left.
    """
    next_us = state.events.next_us
    if next_us is None:
        return state.at_us
    return next_us if until_us is None else min(next_us, until_us + 1)


def _next_instant(state: SimulationState, last_us: int | None, *, skip: bool) -> int | None:
    next_us, round_us = state.events.next_us, state.rules.round_us
    if last_us is None:  # the first round sets the quotas
        return -(-state.at_us // round_us) * round_us if round_us else state.at_us
    if not round_us:
        if next_us is None and state.queue:
            return last_us + 1  # no job started, and the next rounds confirm it
        return next_us
    waits = bool(state.queue) or state.has_surcharge  # a job waits, or a price will fall
    if not skip or state.changes or waits:
        return last_us + round_us if next_us is not None or waits else None
    if next_us is None:
        return None
    return -(-next_us // round_us) * round_us


def check_conservation(
    result: SimulationResult, cluster: Cluster, jobs: tuple[SimJob, ...]
) -> None:
    """Check that a run lost or created no GPU-time, work, credits or jobs.

    Leases and their terms must have the same GPU-time, and charges must equal incomes. A job's work
    must be the sum of useful time x speed over its leases.

    Raises:
        ConservationError: an equation does not hold.
    """
    books = result.books
    over = sorted([row.job for row in books.jobs] + list(result.stranded))
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
    """Return the work by job: the sum over its leases of useful time x speed, each rounded down.

    The last lease of a finished job lasts as long as its remaining work, rounded up to a
    microsecond. If it has exactly this length, it counts for exactly this work.
    """
    worked: dict[int, int] = {}
    for lease in books.leases:  # a job's leases are in the order of their ends
        job = by_id[lease.job]
        done_us = worked.get(lease.job, 0)
        useful_us = lease.end_us - lease.start_us - lease.overhead_us
        if cluster.has_speeds or len(lease.placement) > 1:
            speed = cluster.placed_speed_milli(job, lease.gpu_type, lease.placement)
            left_us = job.duration_us - done_us
            is_last = lease.reason in _WHOLE and useful_us == -(-left_us * ONE_MILLI // speed)
            useful_us = left_us if is_last else useful_us * speed // ONE_MILLI
        worked[lease.job] = done_us + useful_us
    return worked


def _check_job(row: JobRecord, job: SimJob, worked_us: int) -> None:
    """Compare a job's record with `worked_us`, its work summed over its leases."""
    if row.state != "cancelled" and row.useful_us != job.duration_us:
        raise ConservationError(f"job {row.job} ended without all of its work")
    if worked_us != row.useful_us:
        raise ConservationError(f"job {row.job} worked {worked_us} us, used {row.useful_us}")
    if row.end_us < job.submitted_us:
        raise ConservationError(f"job {row.job} ended before it was submitted")
