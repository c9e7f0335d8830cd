"""The throughput of each tenant's job types, for a round's certificate."""

import numpy as np

from evenshare_core.fairness import properties
from evenshare_core.fairness.allocations import Allocation
from evenshare_core.fairness.certificate import JobTypeResult, figure


def job_type_results(
    judged: Allocation, got: Allocation, *, has_ideals: bool
) -> tuple[JobTypeResult, ...]:
    """Return a result for every row, in the order of (tenant, profile).

    `judged` has the shares to which promises apply, `got` the allocated whole GPUs.
    """
    if not judged.rows:
        return ()
    held = properties.throughputs(got.speedups, got.shares)
    each, alone = properties.sharing_incentive(
        judged.speedups, judged.shares, judged.capacity, judged.weights, judged.demand
    )
    gain = properties.envy_matrix(judged.speedups, judged.shares, judged.weights, judged.demand)
    np.fill_diagonal(gain, -np.inf)
    best = gain.argmax(axis=1)
    several = len(judged.rows) > 1
    return tuple(
        JobTypeResult(
            tenant=tenant,
            profile=profile,
            weight=figure(judged.weights[place]),
            held=figure(held[place]),
            alone=figure(alone[place]),
            ideal=figure(each[place]) if has_ideals else None,
            best_other=figure(each[place] + gain[place, best[place]]) if several else None,
            other=judged.rows[best[place]][0] if several else None,
            capped=bool(judged.capped[place]),
        )
        for place, (tenant, profile) in enumerate(judged.rows)
    )
