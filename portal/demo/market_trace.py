"""The workload of the demo pool `market`, drawn from a seed.

`portal/demo/data/market_12h.csv.gz` contains `market_rows()` (a test compares them). Of every three
hours (three minutes of the demo), the first has little demand. In the second, two teams are in a
hurry; in the third, the backlog shrinks. So the price rises and falls, and patient jobs are refused
in between and see the price that they needed.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SEED, HOURS, CYCLE_H = 20220502, 12, 3
COLUMNS = ("trace_id", "tenant", "submit_s", "duration_s", "gpus", "utility")


# Draws a job's utility, as a trace writes it, from its GPU-hours of work and its duration in hours.
DrawnValue = Callable[[random.Random, float, float], str]


def _patient(rng: random.Random, gpu_h: float, hours: float) -> str:  # noqa: ARG001 - one shape
    """Return a low bid per GPU-hour, whenever the job ends. The job waits for a low price."""
    return f"bid per_gpu_hour={rng.choice(('0.3', '0.5', '0.8'))}"


def _hurried(rng: random.Random, gpu_h: float, hours: float) -> str:
    """Return a high value for an urgent job: it falls every hour, to zero after six hours."""
    at_once = gpu_h * rng.uniform(1.2, 2.4) / (1 - hours / 6)
    return f"linear k=-{at_once / 6:.3f} g={at_once:.2f}"


def _dated(rng: random.Random, gpu_h: float, hours: float) -> str:
    """Return a utility that falls with the square of the time: a quarter after twice the time."""
    return f"convex e={hours * (gpu_h * rng.uniform(1.0, 2.0)) ** 0.5:.3f} kappa=2"


def _silent(rng: random.Random, gpu_h: float, hours: float) -> str:  # noqa: ARG001 - one shape
    """Return no bid: the job runs on its own tenant's quota, or for the base price."""
    return ""


@dataclass(frozen=True, slots=True)
class MarketTeam:
    """A tenant of the pool: its quota, the value of its jobs, and its jobs per hour of a cycle.

    `jobs`: mean submissions in the calm, the busy and the last hour.
    """

    tenant: str
    quota: int
    value: DrawnValue
    jobs: tuple[int, int, int]
    gpus: tuple[int, ...]
    hours: tuple[float, float]


# The first team has the largest quota, uses little of it, and lends; the second has little.
TEAMS = (
    MarketTeam("6214e9", 12, _silent, (2, 1, 4), (1, 2), (0.3, 1.0)),
    MarketTeam("7f04ca", 2, _patient, (4, 2, 2), (1, 2), (0.5, 1.5)),
    MarketTeam("ee9e8c", 5, _hurried, (1, 6, 0), (2, 4), (0.5, 1.2)),
    MarketTeam("11cb48", 5, _dated, (1, 5, 1), (1, 2, 4), (0.5, 1.5)),
)


def market_rows(seed: int = SEED) -> Iterator[tuple[int, str, int, int, int, str]]:
    """Draw the rows of the trace, in order of (submission, id); see `COLUMNS`."""
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    drawn = []
    for hour in range(HOURS):
        for team in TEAMS:
            for _ in range(team.jobs[hour % CYCLE_H]):
                submit_s = hour * 3600 + rng.randrange(3600)
                hours = rng.uniform(*team.hours)
                gpus = rng.choice(team.gpus)
                row = (team.tenant, submit_s, round(hours * 3600), gpus)
                drawn.append((*row, team.value(rng, gpus * hours, hours)))
    drawn.sort(key=lambda row: (row[1], row[0]))
    for trace_id, (tenant, submit_s, duration_s, gpus, utility) in enumerate(drawn, start=1):
        yield trace_id, tenant, submit_s, duration_s, gpus, utility
