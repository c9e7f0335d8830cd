"""A seeded history in which start estimates are made as in a live pool, and checked later.

An estimate uses no knowledge of the future. It gets a snapshot of the state, the durations of ended
jobs, submissions, and the outcomes of past estimates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from evenshare_core.domain.jobs import Job
from evenshare_core.simulation.present import Start, Work
from evenshare_core.simulation.simulator import SimulationResult, run
from evenshare_core.simulation.start_correction import Correction, PastEstimate, correction_by
from evenshare_core.simulation.starts import (
    EndedJob,
    EstimatedStart,
    Forecast,
    History,
    NoEstimate,
    estimate_starts,
)
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import HOUR_US

SPAN_US = 24 * HOUR_US


@dataclass
class Replay:
    """A pool that is simulated while estimates are made from time to time."""

    cluster: Cluster
    jobs: Sequence[SimJob]
    rules: Rules
    seed: int = 1
    horizon_us: int = 12 * HOUR_US
    learns: bool = True
    # (time of the estimate, job, estimate)
    made: list[tuple[int, int, EstimatedStart]] = field(default_factory=list)
    none: list[NoEstimate] = field(default_factory=list)

    def play(self, *, every_us: int, until_us: int) -> None:
        """Make estimates at equal steps.

        A job's first estimate is kept, and later ones each time its wait has doubled.
        """
        self.state = SimulationState(self.cluster, tuple(self.jobs), self.rules)
        kept: dict[int, int] = {}
        at_us = 0
        while at_us + every_us < until_us:
            at_us += every_us
            self._go_on(at_us)
            forecast = self._estimate(at_us)
            for job, estimate in forecast.starts.items():
                waited_us = at_us - self.state.sim_jobs[job].submitted_us
                if waited_us < 2 * kept.get(job, 0):
                    continue
                kept[job] = waited_us
                if estimate.reason is not None:
                    self.none.append(estimate.reason)
                else:
                    self.made.append((at_us, job, estimate))
        self._go_on(until_us)

    def covered(self, level: str) -> Counter[str]:
        """Count the estimates whose p50 or p90 has passed, and the starts before each."""
        counts: Counter[str] = Counter()
        starts = self._starts()
        for at_us, job, estimate in self.made:
            due_us = estimate.p50_us if level == "p50" else estimate.p90_us
            if due_us is None or due_us > self.state.at_us:
                continue
            start_us = first_start(starts, job, at_us)
            counts["all"] += 1
            counts["by"] += start_us is not None and start_us <= due_us
            counts["before"] += start_us is not None and start_us < due_us
        return counts

    def _go_on(self, at_us: int) -> None:
        result = SimulationResult(self.state.books, 0, self.state.at_us)
        self.state.joined[:] = sorted(self.state.queue)  # a new session knows no job yet
        run(self.state, result, until_us=at_us - 1)
        self.state.advance(at_us)

    def _starts(self) -> dict[int, list[int]]:
        """Return all starts so far, by job."""
        starts: dict[int, list[int]] = {}
        for row in self.state.books.leases:
            starts.setdefault(row.job, []).append(row.start_us)
        for lease in self.state.leases.values():
            starts.setdefault(lease.job, []).append(lease.started_us)
        return starts

    def _correction(self) -> Correction:
        """Return the correction from the known results of past estimates; no job is cancelled."""
        if not self.learns:
            return Correction()
        now_us, starts, past = self.state.at_us, self._starts(), []
        for at_us, job, one in reversed(self.made):
            start_us, p50_us = first_start(starts, job, at_us), one.raw_p50_us
            assert p50_us is not None, "what is made has one"
            past.append(
                PastEstimate(
                    p50_us - at_us,
                    None if one.raw_p90_us is None else one.raw_p90_us - at_us,
                    None if start_us is None else start_us - at_us,
                    now_us - at_us,
                )
            )
        return correction_by(past, self.rules.lease_us)

    def _estimate(self, at_us: int) -> Forecast:
        state = self.state
        done: dict[int, int] = {}
        for row in state.books.leases:
            done[row.job] = done.get(row.job, 0) + row.end_us - row.start_us
        work = {job: Work(0, done.get(job, 0), 0, one.leases) for job, one in state.runs.items()}
        by_id = state.sim_jobs
        ended = tuple(
            EndedJob(by_id[row.job].tenant, row.useful_us, by_id[row.job].estimate_us)
            for row in state.books.jobs[-2000:]
            if row.state != "cancelled" and row.useful_us
        )
        span_us = min(SPAN_US, at_us)
        arrivals = tuple(
            Job(job.id, job.tenant, job.gpus, job.submitted_us, estimate_us=job.estimate_us)
            for job in self.jobs
            if at_us - span_us < job.submitted_us <= at_us
        )
        return estimate_starts(
            Start(state.snapshot(), work),
            History(ended, arrivals, span_us),
            until_us=at_us + self.horizon_us,
            rng=Random(f"{self.seed} {at_us}"),  # noqa: S311 - draws of a test
            correction=self._correction(),
        )


def first_start(starts: Mapping[int, list[int]], job: int, after_us: int) -> int | None:
    """Return the first start of a job at or after an instant, or None."""
    return min((at_us for at_us in starts.get(job, ()) if at_us >= after_us), default=None)
