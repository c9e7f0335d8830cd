"""Which length of leases suits a pool: runs of the same jobs at several lengths, beside each other.

| LTGF | here |
|---|---|
| average JCT | `LengthFigures.avg_jct_s` |
| preemption overhead (6.4) | `overhead_share`: cold starts and checkpoints / GPU-time of leases |
| sharing loss (6.2) | `sharing_loss`: jobs that did all their work with rho < 0.95 / such jobs |

Short leases let those below their share in sooner and cost more checkpoints and cold starts; long
ones the other way round. The paper has the least JCT at 1,200 s and takes 900 s, for fairness. So
`recommend_length` looks for fairness among the lengths that are nearly as fast as the fastest.

Source: Astraea-LTGF 5.1.3, 6.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evenshare_core.simulation.books import Books
from evenshare_core.simulation.figures import Figures, figures_of
from evenshare_core.simulation.scenario import Scenario, run_policy
from evenshare_core.simulation.state import Rules
from evenshare_core.units import SECOND_US

LENGTHS_S = (300, 600, 900, 1200, 1800, 3600)
WITHIN_PERCENT = 2  # of the least mean completion time


class NoRecommendationError(Exception):
    """No length can be recommended; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class LengthFigures:
    """What a run with leases of `lease_s` seconds came to; shares are of 1, None: nothing to count.

    `finished` jobs did all their work, of those are `avg_jct_s` (seconds) and `sharing_loss`;
    `never_ending` jobs could not.
    """

    lease_s: int
    finished: int
    avg_jct_s: float | None
    overhead_share: float | None
    sharing_loss: float | None
    preemptions: int = 0
    never_ending: int = 0


def run_length(scenario: Scenario, rules: Rules) -> LengthFigures:
    """Run a scenario with the lease length of `rules`, and return what it came to.

    Raises:
        ConservationError, InvariantViolation: as `simulate`.
    """
    outcome = run_policy(scenario, rules)
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
    """Return which share of the leases' GPU-time was no useful work; None without leases.

    `gangs`: GPUs by job.
    """
    lost = sum(row.overhead_us * gangs[row.job] for row in books.leases)
    held = sum((row.end_us - row.start_us) * gangs[row.job] for row in books.leases)
    return lost / held if held else None


def recommend_length(rows: Sequence[LengthFigures]) -> LengthFigures:
    """Return the length of least sharing loss whose mean completion time is nearly the least.

    Nearly is within `WITHIN_PERCENT`, that included. Of equal losses the shorter length. A length
    at which no job finished, or none had a fair share to lose, is left out.

    Raises:
        NoRecommendationError: that leaves none.

    Source: Astraea-LTGF 5.1.3.
    """
    known = [
        (row.avg_jct_s, row.sharing_loss, row)
        for row in rows
        if row.avg_jct_s is not None and row.sharing_loss is not None
    ]
    if not known:
        if any(row.finished for row in rows):
            raise NoRecommendationError(
                "no job that finished had a fair share of GPUs, so none can lose by sharing;"
                " give its tenants quotas"
            )
        raise NoRecommendationError(
            "no job did all its work at any of these lengths; take more days, or look why jobs"
            " of this pool are cancelled or never start"
        )
    least_s = min(jct_s for jct_s, _, _ in known)
    near = [
        (loss, row.lease_s, index)
        for index, (jct_s, loss, row) in enumerate(known)
        if jct_s * 100 <= least_s * (100 + WITHIN_PERCENT)
    ]
    return known[min(near)[2]][2]
