"""Posted prices: the price of a GPU-hour follows from how full the pool is.

Source: N. Wang et al., "Online Scheduling of Distributed Machine Learning Jobs for Incentivizing
Sharing in Multi-Tenant Systems", IEEE TC 2022, eq. (8): eta(h) = theta^(h / C) - 1, scaled by the
operator's base rate.

| paper | here | unit |
|---|---|---|
| h | `used` | GPUs |
| sum of C_sw | `capacity` | GPUs |
| theta_w | `theta_milli` / 1000 | ratio >= 1 |
| eta_w(h) x base | result | micro-credits per GPU-hour |

Decimal arithmetic in one fixed context: `exp` and `ln` round correctly there, so a price is the
same digits on every machine.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal

from evenshare_core.units import ONE_MILLI

DEFAULT_THETA_MILLI = 2 * ONE_MILLI

_CONTEXT = Context(prec=40, rounding=ROUND_HALF_EVEN)


def posted_price_micro(base_micro: int, theta_milli: int, used: int, capacity: int) -> int:
    """Return base x (theta^(used / capacity) - 1) in whole micro-credits per GPU-hour.

    Rounds half to even: a credit has six places. An empty pool costs nothing, a full one
    base x (theta - 1); more use than capacity (nodes went away) counts as full, and so does a
    capacity of 0, which has nothing left to sell.

    Raises:
        ValueError: a negative number, or theta below 1.
    """
    if base_micro < 0 or used < 0 or capacity < 0:
        raise ValueError("base, use and capacity must be at least 0")
    if theta_milli < ONE_MILLI:
        raise ValueError("theta must be at least 1 (theta_milli at least 1000)")
    theta = _CONTEXT.divide(Decimal(theta_milli), Decimal(ONE_MILLI))
    if used >= capacity:
        power = theta
    else:
        utilisation = _CONTEXT.divide(Decimal(used), Decimal(capacity))
        power = _CONTEXT.exp(_CONTEXT.multiply(utilisation, _CONTEXT.ln(theta)))
    exact = _CONTEXT.multiply(Decimal(base_micro), _CONTEXT.subtract(power, Decimal(1)))
    return int(exact.to_integral_value(rounding=ROUND_HALF_EVEN, context=_CONTEXT))
