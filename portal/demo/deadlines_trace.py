"""The workload of the demo pool `deadlines`, drawn from a seed.

`portal/demo/data/deadlines_12h.csv.gz` contains `deadline_rows()` (a test compares them). Of every
three hours (three minutes of the demo), the first has little demand. In the second, demand exceeds
capacity; in the third, the backlog shrinks. So deadlines are promised, moved, refused, met and
missed while a reader watches. Every fifth job with a deadline stops by a metric, as in UniSched's
evaluation. It declares its maximum number of iterations instead of a duration.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SEED, HOURS, CYCLE_H = 20230508, 12, 3
COLUMNS = (
    *("trace_id", "tenant", "submit_s", "duration_s", "gpus", "profile", "estimate_s"),
    *("deadline_s", "values", "iterations", "stop_when"),
)
METRIC_EVERY = 5
CAP = (1.2, 1.6)  # Declared maximum over the true number of iterations; an iteration takes 1 s.

# Draws a job's deadlines from its duration, both in seconds, and the points for completing by each.
# The results are texts as in a trace; deadlines count from the submission.
DrawnDeadline = Callable[[random.Random, int], tuple[str, str]]


def _strict(rng: random.Random, duration_s: int) -> tuple[str, str]:
    """Return one deadline, after which the job has no value; one in eight is infeasible."""
    factor = rng.uniform(0.6, 0.9) if rng.randrange(8) == 0 else rng.uniform(1.3, 2.5)
    return str(round(duration_s * factor)), "100"


def _soft(rng: random.Random, duration_s: int) -> tuple[str, str]:
    """Return UniSched's steps: 100, 80, 50, 20 points until 1, 1.1, 1.2, 1.5 times the deadline."""
    tenth_s = round(duration_s * rng.uniform(0.12, 0.2))
    return "-".join(str(tenth_s * tenths) for tenths in (10, 11, 12, 15)), "100-80-50-20"


def _none(rng: random.Random, duration_s: int) -> tuple[str, str]:  # noqa: ARG001 - one shape
    return "", ""


@dataclass(frozen=True, slots=True)
class DeadlineTeam:
    """A tenant of the pool: its quota, its deadlines, and its jobs per hour of a cycle.

    `jobs`: submissions in the calm, the busy and the last hour; `profile`: their job type;
    `stop_when`: the metric by which some of them end.
    """

    tenant: str
    profile: str
    quota: int
    deadline: DrawnDeadline
    jobs: tuple[int, int, int]
    gpus: tuple[int, ...]
    hours: tuple[float, float]
    stop_when: str = ""


TEAMS = (
    DeadlineTeam(
        "6214e9", "nightly", 12, _strict, (2, 5, 1), (2, 4, 6, 8), (0.5, 1.5), "accuracy>=0.93"
    ),
    DeadlineTeam("7f04ca", "finetune", 8, _soft, (1, 4, 1), (2, 4, 8), (0.5, 1.2), "loss<=0.25"),
    DeadlineTeam("ee9e8c", "sweep", 6, _none, (4, 3, 4), (1, 2, 4), (0.3, 1.0)),
    DeadlineTeam(
        "11cb48", "evaluate", 6, _strict, (1, 4, 1), (1, 2, 4, 6), (0.3, 1.0), "accuracy>=0.9"
    ),
)


def deadline_rows(
    seed: int = SEED,
) -> Iterator[tuple[int | str, ...]]:
    """Draw the rows of the trace, in order of (submission, id); see `COLUMNS`.

    Estimates are off by up to 10 %; a job that stops by a metric has none.
    """
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    drawn = []
    for hour in range(HOURS):
        for team in TEAMS:
            for _ in range(team.jobs[hour % CYCLE_H]):
                submit_s = hour * 3600 + rng.randrange(3600)
                duration_s = round(rng.uniform(*team.hours) * 3600)
                gpus = rng.choice(team.gpus)
                estimate_s = round(duration_s * rng.uniform(0.9, 1.1))
                asked = team.deadline(rng, duration_s)
                work = (duration_s, gpus, team.profile, estimate_s)
                drawn.append((team, submit_s, work, asked))
    drawn.sort(key=lambda row: (row[1], row[0].tenant))
    dated = 0
    for trace_id, (team, submit_s, work, asked) in enumerate(drawn, start=1):
        dated += bool(asked[0])
        duration_s, gpus, profile, estimate_s = work
        said: tuple[int | str, ...] = (estimate_s, *asked, "", "")
        if asked[0] and dated % METRIC_EVERY == 0:
            said = ("", *asked, round(duration_s * rng.uniform(*CAP)), team.stop_when)
        yield (trace_id, team.tenant, submit_s, duration_s, gpus, profile, *said)
