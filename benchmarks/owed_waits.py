"""Table of the longest waits of owed gangs, by policy, on the streams of an adversary.

The streams are the same for all policies. Some are random, and some were found by an adversary
against one of the policies in `CLIMBED`. Three are those of gangs that once starved. The adversary
changes the jobs of a stream (`tests.simulation.promise_adversary`) and keeps changes with a longer
wait. Seeds are fixed, so each run prints the same figures.

A wait counts while the gang's tenant is owed: since the start, the tenant has received less
GPU-time than it deserves. So the measure does not depend on the policy. The second figure counts
only times in which no other job of its tenant has waited longer. Jobs have exact estimates.
All pools have one GPU type, equal prices and no deadlines, so every policy can run them.

    python -m benchmarks.owed_waits [POLICY ...]
"""

import argparse
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from evenshare_core.policies.registry import POLICIES
from evenshare_core.simulation.simulator import SimulationResult, run
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.units import SECOND_US
from tests.simulation.promise_adversary import Case, change, drawn
from tests.simulation.test_promised_starts import GANGS, LEASE_S

DRAWN, CHANGES, SEED = 40, 60, 1
GANG_S, GANG_ROUND_S = 30_000, 30  # the length of the gangs' streams, and of their rounds
CLIMBED = ("evenshare", "evenshare, promises off", "ltgf", "gandiva_fair", "market", "drf", "fifo")
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "evenshare, promises off": ("evenshare", {"promises": False}),
}
BOUNDS = {"evenshare": "B"}  # of the second column
UNFAIR = (
    "behind own overload"  # more jobs than the quota, so that the gang waits for its own tenant
)


class JobStream(NamedTuple):
    """Jobs of a pool, its rules (the policy is replaced), and the length of the run."""

    name: str
    start: SimulationState
    until_us: int


class Waits(NamedTuple):
    """The longest waits of an owed gang, and of one while no job of its tenant waited longer."""

    longest_us: int = 0
    first_us: int = 0


class WaitSpan(NamedTuple):
    from_us: int
    until_us: int

    def within(self, other: "WaitSpan") -> "WaitSpan":
        return WaitSpan(max(self.from_us, other.from_us), min(self.until_us, other.until_us))

    @property
    def length_us(self) -> int:
        return max(0, self.until_us - self.from_us)


# ---- streams ----


def stream_of(name: str, case: Case) -> JobStream:
    """Return a case without losses of nodes; policies that need estimates get the durations."""
    return JobStream(name, replace(case, losses=()).state(), case.until_s * SECOND_US)


def gang_streams() -> list[JobStream]:
    """Return the starving gangs on two nodes of 8 GPUs, with fewer rounds than in their test."""
    cases = {
        name: Case((8, 8), quotas, tuple(jobs), GANG_ROUND_S, LEASE_S)
        for name, (quotas, jobs) in GANGS.items()
        if name != UNFAIR
    }
    return [
        JobStream(f"gang {name}", case.state(), GANG_S * SECOND_US) for name, case in cases.items()
    ]


def climbed(label: str, cases: Sequence[Case]) -> Case:
    """Return the case with the longest wait that changes of the worst case lead to."""

    def wait_us(case: Case) -> int:
        return waits_of(label, stream_of("", case)).longest_us

    rng = random.Random(SEED)  # noqa: S311 - a seeded workload, not a secret
    reached, best = max(((wait_us(case), case) for case in cases), key=lambda row: row[0])
    for _ in range(CHANGES):
        changed = change(rng, best)
        now = wait_us(changed)
        if now >= reached:
            reached, best = now, changed
    return best


def adversary_streams() -> list[JobStream]:
    """Return the random streams, and those that the adversary found."""
    cases = [drawn(random.Random(seed)) for seed in range(DRAWN)]  # noqa: S311 - as above
    climbs = [climbed(label, cases) for label in CLIMBED]
    rows = [stream_of(f"drawn {seed}", case) for seed, case in enumerate(cases)]
    return rows + [
        stream_of(f"against {label}", case) for label, case in zip(CLIMBED, climbs, strict=True)
    ]


# ---- waits ----


def waits_of(label: str, stream: JobStream) -> Waits:
    """Run a stream under a policy, and return the longest waits of its owed gangs."""
    policy, options = OPTIONS.get(label, (label, {}))
    start = stream.start
    rules = Rules(policy, options, start.rules.round_us, start.rules.lease_us)
    jobs = [replace(job, estimate_us=job.duration_us) for job in start.sim_jobs.values()]
    state = SimulationState(start.cluster, tuple(jobs), rules)
    run(state, SimulationResult(state.books, 0, 0), until_us=stream.until_us)
    return longest_waits(state)


