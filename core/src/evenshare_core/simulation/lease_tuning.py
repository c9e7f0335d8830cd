"""Comparison of lease lengths: runs of the same jobs with leases of several lengths.

| LTGF | here |
|---|---|
| average JCT | `LengthFigures.avg_jct_s` |
| preemption overhead (6.4) | `overhead_share`: cold starts and checkpoints / GPU-time of leases |
| sharing loss (6.2) | `sharing_loss`: jobs that did all their work with rho < 0.95 / such jobs |

With short leases, tenants below their share start sooner, at the cost of more checkpoints and cold
starts. Long leases have the opposite effect. The paper has the shortest JCT at 1,200 s and takes
900 s, for fairness. `recommend_length` therefore picks the fairest of the lengths that are nearly
as fast as the fastest.

Source: Astraea-LTGF 5.1.3, 6.2.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evenshare_core.domain.reason_texts import NO_FAIR_SHARE, NONE_FINISHED
from evenshare_core.simulation.books import Books
from evenshare_core.simulation.figures import Figures, figures_of
from evenshare_core.simulation.scenario import Scenario, run_policy
from evenshare_core.simulation.state import Rules
from evenshare_core.units import SECOND_US

LENGTHS_S = (300, 600, 900, 1200, 1800, 3600)
WITHIN_PERCENT = 2  # percent of the shortest mean completion time


class NoRecommendationError(Exception):
    """No lease length can be recommended; the message gives the reason and a remedy."""


@dataclass(frozen=True, slots=True)
class LengthFigures:
    """Figures of a run with leases of `lease_s` seconds; shares are from 0 to 1.

    `finished` jobs did all their work; `avg_jct_s` (seconds) and `sharing_loss` are over these.
    `never_ending` jobs could not finish. A figure is None if it has no data.
    """

    lease_s: int
    finished: int
    avg_jct_s: float | None
    overhead_share: float | None
    sharing_loss: float | None
    preemptions: int = 0
    never_ending: int = 0


def run_length(
    scenario: Scenario, rules: Rules, *, progress: Callable[[int], None] | None = None
) -> LengthFigures:
    """Run a scenario with the lease length of `rules`, and return its figures.

    `progress`: as `run_policy`.

    Raises:
        ConservationError, InvariantViolation: as `simulate`.
    """
    outcome = run_policy(scenario, rules, progress=progress)
    figures: Figures = figures_of(scenario.cluster, scenario.workload.jobs, outcome.books)
    gangs = {job.id: job.gpus for job in scenario.workload.jobs}
    return LengthFigures(
        rules.lease_us // SECOND_US,
        len(figures.jobs),
        figures.mean("jct_s"),
        overhead_share(outcome.books, gangs),
        figures.sharing_loss,
        figures.preemptions,
        len(outcome.stranded),
    )


def overhead_share(books: Books, gangs: dict[int, int]) -> float | None:
    """Return the share of the leases' GPU-time without useful work; None without leases.

    `gangs`: GPUs by job.
    """
    lost = sum(row.overhead_us * gangs[row.job] for row in books.leases)
    held = sum((row.end_us - row.start_us) * gangs[row.job] for row in books.leases)
    return lost / held if held else None


def recommend_length(rows: Sequence[LengthFigures]) -> LengthFigures:
    """Return the length with the least sharing loss among the nearly fastest ones.

    Nearly fastest: the mean completion time is within `WITHIN_PERCENT` of the shortest, inclusive.
    Ties go to the shorter length. Lengths at which no job finished, or none had a fair share, are
    left out.

    Raises:
        NoRecommendationError: no length is left.

    Source: Astraea-LTGF 5.1.3.
    """
    known = [
        (row.avg_jct_s, row.sharing_loss, row)
        for row in rows
        if row.avg_jct_s is not None and row.sharing_loss is not None
    ]
    if not known:
        if any(row.finished for row in rows):
            raise NoRecommendationError(NO_FAIR_SHARE)
        raise NoRecommendationError(NONE_FINISHED)
    least_s = min(jct_s for jct_s, _, _ in known)
    near = [
        (loss, row.lease_s, index)
        for index, (jct_s, loss, row) in enumerate(known)
        if jct_s * 100 <= least_s * (100 + WITHIN_PERCENT)
    ]
    return known[min(near)[2]][2]
