"""A_maxIrev (algorithms 3 to 5) in a fast form, with the results of the corrected printed form.

For each job, first slot and number of workers, it takes the cheaper of centralised and distributed
placement, and keeps the largest f - cost. On a tie, the earliest start is chosen, then the fewest
workers, then centralised placement. This is the order of the algorithm.

Optimisations, with equal answers:

- Of all numbers of workers with the same duration, only the smallest is tried. It costs no more
  than the others, and fits wherever they do (fewer workers on other servers need no more PSs).
- Prefix sums of prices give the value of a centralised candidate for all starts at once. For a
  distributed one they give an upper bound, with the fewest possible PSs.
- Candidates are tried in the order of their largest bound, and starts in the order of their bound.
  Candidates and starts whose bound cannot beat the best so far are skipped. Servers are checked by
  window minima.

| paper | here |
|---|---|
| t^-, D_w | start (an index into the book), `Candidate.workers` |
| D_sw, D_sp | free minima of a window, at most D_w - 1; PSs needed there |
| iota, mu | `MarketSchedule`, its `value_micro` |

Corrections:

- A window ends at start + d - 1.
- Servers with too few PSs for the workers on other servers are left out (3i).
- The cost is the sum over the window; PSs are limited by q_p and a_p.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenshare_research.market.book import Counts, Ints, MarketBook, WindowMinima
from evenshare_research.market.model import MarketJob, MarketSchedule, by_arrival

CHUNK = 16  # how many starts are tried at once
NOTHING = -(1 << 62)
Starts = npt.NDArray[np.intp]


class Candidate(NamedTuple):
    """A number of workers, its duration, and the fewest possible PSs."""

    workers: int
    slots: int
    centralised: bool
    least_ps: int


class _Limits(NamedTuple):
    """The sharing limits of windows: minima of (workers, PSs), or None in the shared phase."""

    left: WindowMinima | None

    def allow(self, starts: Starts, slots: int) -> tuple[Counts, Counts] | None:
        if self.left is None:
            return None
        least = self.left.over(starts, slots)
        return least[:, 0], least[:, 1]


class _Best(NamedTuple):
    """The best candidate so far, with its value and its rank among ties."""

    value: int
    order: tuple[int, int, bool]  # order of ties: start, workers, distributed
    candidate: Candidate | None


def schedule_jobs(
    book: MarketBook,
    jobs: Iterable[MarketJob],
    *,
    shared: bool,
    reference: float | None = None,
) -> tuple[list[MarketSchedule], list[MarketJob]]:
    """Run A_maxIrev: schedule jobs in the order (arrival, id).

    Return the schedules and the other jobs. Each schedule is added to the book, which posts new
    prices. With `shared`, jobs may use all unused resources, or else only the unused quota of their
    tenant. The utility f is measured from `reference`, by default from the job's arrival.
    """
    schedules, left = [], []
    for job in sorted(jobs, key=by_arrival):
        schedule = best_schedule(book, job, shared=shared, reference=reference)
        if schedule is None:
            left.append(job)
        else:
            book.commit(schedule)
            schedules.append(schedule)
    return schedules, left


def best_schedule(
    book: MarketBook, job: MarketJob, *, shared: bool, reference: float | None = None
) -> MarketSchedule | None:
    """Return the schedule with the largest positive f - cost at the posted prices, or None.

    The utility f is measured from `reference`, or from the job's arrival if `reference` is None.

    Source: (7).
    """
    since = job.arrival if reference is None else reference
    most, limits = _sharing(book, job, shared=shared)
    candidates = list(_candidates(book, job, most))
    if not candidates:
        return None
    first = max(0, int(np.ceil(job.arrival)) - book.after)
    ends = np.arange(book.slots + 1)
    shortest = min(candidate.slots for candidate in candidates)
    utilities = np.full(book.slots + 1, NOTHING, dtype=np.int64)
    for end in ends[first + shortest :]:
        utilities[end] = job.utility_micro(book.after + int(end) - since)
    bounds = _bounds(book, candidates, utilities, first)
    best = _Best(0, (0, 0, False), None)
    tops = bounds.max(axis=1, initial=NOTHING)
    for index in np.argsort(-tops, kind="stable"):
        if tops[index] < max(best.value, 1):
            break
        best = _improve(book, candidates[index], bounds[index], limits, best)
    if best.candidate is None:
        return None
    return _placed(book, job, best, utilities, borrowed=shared)


def _sharing(book: MarketBook, job: MarketJob, *, shared: bool) -> tuple[int, _Limits]:
    """Return the most workers that sharing allows in any slot, and the limits of windows."""
    if shared:
        return book.pool.workers - int(book.used_workers.min()), _Limits(None)
    workers, ps = book.own_left(job.tenant)
    table = np.stack([workers, ps], axis=1).astype(np.int32)
    return int(workers.max()), _Limits(WindowMinima(table))


def _candidates(book: MarketBook, job: MarketJob, most: int) -> Iterable[Candidate]:
    """Yield the smallest number of workers for each duration that fits within the window."""
    pool = book.pool
    largest = int(book.free_workers.levels[0].max())
    for centralised in (True, False):
        work = job.work(centralised=centralised)
        before = book.slots + 1
        limit = min(job.chunks, most, largest) if centralised else min(job.chunks, most)
        for workers in range(1 if centralised or pool.ps else 2, limit + 1):
            slots = max(1, -(-work.numerator // (work.denominator * workers)))
            if slots >= before:
                continue
            before = slots
            if not pool.ps:
                least = 0
            elif centralised:
                least = 1
            else:
                least = pool.ps_needed(workers - min(workers - 1, largest))
            yield Candidate(workers, slots, centralised, least)


def _bounds(book: MarketBook, candidates: list[Candidate], utilities: Ints, first: int) -> Ints:
    """Return an upper bound on each candidate's value at each start: (candidates, slots)."""
    rows = np.array([(row.workers, row.slots, row.least_ps) for row in candidates], dtype=np.int64)
    workers, slots, ps = (column[:, None] for column in rows.T)
    starts = np.arange(book.slots)
    ends = np.minimum(starts + slots, book.slots)
    costs = workers * (book.worker_sums[ends] - book.worker_sums[:-1])
    costs += ps * (book.ps_sums[ends] - book.ps_sums[:-1])
    fits = (starts >= first) & (starts + slots <= book.slots)
    bounds: Ints = np.where(fits, utilities[ends] - costs, NOTHING)
    return bounds


