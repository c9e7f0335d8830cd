"""The workload of the demo pool `mixed`, drawn from a seed: who trains which model, and when.

`portal/demo/data/mixed_24h.csv.gz` is what `mixed_rows()` draws (a test compares them).
Gangs are drawn as in the Philly trace but for the largest; durations are log-normal, in seconds of
work on the slowest GPU type. The rate is above what 50 GPUs can do, so there is always a choice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

SEED, HOURS = 20200427, 24
JOBS_AN_HOUR, BACKLOG = 24, 48
COLUMNS = ("trace_id", "tenant", "submit_s", "duration_s", "gpus", "profile")


@dataclass(frozen=True, slots=True)
class Team:
    """A tenant of the mixed pool: its parts of demand and of quotas, and its models."""

    tenant: str
    demand: int
    quota: int
    models: tuple[str, ...]


# From those whose models gain least from a fast GPU to those that gain most.
TEAMS = (
    Team("6214e9", 3, 3, ("vae", "superresolution")),
    Team("ee9e8c", 3, 2, ("transformer-16", "a3c")),
    Team("11cb48", 3, 2, ("lstm", "gru")),
    Team("b436b2", 2, 2, ("dcgan", "cyclegan")),
    Team("7f04ca", 4, 3, ("resnet-50", "resnext-50")),
)


def mixed_rows(seed: int = SEED) -> Iterator[tuple[int, str, int, int, int, str]]:
    """Draw the rows of the trace, in order of (submission, id); see `COLUMNS`."""
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    instants = [0] * BACKLOG + sorted(
        rng.randrange(1, HOURS * 3600) for _ in range(JOBS_AN_HOUR * HOURS)
    )
    weights = [team.demand for team in TEAMS]
    for trace_id, submit_s in enumerate(instants, start=1):
        team = rng.choices(TEAMS, weights)[0]
        gpus = rng.choices((1, 2, 4, 8), (60, 22, 15, 3))[0]
        duration_s = min(max(600, int(rng.lognormvariate(9.1, 0.9))), 24 * 3600)
        yield trace_id, team.tenant, submit_s, duration_s, gpus, rng.choice(team.models)
