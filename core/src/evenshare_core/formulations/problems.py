"""Problems and solutions of sharing rules, as values that need no solver.

| paper | here | shape | unit |
|---|---|---|---|
| w_lj | `ShareProblem.speedups` | n x k | throughput over that of the slowest type; 0: cannot run |
| m_j | `ShareProblem.capacity` | k | GPUs |
| pi_l | `ShareProblem.weights` | n | relative |
| x_lj | `ShareSolution.shares` | n x k | GPUs, fractions allowed |
| E_l = w_l . x_l | `ShareSolution.throughputs` | n | throughput, in slowest-type GPUs |

Source: OEF (Middleware 2024), section 2.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Above this, adding two numbers loses the smaller one, and no solution is reliable.
LARGEST = 1e12


class ShareRule(StrEnum):
    """The rule of sharing GPUs: its objective and guarantee; see `docs/policies/oef.md`."""

    COOPERATIVE = "cooperative"
    NONCOOPERATIVE = "noncooperative"
    MAX_MIN = "max_min"
    GAVEL = "gavel"
    MAX_EFFICIENCY = "max_efficiency"


class ShareError(ValueError):
    """An invalid problem; `field` names the wrong part, and the message states the reason."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class SolverError(RuntimeError):
    """A solver ended without an optimum; the message contains its status."""


@dataclass(frozen=True, eq=False)
class ShareProblem:
    """Tenants with speedups, weights and caps, and the GPUs of each type, slowest type first.

    `weights` are above 0; `None` means 1 each. `caps` limits each tenant's GPUs, summed over all
    types: 0 or more, infinity for no limit; `None` means no limits. Sequences are copied into
    read-only arrays.

    Raises:
        ShareError: a shape does not fit, or a value is negative, not a number, or above `LARGEST`.
    """

    speedups: Array
    capacity: Array
    weights: Array | None = None
    caps: Array | None = None

    def __post_init__(self) -> None:
        """Copy and validate the arrays."""
        speedups = _array("speedups", self.speedups, 2)
        tenants, types = speedups.shape
        if not tenants or not types:
            raise ShareError("speedups", "needs a row per tenant and a column per GPU type")
        capacity = _array("capacity", self.capacity, 1)
        _length("capacity", capacity, types, "GPU types")
        weights = np.ones(tenants) if self.weights is None else _array("weights", self.weights, 1)
        _length("weights", weights, tenants, "tenants")
        if not (weights > 0).all():
            raise ShareError("weights", f"must be above 0; {_first(weights <= 0)} is not")
        given = np.full(tenants, np.inf) if self.caps is None else self.caps
        caps = _array("caps", given, 1, unbounded=True)
        _length("caps", caps, tenants, "tenants")
        for name, array in (
            *(("speedups", speedups), ("capacity", capacity)),
            *(("weights", weights), ("caps", caps)),
        ):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def pi(self) -> Array:
        """The weights; never None."""
        assert self.weights is not None  # noqa: S101 - narrows the type; __post_init__ set it
        return self.weights

    @property
    def cap(self) -> Array:
        """The cap of each tenant in GPUs, infinity if it has no limit."""
        assert self.caps is not None  # noqa: S101 - narrows the type; __post_init__ set it
        return self.caps


@dataclass(frozen=True, eq=False)
class ShareSolution:
    """The shares that a rule gives.

    `prices` is the increase of the total throughput per additional GPU of each type; `None` for
    `max_min`, which is no linear program. `status` is `optimal`, or `fallback` if no solver found
    the optimum and the shares are the equal split. `backend` is the solver that found the shares.
    If it is not the requested one, `fallback` states why; otherwise `fallback` is empty.
    """

    shares: Array
    throughputs: Array
    total: float
    prices: Array | None
    backend: str
    status: str
    fallback: str


def _array(field: str, given: object, dimensions: int, *, unbounded: bool = False) -> Array:
    try:
        array = np.array(given, dtype=np.float64)
    except OverflowError as error:  # an integer is too large for a float
        raise ShareError(field, f"must be at most {LARGEST:g}") from error
    except (TypeError, ValueError) as error:
        shape = "rows of equal length" if dimensions == 2 else "a list"
        raise ShareError(field, f"needs {shape} of numbers") from error
    if array.ndim != dimensions:
        shape = "rows of numbers, one per tenant" if dimensions == 2 else "a list of numbers"
        raise ShareError(field, f"needs {shape}")
    if np.isnan(array).any():
        raise ShareError(field, f"{_first(np.isnan(array))} is not a number")
    if not unbounded and np.isinf(array).any():
        raise ShareError(field, f"{_first(np.isinf(array))} is not finite")
    if (array < 0).any():
        raise ShareError(field, f"must not be negative; {_first(array < 0)} is")
    large = (array > LARGEST) & np.isfinite(array)
    if large.any():
        raise ShareError(field, f"must be at most {LARGEST:g}; {_first(large)} is more")
    return array


def _length(field: str, array: Array, wanted: int, of: str) -> None:
    if len(array) != wanted:
        raise ShareError(field, f"has {len(array)} values for {wanted} {of}")


def _first(bad: NDArray[np.bool_]) -> str:
    place = np.argwhere(bad)[0]
    return f"[{']['.join(str(int(index)) for index in place)}]"


def virtual_tenants(
    job_types: Sequence[Sequence[Sequence[float]]],
    weights: Sequence[float] | None = None,
    priorities: Sequence[Sequence[float]] | None = None,
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Make each job type a separate tenant: return speedups, weights, and the owner of each row.

    `job_types[l]` are the speedup rows of tenant l. Its weight is divided equally over them, or in
    proportion to `priorities[l]`. A tenant without job types gets no row.

    Raises:
        ShareError: rows have different lengths, or priorities do not fit or are not above 0.

    Source: OEF, 4.2.4.
    """
    given = [1.0] * len(job_types) if weights is None else list(weights)
    if len(given) != len(job_types):
        raise ShareError("weights", f"has {len(given)} values for {len(job_types)} tenants")
    rows: list[Sequence[float]] = []
    divided: list[float] = []
    owners: list[int] = []
    for tenant, types in enumerate(job_types):
        ranks = [1.0] * len(types) if priorities is None else list(priorities[tenant])
        if len(ranks) != len(types) or any(rank <= 0 for rank in ranks):
            raise ShareError("priorities", f"[{tenant}] needs {len(types)} values above 0")
        rows += types
        divided += [given[tenant] * rank / sum(ranks) for rank in ranks]
        owners += [tenant] * len(types)
    return _array("speedups", rows, 2), _array("weights", divided, 1), np.array(owners, np.int64)


def plain(value: Any) -> Any:
    """Convert arrays to lists, for JSON."""
    return value.tolist() if isinstance(value, np.ndarray) else value
