"""Shares that need no solver: the equal split, and the most efficient split without caps."""

import numpy as np

from evenshare_core.formulations.problems import Array
from evenshare_core.formulations.programs import Efficiency, SolverResult


def equal_split(speedups: Array, capacity: Array, weights: Array, caps: Array) -> Array:
    """Return each tenant's part of each GPU type by weight; shape n x k.

    A type is split among the tenants that can run on it. A tenant whose cap is below its part gets
    the same mix, scaled down to the cap, and the rest is split again.

    Source: max-min fairness as in OEF, 2.3.3; the handling of zero speedups and caps is ours.
    """
    shares = np.zeros_like(speedups)
    open_ = np.ones(len(weights), dtype=bool)
    free = capacity.astype(np.float64)
    while open_.any():
        claims = np.where((speedups > 0) & open_[:, None], weights[:, None], 0.0)
        whole = claims.sum(axis=0)
        parts = claims * np.divide(free, whole, out=np.zeros_like(free), where=whole > 0)
        sums = parts.sum(axis=1)
        over = open_ & (sums > caps)
        if not over.any():
            return np.asarray(np.where(open_[:, None], parts, shares))
        # Tightest caps first, because the other caps may be met by the new split of the rest.
        shares[over] = parts[over] * (caps[over] / sums[over])[:, None]
        open_ &= ~over
        free = np.maximum(0.0, capacity - shares.sum(axis=0))
    return shares


def most_efficient(program: Efficiency) -> SolverResult:
    """Give each type to the tenant that is fastest on it; a tie goes to the first tenant.

    Caps are ignored. A type that no tenant can use stays idle.

    Source: OEF (4), (5).
    """
    tenants, types = program.speedups.shape
    winners = program.speedups.argmax(axis=0)
    best = program.speedups.max(axis=0)
    shares = np.zeros((tenants, types))
    shares[winners, np.arange(types)] = np.where(best > 0, program.capacity, 0.0)
    none = np.zeros(tenants)
    return SolverResult(shares, best, none, none, "closed form")
