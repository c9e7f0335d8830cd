"""An adversary that looks for long waits of owed gangs, and for breaches of promises.

It changes the jobs of a small pool at random. A change is kept if the longest wait of an owed gang
did not get shorter. If no change helps, it starts again with another pool. Each pool runs in the
simulator, and every round is checked. The seed decides all choices.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.policies.base import decide_round
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import ONE_TYPE, Cluster, NodeChange, SimJob
from evenshare_core.units import SECOND_US
from tests.simulation.promise_bound import Candidate, Followed, Round, follow

POLICY, OPTIONS = "evenshare", {"promises": True}
MAX_LOAD, MAX_JOBS = 1.6, 80
PATIENCE = 25  # changes without a longer wait before the next pool
LEASES = 10  # the length of a run
ROUND_S = (20, 30, 60)
LEASE_S = (300, 600, 900)


class JobSpec(NamedTuple):
    """A job, which is cancelled `cancel_s` after its submission, unless that is 0."""

    tenant: int
    gpus: int
    at_s: int
    duration_s: int
    cancel_s: int = 0


class Loss(NamedTuple):
    """A node that is lost at `at_s` and returns after `for_s`."""

    node: int
    at_s: int
    for_s: int


@dataclass(frozen=True)
class Case:
    """A pool of one GPU type: GPUs by node, quotas by tenant, and jobs.

    With `has_bounds`, the pool allows terms from a round to a lease length.
    """

    nodes: tuple[int, ...]
    quotas: tuple[int, ...]
    jobs: tuple[JobSpec, ...]
    round_s: int
    lease_s: int
    has_bounds: bool = False
    losses: tuple[Loss, ...] = ()

    @property
    def until_s(self) -> int:
        return LEASES * self.lease_s

    @property
    def load(self) -> float:
        """Return the jobs' GPU-time, divided by that of the pool."""
        work = sum(job.gpus * job.duration_s for job in self.jobs)
        return work / (sum(self.nodes) * self.until_s)

    def state(self) -> SimulationState:
        nodes = tuple(Node(number, ONE_TYPE, gpus) for number, gpus in enumerate(self.nodes, 1))
        quotas = tuple(Entitlement(key, ONE_TYPE, gpus) for key, gpus in enumerate(self.quotas, 1))
        jobs = sim_jobs(self.jobs)
        round_us, lease_us = self.round_s * SECOND_US, self.lease_s * SECOND_US
        bounds_us = (round_us, lease_us) if self.has_bounds else ()
        rules = Rules(POLICY, OPTIONS, round_us, lease_us, lease_bounds_us=bounds_us)
        changes = tuple(NodeChange(*row) for row in self._node_changes())
        return SimulationState(Cluster(nodes, quotas, changes=changes), jobs, rules)

    def _node_changes(self) -> list[tuple[int, int, int]]:
        """Return (time, node, GPUs) of each loss and return, in order."""
        rows = []
        for node, at_s, for_s in self.losses:
            rows += [(at_s, node, 0), (at_s + for_s, node, self.nodes[node - 1])]
        return sorted((at_s * SECOND_US, node, gpus) for at_s, node, gpus in rows)


def sim_jobs(specs: tuple[JobSpec, ...]) -> tuple[SimJob, ...]:
    """Return the jobs in order of submission, with ids from 1."""
    rows = sorted(specs, key=lambda spec: spec.at_s)
    return tuple(
        SimJob(
            number, row.tenant, row.gpus, row.at_s * SECOND_US, row.duration_s * SECOND_US,
            cancel_us=(row.at_s + row.cancel_s) * SECOND_US if row.cancel_s else None,
        )
        for number, row in enumerate(rows, 1)
    )  # fmt: skip # rows of what belongs together


