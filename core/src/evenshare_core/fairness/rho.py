"""rho, the measure of LTGF: GPU-time received over GPU-time deserved."""

from __future__ import annotations


def rho_of(received: float, deserved: float) -> float | None:
    """Return received over deserved, both in any one unit; None while nothing was deserved.

    1 is fair, less is behind. Undefined is None everywhere, and never a number.
    Source: LTGF eq. (12), (15).
    """
    return received / deserved if deserved else None
