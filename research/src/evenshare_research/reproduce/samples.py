"""Runs policies on sampled weeks of Philly and on drawn workloads, with rounds every 10 s.

A week of Philly has every fourth job only, so that slow policies fit into the time. A drawn
workload has a shape and a seed. Both have the load `philly.LOAD` on nodes of 8 GPUs.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from math import cos, pi
from typing import Any, NamedTuple

from evenshare_core.simulation.scenario import Scenario, infinite
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.workloads import (
    SimJob,
    Workload,
    make_nodes,
    noisy_estimates,
    synthetic,
)
from evenshare_core.units import HOUR_US, SECOND_US
from evenshare_research.reproduce.philly import (
    COLD_US,
    DAY_US,
    ERROR,
    FLOOR,
    LEASE_US,
    NODE_GPUS,
    ORIGIN,
    SEED,
    TRACE,
    figures_row,
    nodes_for,
    simulated_row,
    slice_of,
)
from evenshare_research.reproduce.runs import KeptRun

ROUND_US = 10 * SECOND_US  # the default of a pool
WEEK_DAYS, EVERY = 7, 4
DRAWN_DAYS, DRAWN_JOBS = 2, 1000
# The tenants' shares of a drawn workload's jobs.
TENANT_WEIGHTS = (8, 4, 2, 1, 1)
SWEEP_JOBS = 24
GANGS, GANG_WEIGHTS = (1, 2, 4, 8, 16), (30, 10, 25, 30, 5)
SHAPES = ("diurnal", "sweeps", "gangs")
# Approximate CPU seconds of a week, by policy.
ABOUT_S = {FLOOR: 1, "evenshare": 6, "ltgf": 3, "themis": 25, "tiresias_l": 3, "gandiva_fair": 40}


class Sample(NamedTuple):
    """A week of Philly, named by its first day, or a drawn workload, named by its shape."""

    kind: str
    seed: int = 0

    @property
    def is_week(self) -> bool:
        return self.kind not in SHAPES

    def __str__(self) -> str:
        return self.kind if self.is_week else f"{self.kind} {self.seed}"


def sample_run(sample: Sample, policy: str, options: dict[str, Any], name: str) -> KeptRun:
    """Return a run, with its approximate time; `name` is for messages."""
    about_s = ABOUT_S.get(policy, 3) // (1 if sample.is_week else 4)
    return KeptRun.of(
        f"{__name__}:run", f"{sample}: {name}", max(1, about_s),
        kind=sample.kind, seed=sample.seed, policy=policy, options=options,
    )  # fmt: skip # rows of what belongs together


def run(*, kind: str, seed: int, policy: str, options: dict[str, Any]) -> dict[str, Any]:
    """Simulate a sample. Without a policy, the cluster is endless."""
    sample = Sample(kind, seed)
    days = WEEK_DAYS if sample.is_week else DRAWN_DAYS
    workload = week(kind) if sample.is_week else drawn(kind, seed)
    nodes = nodes_for(workload, days)
    scenario = Scenario.make(workload, make_nodes({"gpu": nodes}, NODE_GPUS), {}, {}, NODE_GPUS)
    if not policy:
        return figures_row(infinite(scenario, Rules(round_us=ROUND_US)).figures, nodes)
    rules = Rules(policy, options, ROUND_US, LEASE_US, cold_us=COLD_US)
    return simulated_row(scenario.cluster, workload.jobs, rules)


def week(start: str) -> Workload:
    """Return every fourth job of a week of Philly, with estimates wrong by up to `ERROR`."""
    with TRACE.open("rb") as file:
        lines = list(trace_lines(file)[1])[::EVERY]
    return _estimated(slice_of(lines, ORIGIN, date.fromisoformat(start), WEEK_DAYS))


def drawn(shape: str, seed: int, jobs: int = DRAWN_JOBS) -> Workload:
    """Draw a workload of two days.

    `diurnal`: ten times as many jobs arrive at noon as at midnight. `sweeps`: half of
    the jobs need one GPU and arrive 24 at a time, of one tenant. `gangs`: most jobs need several
    GPUs.

    Raises:
        ValueError: the shape is unknown.
    """
    hours = DRAWN_DAYS * DAY_US // HOUR_US
    base = synthetic(seed=seed, jobs=jobs, tenants=len(TENANT_WEIGHTS), hours=hours)
    rng = random.Random(f"{shape} {seed}")  # noqa: S311 - a workload, not a secret
    tenants = rng.choices(range(1, len(TENANT_WEIGHTS) + 1), TENANT_WEIGHTS, k=jobs)
    rows = [replace(job, tenant=tenant) for job, tenant in zip(base.jobs, tenants, strict=True)]
    if shape == "diurnal":
        rows = [replace(job, submitted_us=_by_day(rng)) for job in rows]
    elif shape == "sweeps":
        rows = _with_sweeps(rows, rng)
    elif shape == "gangs":
        rows = [replace(job, gpus=rng.choices(GANGS, GANG_WEIGHTS)[0]) for job in rows]
    else:
        raise ValueError(f"no shape is named {shape!r}; there are {', '.join(SHAPES)}")
    rows.sort(key=lambda job: (job.submitted_us, job.id))
    numbered = tuple(replace(job, id=index) for index, job in enumerate(rows, 1))
    return _estimated(replace(base, jobs=numbered))


def _by_day(rng: random.Random) -> int:
    """Draw a time of submission by rejection: the rate follows the hour of the day."""
    while True:
        at_us = rng.randrange(DRAWN_DAYS * DAY_US)
        if rng.random() * 10 < 5.5 - 4.5 * cos(2 * pi * at_us / DAY_US):
            return at_us // SECOND_US * SECOND_US


def _with_sweeps(rows: Sequence[SimJob], rng: random.Random) -> list[SimJob]:
    """Turn every second group of 24 jobs into a sweep: one tenant, one time, similar lengths."""
    swept: list[SimJob] = []
    for first in range(0, len(rows), SWEEP_JOBS):
        group = list(rows[first : first + SWEEP_JOBS])
        if first // SWEEP_JOBS % 2:
            head = group[0]
            group = [
                replace(
                    job,
                    tenant=head.tenant,
                    gpus=1,
                    submitted_us=head.submitted_us,
                    duration_us=int(head.duration_us * rng.uniform(0.8, 1.2)),
                )
                for job in group
            ]
        swept += group
    return swept


def _estimated(workload: Workload) -> Workload:
    return replace(workload, jobs=noisy_estimates(workload.jobs, SEED, ERROR))