def rounds_of(state: SimulationState, until_us: int) -> Iterator[Round]:
    """Run a pool round by round from snapshots, and yield each round before it is applied."""
    for at_us in range(0, until_us, state.rules.round_us):
        state.advance(at_us)
        if state.is_quiet:
            continue
        snapshot = state.snapshot()
        decision = decide_round(snapshot)
        yield snapshot, decision
        state.joined.clear()
        state.apply(decision)


@dataclass
class Climb:
    """The result of a climb: `breach` of `case`, or the longest wait of an owed gang."""

    is_tight: bool = False
    rounds: int = 0
    cases: int = 0
    promises: int = 0
    waited_us: int = 0
    chain: int = 0
    breach: str = ""
    case: Case | None = field(default=None, repr=False)


def climb(seed: int, rounds: int, *, is_tight: bool = False, has_bounds: bool = False) -> Climb:
    """Climb until `rounds` rounds have run, or until the first breach.

    `is_tight` is as in `follow`, `has_bounds` as in `Case`.
    """
    rng = random.Random(seed)  # noqa: S311 - a test's seed
    result = Climb(is_tight)
    starts = 0
    while result.rounds < rounds and not result.breach:
        score = SCORES[starts % len(SCORES)]
        starts += 1
        best = replace(drawn(rng), has_bounds=has_bounds)
        reached = score(_run(best, result))
        left = PATIENCE
        while left and result.rounds < rounds and not result.breach:
            changed = change(rng, best)
            now = score(_run(changed, result))
            left = PATIENCE if now > reached else left - 1
            if now >= reached:
                best, reached = changed, now
    return result


def _run(case: Case, result: Climb) -> Followed:
    """Run a case, and add it to the result."""
    try:
        rounds = rounds_of(case.state(), case.until_s * SECOND_US)
        followed = follow(rounds, is_tight=result.is_tight)
    except Exception as error:
        error.add_note(repr(case))
        raise
    result.cases += 1
    result.rounds += followed.rounds
    result.promises += followed.promises
    longest = max(_gangs(followed), default=None, key=lambda one: one.waited_us)
    if longest is not None and longest.waited_us > result.waited_us:
        result.waited_us, result.chain = longest.waited_us, longest.chain
        result.case = case
    if followed.breaches:
        result.breach, result.case = followed.breaches[0], case
    return followed


def _gangs(followed: Followed) -> list[Candidate]:
    return [one for one in followed.waits if one.gpus > 1]


def _longest_us(followed: Followed) -> float:
    return max((one.waited_us for one in _gangs(followed)), default=0)


def _closest(followed: Followed) -> float:
    """Return the longest wait as a part of its bound."""
    return max((one.waited_us / one.bound_us for one in _gangs(followed)), default=0)


# Each start climbs on one of them in turn.
SCORES: tuple[Callable[[Followed], float], ...] = (_longest_us, _closest)


# ---- cases ----


def drawn(rng: random.Random) -> Case:
    """Draw two to four tenants with jobs of up to two nodes on one to four nodes."""
    nodes = tuple(rng.choice((4, 8)) for _ in range(rng.randint(1, 4)))
    tenants = rng.randint(2, 4)
    case = Case(nodes, _quotas(rng, sum(nodes), tenants), (), 0, 0)
    case = replace(case, round_s=rng.choice(ROUND_S), lease_s=rng.choice(LEASE_S))
    load = rng.uniform(0.8, MAX_LOAD)
    while case.load < load and len(case.jobs) < MAX_JOBS:
        case = replace(case, jobs=(*case.jobs, _job(rng, case)))
    return _lightened(rng, case)


def _quotas(rng: random.Random, gpus: int, tenants: int) -> tuple[int, ...]:
    cuts = sorted(rng.randint(0, gpus) for _ in range(tenants - 1))
    return tuple(right - left for left, right in zip((0, *cuts), (*cuts, gpus), strict=True))


