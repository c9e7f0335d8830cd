"""The workload of the demo pool `mixed`, drawn from a seed: models of teams, and submissions.

`portal/demo/data/mixed_24h.csv.gz` contains `mixed_rows()` (a test compares them). Gang sizes are
those of the Philly trace except for the largest. Durations are log-normal, in seconds of work on
the slowest GPU type. Demand exceeds the 50 GPUs, so the policy always has a choice.

Under `gandiva_fair`, tenants trade GPU types. All models of a team gain equally from a fast GPU;
models of different teams do not. A team leaves every few hours, which ends its trades.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

SEED, HOURS = 20200427, 24
JOBS_AN_HOUR, BACKLOG = 24, 48
# A team leaves and returns every CYCLE_H hours; its jobs are short enough to end before it returns.
CYCLE_H, SHORT_S = 3, 5400
COLUMNS = ("trace_id", "tenant", "submit_s", "duration_s", "gpus", "profile")


@dataclass(frozen=True, slots=True)
class Team:
    """A tenant of the mixed pool: its weights of demand and quota, and its models.

    `stays_h`: it submits jobs in the first `stays_h` of every `CYCLE_H` hours.
    """

    tenant: str
    demand: int
    quota: int
    models: tuple[str, ...]
    stays_h: int = CYCLE_H

    def is_here(self, submit_s: int) -> bool:
        """Return whether the team submits jobs at an instant of the trace."""
        return submit_s // 3600 % CYCLE_H < self.stays_h


# The first teams gain least from a fast GPU. The second team does not trade: its two models differ
# too much for one value of a fast GPU.
TEAMS = (
    Team("6214e9", 3, 3, ("vae",)),
    Team("ee9e8c", 3, 2, ("transformer-16", "a3c")),
    Team("11cb48", 3, 2, ("lstm", "gru")),
    Team("b436b2", 9, 2, ("cyclegan",), stays_h=1),
    Team("7f04ca", 4, 3, ("resnext-50",)),
)


def mixed_rows(seed: int = SEED) -> Iterator[tuple[int, str, int, int, int, str]]:
    """Draw the rows of the trace, in order of (submission, id); see `COLUMNS`."""
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    instants = [0] * BACKLOG + sorted(
        rng.randrange(1, HOURS * 3600) for _ in range(JOBS_AN_HOUR * HOURS)
    )
    for trace_id, submit_s in enumerate(instants, start=1):
        weights = [team.demand if team.is_here(submit_s) else 0 for team in TEAMS]
        team = rng.choices(TEAMS, weights)[0]
        gpus = rng.choices((1, 2, 4, 8), (60, 22, 15, 3))[0]
        most_s = 24 * 3600 if team.stays_h == CYCLE_H else SHORT_S
        duration_s = min(max(600, int(rng.lognormvariate(9.1, 0.9))), most_s)
        yield trace_id, team.tenant, submit_s, duration_s, gpus, rng.choice(team.models)
