"""rho, the measure of LTGF: GPU-time received over GPU-time deserved."""

AT_SHARE = 0.02  # rho within this distance of 1 counts as the fair share


def standing(rho: float) -> str:
    """Return "at", "above" or "below", by the position of rho relative to the fair share."""
    if round(abs(rho - 1), 9) <= AT_SHARE:
        return "at"
    return "above" if rho > 1 else "below"


def rho_of(received: float, deserved: float) -> float | None:
    """Return received over deserved, both in the same unit; None while nothing was deserved.

    1 is fair; a tenant below 1 received less than it deserved. An undefined rho is None everywhere,
    never a number.

    Source: LTGF eq. (12), (15).
    """
    return received / deserved if deserved else None
