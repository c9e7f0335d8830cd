"""Posted prices: the price of a GPU-hour follows from the pool's utilisation.

Source: N. Wang et al., "Online Scheduling of Distributed Machine Learning Jobs for Incentivizing
Sharing in Multi-Tenant Systems", IEEE TC 2022. Eq. (8), eta(h) = theta^(h / C) - 1, is scaled by
the operator's base rate.

| paper | here | unit |
|---|---|---|
| h | `used` | GPUs |
| sum of C_sw | `capacity` | GPUs |
| theta_w | `theta_milli` / 1000 | ratio >= 1 |
| eta_w(h) x base | result | micro-credits per GPU-hour |

If the operator enables it, GPUs queued for borrowing add a surcharge (`surcharge_target_micro`,
`next_surcharge_micro`; not in the paper, ADR 0165).

Decimal arithmetic in one fixed context gives the same digits on every machine: its `exp` and `ln`
round correctly.
"""

from decimal import ROUND_HALF_EVEN, Decimal

from evenshare_core.money.fixed_point import CONTEXT
from evenshare_core.units import ONE_MILLI

DEFAULT_THETA_MILLI = 2 * ONE_MILLI


def posted_price_micro(base_micro: int, theta_milli: int, used: int, capacity: int) -> int:
    """Return base x (theta^(used / capacity) - 1) in whole micro-credits per GPU-hour.

    Rounds half to even: a credit has six places. An empty pool costs nothing, a full one base x
    (theta - 1). Use above capacity (after a loss of nodes) counts as full, and so does a capacity
    of 0.

    Raises:
        ValueError: a number is negative, or theta is below 1.
    """
    if base_micro < 0 or used < 0 or capacity < 0:
        raise ValueError("base, use and capacity must be at least 0")
    if theta_milli < ONE_MILLI:
        raise ValueError("theta must be at least 1 (theta_milli at least 1000)")
    power = _power(theta_milli, used, capacity)
    return _times(base_micro, CONTEXT.subtract(power, Decimal(1)))


def surcharge_target_micro(
    base_micro: int, theta_milli: int, used: int, capacity: int, *, queued: int, cap_milli: int
) -> int:
    """Return base x (theta^((used + queued) / capacity) - theta^(used / capacity)), or the cap.

    This is the amount by which `queued` GPUs raise eq. (8), if jobs would borrow them at the
    current price. The load may exceed a full pool. The result is in whole micro-credits per
    GPU-hour, half to even. The cap is `cap_milli` thousandths of the base. The result is 0 if the
    pool has no GPUs.

    Raises:
        ValueError: as `posted_price_micro`, and for a negative queue or cap.

    Source: ADR 0165.
    """
    if queued < 0 or cap_milli < 0:
        raise ValueError("queue and cap must be at least 0")
    if base_micro < 0 or used < 0 or capacity < 0 or theta_milli < ONE_MILLI:
        raise ValueError("base, use and capacity must be at least 0, theta at least 1")
    cap_micro = base_micro * cap_milli // ONE_MILLI
    if not queued or not capacity:
        return 0
    used = min(used, capacity)
    power = _power(theta_milli, used, capacity)
    log = CONTEXT.ln(_theta(theta_milli))
    load = CONTEXT.divide(Decimal(used + queued), Decimal(capacity))
    exponent = CONTEXT.multiply(load, log)
    # Far beyond the cap the power is not needed, and it could have any number of digits.
    cap = CONTEXT.divide(Decimal(cap_milli), Decimal(ONE_MILLI))
    if exponent >= CONTEXT.ln(CONTEXT.add(cap, power)):
        return cap_micro
    target_micro = _times(base_micro, CONTEXT.subtract(CONTEXT.exp(exponent), power))
    return min(target_micro, cap_micro)


def next_surcharge_micro(
    before_micro: int, target_micro: int, *, step_micro: int, cap_micro: int
) -> int:
    """Return the next surcharge: a step towards the target, within the cap.

    A step is at least one micro-credit, so that the target is reached. A lower cap applies at once.
    """
    step_micro = max(1, step_micro)
    change = max(-step_micro, min(step_micro, target_micro - before_micro))
    return min(cap_micro, before_micro + change)


def _theta(theta_milli: int) -> Decimal:
    return CONTEXT.divide(Decimal(theta_milli), Decimal(ONE_MILLI))


def _power(theta_milli: int, used: int, capacity: int) -> Decimal:
    """Return theta^(used / capacity); a pool without GPUs counts as full."""
    theta = _theta(theta_milli)
    if used >= capacity:
        return theta
    utilisation = CONTEXT.divide(Decimal(used), Decimal(capacity))
    return CONTEXT.exp(CONTEXT.multiply(utilisation, CONTEXT.ln(theta)))


def _times(base_micro: int, factor: Decimal) -> int:
    exact = CONTEXT.multiply(Decimal(base_micro), factor)
    return int(exact.to_integral_value(rounding=ROUND_HALF_EVEN, context=CONTEXT))
