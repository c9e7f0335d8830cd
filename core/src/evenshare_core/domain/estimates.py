"""Knowledge about a job's duration, in addition to `Job.estimate_us`."""

from enum import StrEnum

from evenshare_core.domain.ids import JobId
from evenshare_core.domain.values import Value
from evenshare_core.units import ONE_MILLI


class EstimateSource(StrEnum):
    """The source of an estimate, from the most to the least certain."""

    MEASURED = "measured"
    FITTED = "fitted"
    HISTORY = "history"
    DECLARED = "declared"
    CAP = "cap"


class JobEstimate(Value, frozen=True, array_like=True):
    """The accuracy of a job's estimate, and its overheads; `id` is the job's.

    `error_milli` is the relative standard error of `Job.estimate_us`, in thousandths. `overhead_us`
    is the time that one suspension and resumption costs. `spread_milli` is the job's speed on
    several nodes relative to one node, in thousandths. `is_profiled` if its time per iteration is
    known, so that it needs no profiling run.

    Source: UniSched (1) to (3).
    """

    id: JobId
    source: EstimateSource
    error_milli: int
    overhead_us: int = 0
    spread_milli: int = ONE_MILLI
    is_profiled: bool = True
