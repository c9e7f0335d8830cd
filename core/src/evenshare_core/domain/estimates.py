"""What is known about how long a job takes, beside `Job.estimate_us`."""

from __future__ import annotations

from enum import StrEnum

from evenshare_core.domain.ids import JobId
from evenshare_core.domain.values import Value
from evenshare_core.units import ONE_MILLI


class EstimateSource(StrEnum):
    """Where an estimate comes from, the surest first."""

    MEASURED = "measured"
    FITTED = "fitted"
    HISTORY = "history"
    DECLARED = "declared"
    CAP = "cap"


class JobEstimate(Value, frozen=True, array_like=True):
    """How sure a job's estimate is, and how it runs; `id` is the job's.

    `error_milli`: relative standard error of `Job.estimate_us`, in thousandths. `overhead_us`: what
    it loses where it is suspended and resumed once. `spread_milli`: its speed on GPUs of several
    nodes over that on one, in thousandths. `is_profiled`: its time per iteration is known, so that
    no profiling run is made for it.
    Source: UniSched (1) to (3).
    """

    id: JobId
    source: EstimateSource
    error_milli: int
    overhead_us: int = 0
    spread_milli: int = ONE_MILLI
    is_profiled: bool = True
