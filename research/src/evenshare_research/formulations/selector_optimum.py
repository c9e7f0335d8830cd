"""What other solvers say of the compact program: the most reward, and the columns that give it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenshare_core.deadlines.compact import CompactProgram


@dataclass(frozen=True, eq=False)
class CompactOptimum:
    """The optimum of the compact program, or of its relaxation, in millionths of a point."""

    reward_micro: float
    shares: NDArray[np.float64]

    @classmethod
    def of(cls, program: CompactProgram, shares: Sequence[float], *, whole: bool) -> CompactOptimum:
        """Return the value of shares; whole ones are rounded, so that it is exact."""
        values = np.array(shares, dtype=np.float64)
        if whole:
            values = values.round()
        return cls(float((program.rewards * values).sum()), values)