def _improve(
    book: MarketBook, candidate: Candidate, bounds: Ints, limits: _Limits, best: _Best
) -> _Best:
    """Try the starts at which a candidate may beat the best so far."""
    at_least = max(best.value, 1)
    starts = np.flatnonzero(bounds >= at_least)
    starts = starts[np.argsort(-bounds[starts], kind="stable")]
    done, size = 0, 1
    while done < len(starts):
        part = starts[done : done + size]
        if bounds[part[0]] < max(best.value, 1):
            break
        for start, value in _fitting(book, candidate, part, bounds, limits):
            order = (start, candidate.workers, not candidate.centralised)
            # A value of 0 is refused, because (7) requires a value above 0.
            if value > best.value or (value == best.value and value > 0 and order < best.order):
                best = _Best(value, order, candidate)
        done, size = done + size, CHUNK
    return best


def _fitting(
    book: MarketBook, candidate: Candidate, starts: Starts, bounds: Ints, limits: _Limits
) -> list[tuple[int, int]]:
    """Return (start, exact value) for each start at which the candidate fits."""
    slots = candidate.slots
    workers = book.free_workers.over(starts, slots)
    allowed = limits.allow(starts, slots)
    if candidate.centralised:
        fits = workers >= candidate.workers
        if candidate.least_ps:
            fits &= book.free_ps.over(starts, slots) >= 1
        ok = fits.any(axis=1)
        extra = np.zeros(len(starts), dtype=np.int64)
    else:
        ok, extra = _distributed(book, candidate, starts, workers, allowed)
    if allowed is not None:
        ok &= (allowed[0] >= candidate.workers) & (allowed[1] >= candidate.least_ps)
    prices = book.ps_sums[starts + slots] - book.ps_sums[starts]
    values = bounds[starts] - extra * prices
    return [(int(starts[row]), int(values[row])) for row in np.flatnonzero(ok)]