def longest_waits(state: SimulationState) -> Waits:
    waiting = {job: waits_of_job(state, job) for job in state.sim_jobs}
    longest = first = 0
    for tenant in {job.tenant for job in state.sim_jobs.values()}:
        owed = owed_spans(state, tenant)
        own = [key for key, job in state.sim_jobs.items() if job.tenant == tenant]
        for job in own:
            if state.sim_jobs[job].gpus < 2:
                continue
            for span in waiting[job]:
                # From the end of each wait of another job that began before this one.
                free_us = max(
                    (
                        other.until_us
                        for key in own
                        if key != job
                        for other in waiting[key]
                        if (other.from_us, key) < (span.from_us, job)
                    ),
                    default=span.from_us,
                )
                for time in owed:
                    part = span.within(time)
                    longest = max(longest, part.length_us)
                    first = max(first, part.within(WaitSpan(free_us, span.until_us)).length_us)
    return Waits(longest, first)


def held_spans(state: SimulationState, jobs: Iterable[int]) -> dict[int, list[WaitSpan]]:
    rows = [(row.job, WaitSpan(row.start_us, row.end_us)) for row in state.books.leases]
    rows += [(row.job, WaitSpan(row.started_us, state.at_us)) for row in state.leases.values()]
    return {job: sorted(span for key, span in rows if key == job) for job in jobs}


def ends_us(state: SimulationState) -> dict[int, int]:
    return {row.job: row.end_us for row in state.books.jobs}


def waits_of_job(state: SimulationState, job: int) -> list[WaitSpan]:
    """Return when a job waits: from its submission and from the end of each lease."""
    from_us, rows = state.sim_jobs[job].submitted_us, []
    end_us = ends_us(state).get(job, state.at_us)
    for span in (*held_spans(state, (job,))[job], WaitSpan(end_us, end_us)):
        if span.from_us > from_us:
            rows.append(WaitSpan(from_us, span.from_us))
        from_us = span.until_us
    return rows


def owed_spans(state: SimulationState, tenant: int) -> list[WaitSpan]:
    """Return when a tenant has received less GPU-time than it deserves since the start."""
    quota = sum(row.gpus for row in state.entitle() if row.tenant == tenant)
    own = {key: job for key, job in state.sim_jobs.items() if job.tenant == tenant}
    ended, steps = ends_us(state), list[tuple[int, int, int]]()
    for key, spans in held_spans(state, own).items():
        job = own[key]
        steps.append((job.submitted_us, job.gpus, 0))
        steps.append((ended.get(key, state.at_us), -job.gpus, 0))
        for span in spans:
            steps += [(span.from_us, 0, job.gpus), (span.until_us, 0, -job.gpus)]
    spans, missing, demand, held, at_us = list[WaitSpan](), 0, 0, 0, 0
    for next_us, more_demand, more_held in sorted(steps):
        slope = min(demand, quota) - held
        now = missing + slope * (next_us - at_us)
        if next_us > at_us:
            spans += _owed(WaitSpan(at_us, next_us), missing, now)
        missing, at_us = now, next_us
        demand, held = demand + more_demand, held + more_held
    return joined(spans)


def _owed(span: WaitSpan, before: int, now: int) -> list[WaitSpan]:
    """Return the part of a span in which the missing GPU-time, linear in time, is positive."""
    if max(before, now) <= 0:
        return []
    if min(before, now) >= 0:
        return [span]
    zero_us = span.from_us + span.length_us * abs(before) // (abs(before) + abs(now))
    return [WaitSpan(zero_us, span.until_us) if now > 0 else WaitSpan(span.from_us, zero_us)]


def joined(spans: Sequence[WaitSpan]) -> list[WaitSpan]:
    rows: list[WaitSpan] = []
    for span in spans:
        if rows and rows[-1].until_us == span.from_us:
            rows[-1] = WaitSpan(rows[-1].from_us, span.until_us)
        else:
            rows.append(span)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.owed_waits")
    parser.add_argument("names", nargs="*", metavar="POLICY", help="all, or some of them")
    names = parser.parse_args().names or [*OPTIONS, *POLICIES]
    streams, gangs = adversary_streams(), gang_streams()
    print(about([*streams, *gangs]))
    print("| policy | owed gang | longest waiting | starving gangs | bound |")
    print("|---|---|---|---|---|", flush=True)
    for name in names:
        waits = [waits_of(name, row) for row in streams]
        figures = [
            max(row.longest_us for row in waits),
            max(row.first_us for row in waits),
            max(waits_of(name, row).longest_us for row in gangs),
        ]
        cells = " | ".join(f"{us // SECOND_US:,}" for us in figures)
        print(f"| {name} | {cells} | {BOUNDS.get(name, 'none')} |", flush=True)


def about(rows: Sequence[JobStream]) -> str:
    """Return how many tenants, rounds and how much load the streams have."""
    tenants = [len({job.tenant for job in row.start.sim_jobs.values()}) for row in rows]
    rounds = sum(row.until_us // row.start.rules.round_us for row in rows)
    loads = [
        sum(
            job.gpus * min(job.duration_us, max(0, row.until_us - job.submitted_us))
            for job in row.start.sim_jobs.values()
        )
        / (row.start.cluster.capacity * row.until_us)
        for row in rows
    ]
    return (
        f"{len(rows)} streams of {rounds:,} rounds, {min(tenants)} to {max(tenants)} tenants,"
        f" load {min(loads):.1f} to {max(loads):.1f}; seconds\n"
    )


if __name__ == "__main__":
    main()
