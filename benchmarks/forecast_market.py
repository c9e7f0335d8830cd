"""Benchmark of a price forecast under `market`: the demo's pool, from the middle of its trace."""

import time
from random import Random

from evenshare_core.cli.collector import rare_collections
from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.utilities import read_utility
from evenshare_core.simulation.present import PresentState, Start, Work
from evenshare_core.simulation.simulator import SimulationResult, run
from evenshare_core.simulation.starts import RUNS, EndedJob, Futures, History
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import HOUR_US, SECOND_US
from portal.demo.market_trace import HOURS, TEAMS, market_rows

POLICY, GPU_TYPE, NODES, GPUS = "market", "a100", 6, 4
BASE_MICRO, THETA_MILLI = 500_000, 2000
LEASE_US, AHEAD_US, FROM_US = 1200 * SECOND_US, 24 * HOUR_US, 8 * HOUR_US
CLOCKS = ((600, RUNS), (10, 3))  # (seconds between rounds, number of runs)


def jobs() -> tuple[SimJob, ...]:
    """Return the demo's trace; jobs have an estimate if they have a utility."""
    tenants = {team.tenant: number for number, team in enumerate(TEAMS, start=1)}
    rows = []
    for job, tenant, submit_s, duration_s, gpus, text in market_rows():
        duration_us = duration_s * SECOND_US
        rows.append(
            SimJob(
                job, tenants[tenant], gpus, submit_s * SECOND_US, duration_us,
                estimate_us=duration_us if text else None,
                utility=read_utility(job, text) if text else None,
            )
        )  # fmt: skip # rows of what belongs together
    return tuple(rows)


def middle(round_s: int) -> tuple[Start, History]:
    """Return the pool's state and history at `FROM_US` of its trace, while demand is high."""
    nodes = tuple(Node(number, GPU_TYPE, GPUS) for number in range(1, NODES + 1))
    quotas = tuple(
        Entitlement(number, GPU_TYPE, team.quota) for number, team in enumerate(TEAMS, start=1)
    )
    cluster = Cluster(nodes, quotas, {GPU_TYPE: (BASE_MICRO, THETA_MILLI)})
    rules = Rules(POLICY, {"horizon_s": 3600}, round_us=round_s * SECOND_US, lease_us=LEASE_US)
    state = SimulationState(cluster, jobs(), rules)
    run(state, SimulationResult(state.books, 0, 0), until_us=FROM_US - 1)
    state.advance(FROM_US)
    done: dict[int, int] = {}
    for row in state.books.leases:
        done[row.job] = done.get(row.job, 0) + row.end_us - row.start_us
    work = {job: Work(0, done.get(job, 0), 0, one.leases) for job, one in state.runs.items()}
    return Start(state.snapshot(), work), _history(state)


def _history(state: SimulationState) -> History:
    """Return the jobs that have ended, and the arrivals so far."""
    by_id = state.sim_jobs
    ended = tuple(
        EndedJob(by_id[row.job].tenant, row.useful_us, by_id[row.job].estimate_us)
        for row in state.books.jobs
        if row.useful_us
    )
    came = [job for job in by_id.values() if job.submitted_us <= FROM_US]
    arrivals = tuple(
        Job(job.id, job.tenant, job.gpus, job.submitted_us, estimate_us=job.estimate_us)
        for job in came
    )
    utilities = {job.id: job.utility for job in came if job.utility is not None}
    return History(ended, arrivals, FROM_US, utilities=utilities)


def ahead(start: Start, history: History, runs: int, *, fast: bool) -> tuple[float, list[str], int]:
    """Return CPU seconds of `runs` runs, hashes of their books, and the number of rounds."""
    futures, hashes, rounds = Futures(start, history, Random(1)), [], 0  # noqa: S311 - draws
    cpu_s = 0.0
    until_us = start.snapshot.at_us + AHEAD_US
    for _ in range(runs):
        state = PresentState(futures.draw(until_us))
        result = SimulationResult(state.books, 0, state.at_us)
        with rare_collections():
            began = time.process_time()
            run(state, result, until_us=until_us, fast_forward=fast)
            cpu_s += time.process_time() - began
        hashes.append(state.books.sha256())
        rounds += result.rounds
    return cpu_s, hashes, rounds


def main() -> None:
    print(
        f"{NODES} nodes x {GPUS}, {len(jobs())} jobs in {HOURS} hours; CPU time of 24 hours ahead"
    )
    for round_s, runs in CLOCKS:
        start, history = middle(round_s)
        asked_s, asked, rounds = ahead(start, history, runs, fast=False)
        kept_s, kept, _ = ahead(start, history, runs, fast=True)
        if kept != asked:
            raise SystemExit("the session changed the result")
        print(
            f"a round each {round_s:>3} s  {rounds // runs:>6,} rounds a run"
            f"  every round asked {asked_s / runs:7.3f} s  session {kept_s / runs:6.3f} s"
            f"  {asked_s / kept_s:5.1f}x  ({RUNS} runs: {kept_s / runs * RUNS:.1f} s)"
        )


if __name__ == "__main__":
    main()