def _job(rng: random.Random, case: Case) -> JobSpec:
    return JobSpec(
        tenant=rng.randint(1, len(case.quotas)),
        gpus=_gang(rng, case),
        at_s=rng.randrange(0, case.until_s * 3 // 4, 10),
        duration_s=_duration_s(rng, case),
    )


def _gang(rng: random.Random, case: Case) -> int:
    largest = max(case.nodes)
    most = min(2 * largest, sum(case.nodes))
    return min(most, rng.choice((1, 1, 2, largest // 2, largest, rng.randint(1, most), most)))


def _duration_s(rng: random.Random, case: Case) -> int:
    leases = rng.choice((0.2, 0.9, 1, 1.5, 3, LEASES))
    return max(10, int(leases * case.lease_s * rng.uniform(0.7, 1.3)))


def change(rng: random.Random, case: Case) -> Case:
    """Return the case with one to three changes, and at most the maximum load."""
    for _ in range(rng.randint(1, 3)):
        case = rng.choice(CHANGES)(rng, case)
    return _lightened(rng, case)


def _with_job(rng: random.Random, case: Case, new: Callable[[JobSpec], JobSpec]) -> Case:
    index = rng.randrange(len(case.jobs))
    jobs = list(case.jobs)
    jobs[index] = new(jobs[index])
    return replace(case, jobs=tuple(jobs))


def _shift(rng: random.Random, case: Case) -> Case:
    by_s = int(rng.gauss(0, case.lease_s))
    last_s = case.until_s - 1
    return _with_job(rng, case, lambda job: job._replace(at_s=min(last_s, max(0, job.at_s + by_s))))


def _resize(rng: random.Random, case: Case) -> Case:
    return _with_job(rng, case, lambda job: job._replace(gpus=_gang(rng, case)))


def _stretch(rng: random.Random, case: Case) -> Case:
    return _with_job(rng, case, lambda job: job._replace(duration_s=_duration_s(rng, case)))


def _cancel(rng: random.Random, case: Case) -> Case:
    """Cancel a job within two lease lengths, or never."""
    cancel_s = rng.choice((0, rng.randint(1, 2 * case.lease_s)))
    return _with_job(rng, case, lambda job: job._replace(cancel_s=cancel_s))


def _give(rng: random.Random, case: Case) -> Case:
    return _with_job(rng, case, lambda job: job._replace(tenant=rng.randint(1, len(case.quotas))))


def _lose(rng: random.Random, case: Case) -> Case:
    """Lose a node once, or no node at all."""
    if case.losses or len(case.nodes) < 2:
        return replace(case, losses=())
    at_s = rng.randrange(0, case.until_s, case.round_s)
    loss = Loss(rng.randint(1, len(case.nodes)), at_s, rng.randint(1, 2 * case.lease_s))
    return replace(case, losses=(loss,))


def _add(rng: random.Random, case: Case) -> Case:
    return replace(case, jobs=(*case.jobs, _job(rng, case)))


def _remove(rng: random.Random, case: Case) -> Case:
    if len(case.jobs) < 2:
        return case
    index = rng.randrange(len(case.jobs))
    return replace(case, jobs=(*case.jobs[:index], *case.jobs[index + 1 :]))


def _quota(rng: random.Random, case: Case) -> Case:
    """Give one tenant's GPUs of quota to another tenant."""
    giver, taker = rng.sample(range(len(case.quotas)), 2)
    gpus = rng.randint(0, case.quotas[giver])
    quotas = list(case.quotas)
    quotas[giver], quotas[taker] = quotas[giver] - gpus, quotas[taker] + gpus
    return replace(case, quotas=tuple(quotas))


CHANGES = (
    *(_shift, _shift, _resize, _stretch, _cancel, _give),
    *(_add, _add, _remove, _quota, _lose),
)


def _lightened(rng: random.Random, case: Case) -> Case:
    while case.load > MAX_LOAD or len(case.jobs) > MAX_JOBS:
        case = _remove(rng, case)
        if len(case.jobs) == 1:
            return case
    return case
