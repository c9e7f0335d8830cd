"""Properties of an allocation, measured on plain arrays, whatever produced it.

| paper | here | shape, unit |
|---|---|---|
| w_lj | `speedups`: throughput of row l on GPU type j over its slowest type | n x k, >= 0 |
| x_lj | `shares` | n x k, GPUs, need not be whole |
| m_j | `capacity` | k, GPUs |
| pi_l | `weights` | n, > 0 |
| w_l . x_l | `throughputs` | n, GPUs of the slowest type |

A row is a tenant, or one job type of a tenant with its part of the tenant's weight (OEF 4.2.4).

This module knows no policy, program or solver, so a measurement cannot agree with a policy because
of a shared mistake. `evenshare_core.fairness.pareto` solves its own program.

Source: OEF (Middleware 2024) 2.3 and (9), (10).
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Solvers are accurate to about 1e-7; a smaller part of a row's throughput than this is noise.
TOLERANCE = 1e-6


class ShapeError(ValueError):
    """Arrays do not fit each other, or contain invalid values; the message names them."""


def checked(speedups: Array, shares: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Return speedups, shares and weights as float arrays with matching shapes.

    Raises:
        ShapeError: shapes differ, a value is not finite or negative, or a weight is not positive.
    """
    w, x = np.asarray(speedups, float), np.asarray(shares, float)
    pi = np.asarray(weights, float)
    if w.ndim != 2 or w.shape != x.shape or pi.shape != (w.shape[0],):
        raise ShapeError(f"speedups {w.shape}, shares {x.shape}, weights {pi.shape} do not fit")
    if not (np.isfinite(w).all() and np.isfinite(x).all() and np.isfinite(pi).all()):
        raise ShapeError("a value is not finite")
    if (w < 0).any() or (pi <= 0).any():
        raise ShapeError("speedups must be >= 0 and weights > 0")
    return w, x, pi


def throughputs(speedups: Array, shares: Array) -> Array:
    """Return w_l . x_l of every row."""
    return np.asarray((speedups * shares).sum(axis=1), float)


def useful(speedups: Array, offers: Array, limits: Array) -> Array:
    """Return each row's throughput with the best of the offered GPUs that it can use.

    `offers` (n x ... x k) are GPUs by type. Row l uses at most `limits[l]` of them, the fastest
    first.
    """
    order = np.argsort(-speedups, axis=1, kind="stable")
    lead = (slice(None),) + (None,) * (offers.ndim - 2)
    order = np.broadcast_to(order[lead], offers.shape)
    sorted_offers = np.take_along_axis(offers, order, axis=-1)
    speeds = np.take_along_axis(np.broadcast_to(speedups[lead], offers.shape), order, axis=-1)
    before = np.cumsum(sorted_offers, axis=-1) - sorted_offers
    taken = np.clip(limits[(*lead, None)] - before, 0.0, sorted_offers)
    return np.asarray((taken * speeds).sum(axis=-1), float)


def envy_matrix(
    speedups: Array, shares: Array, weights: Array, limits: Array | None = None
) -> Array:
    """Return the gain of row l with the share of row i, per unit of weight.

    Entry (l, i) is pi_l / pi_i (w_l . x_i) - w_l . x_l, in l's own throughput; a positive entry is
    envy. With `limits`, only the GPUs of the other's share that l can use count. The diagonal is 0.

    Raises:
        ShapeError: see `checked`.

    Source: OEF (10); by weight as 4.2.3.
    """
    w, x, pi = checked(speedups, shares, weights)
    if limits is None:
        gain = (w @ (x / pi[:, None]).T) * pi[:, None]
    else:
        offers = (x / pi[:, None])[None, :, :] * pi[:, None, None]
        gain = useful(w, offers, np.asarray(limits, float))
    envy = np.asarray(gain - throughputs(w, x)[:, None], float)
    np.fill_diagonal(envy, 0.0)
    return envy


def equal_split(
    speedups: Array, capacity: Array, weights: Array, limits: Array | None = None
) -> Array:
    """Return each row's throughput with only the part of every GPU type that its weight gives it.

    With `limits`, each row uses at most that number of these GPUs, the fastest.
    """
    pi = np.asarray(weights, float)
    if not pi.size:
        return np.zeros(0)
    part = (pi / pi.sum())[:, None] * np.asarray(capacity, float)
    if limits is None:
        return throughputs(speedups, part)
    return useful(speedups, part, np.asarray(limits, float))


def sharing_incentive(
    speedups: Array,
    shares: Array,
    capacity: Array,
    weights: Array,
    limits: Array | None = None,
) -> tuple[Array, Array]:
    """Return (throughput, throughput with the weighted equal split) of every row.

    A row has an incentive to share if the first is at least the second.

    Raises:
        ShapeError: see `checked`.
    """
    w, x, pi = checked(speedups, shares, weights)
    return throughputs(w, x), equal_split(w, capacity, pi, limits)


def capacity_use(shares: Array) -> Array:
    return np.asarray(np.asarray(shares, float).sum(axis=0), float)


def throughput_spread(speedups: Array, shares: Array, weights: Array) -> float:
    """Return 1 - lowest / highest throughput per unit of weight; 0 if all are equal.

    Raises:
        ShapeError: see `checked`.

    Source: OEF (9).
    """
    w, x, pi = checked(speedups, shares, weights)
    if not pi.size:
        return 0.0
    each = throughputs(w, x) / pi
    most = float(each.max())
    return 1 - float(each.min()) / most if most > 0 else 0.0


# ---- misreports ----


@dataclass(frozen=True, slots=True)
class Probe:
    """A misreport, and the row's true throughput with honest and with false speeds.

    A `factor` above 1 overstates, below 1 understates. It applies to one GPU type, or to all but
    the slowest if `gpu_type` is "".
    """

    row: int
    factor: float
    honest: float
    misreported: float
    gpu_type: str = ""

    @property
    def gain(self) -> float:
        """The throughput gained by the misreport; negative if it loses."""
        return self.misreported - self.honest


def misreport(speedups: Array, factor: float, types: Collection[int] | None = None) -> Array:
    """Return one row's speedups with every type but its slowest multiplied by `factor`.

    `types` restricts this to some types, by index. A type is never reported slower than the
    slowest. A type that cannot run stays at 0.
    """
    row = np.asarray(speedups, float)
    usable = row > 0
    if not usable.any():
        return row.copy()
    slowest = float(row[usable].min())
    scaled = row > slowest
    if types is not None:
        scaled &= np.isin(np.arange(len(row)), list(types))
    reported = np.where(scaled, np.maximum(slowest, row * factor), row)
    return np.where(usable, reported, 0.0)