def _distributed(
    book: MarketBook,
    candidate: Candidate,
    starts: Starts,
    free: Counts,
    allowed: tuple[Counts, Counts] | None,
) -> tuple[npt.NDArray[np.bool_], Ints]:
    """Return whether the candidate fits at each start, and its PSs above the fewest possible."""
    if not candidate.least_ps:
        most = np.minimum(free, candidate.workers - 1)
        return most.sum(axis=1) >= candidate.workers, np.zeros(len(starts), dtype=np.int64)
    needs = _ps_needs(book, candidate, free, book.free_ps.over(starts, candidate.slots), allowed)
    target = needs.argmin(axis=1)
    rows = np.arange(len(starts))
    here, need = free[rows, target], needs[rows, target]
    elsewhere = candidate.workers - np.minimum(here, candidate.workers - 1)
    ok = (need < _TOO_MANY) & (free.sum(axis=1) - here >= elsewhere)
    return ok, need.astype(np.int64) - candidate.least_ps


_TOO_MANY = 1 << 30


def _ps_needs(
    book: MarketBook,
    candidate: Candidate,
    free: Counts,
    free_ps: Counts,
    allowed: tuple[Counts, Counts] | None,
) -> Counts:
    """Return the PSs needed on each server (3i), or `_TOO_MANY` if the server has fewer."""
    pool = book.pool
    elsewhere = candidate.workers - np.minimum(free, candidate.workers - 1)
    needs = np.maximum(1, -(-elsewhere * pool.worker_bandwidth // pool.ps_bandwidth))
    room = free_ps if allowed is None else np.minimum(free_ps, allowed[1][:, None])
    fitting: Counts = np.where(needs <= room, needs, _TOO_MANY)
    return fitting


def _placed(
    book: MarketBook, job: MarketJob, best: _Best, utilities: Ints, *, borrowed: bool
) -> MarketSchedule:
    """Return the best candidate as a schedule, with its servers."""
    candidate, start = best.candidate, best.order[0]
    assert candidate is not None  # noqa: S101 - narrows the type; the caller has looked
    end = start + candidate.slots
    at = np.array([start])
    free = book.free_workers.over(at, candidate.slots)
    free_ps = book.free_ps.over(at, candidate.slots)
    _, limits = _sharing(book, job, shared=borrowed)
    if candidate.centralised:
        fits = free[0] >= candidate.workers
        if candidate.least_ps:
            fits &= free_ps[0] >= 1
        server = int(np.flatnonzero(fits)[0])
        workers = {server: candidate.workers}
        ps = (server, 1) if candidate.least_ps else None
    elif candidate.least_ps:
        needs = _ps_needs(book, candidate, free, free_ps, limits.allow(at, candidate.slots))[0]
        server = int(needs.argmin())
        ps = (server, int(needs[server]))
        here = min(candidate.workers - 1, int(free[0, server]))
        workers = _spread(free[0], candidate.workers - here, most=candidate.workers, but=server)
        workers[server] = here
    else:
        ps = None
        workers = _spread(free[0], candidate.workers, most=candidate.workers - 1, but=-1)
    return MarketSchedule(
        job=job.id,
        tenant=job.tenant,
        start=book.after + 1 + start,
        end=book.after + end,
        centralised=candidate.centralised,
        workers=tuple(sorted((server, count) for server, count in workers.items() if count)),
        ps=ps,
        worker_prices=tuple(book.worker_prices[start:end].tolist()),
        ps_prices=tuple(book.ps_prices[start:end].tolist()),
        ideal_micro=int(utilities[end]),
        borrowed=borrowed,
    )


def _spread(free: Counts, workers: int, *, most: int, but: int) -> dict[int, int]:
    """Fill servers from the fewest free workers upward, to keep large ones free."""
    counts: dict[int, int] = {}
    for server in np.argsort(free, kind="stable").tolist():
        if workers == 0:
            break
        if server != but:
            counts[server] = min(int(free[server]), workers, most)
            workers -= counts[server]
    return counts
