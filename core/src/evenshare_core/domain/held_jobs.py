"""Jobs that wait and may not start yet, because they are held or because their tenant said when.

A held job is not among the jobs of a snapshot: it is no demand, and no fair share counts for it.
Once its last hold ends, it arrives like a new job.
"""

from collections.abc import Collection
from enum import StrEnum

from evenshare_core.domain.ids import JobId, TenantId
from evenshare_core.domain.values import Value


class HoldCode(StrEnum):
    """Why a job may not start yet; a job with several holds is listed under the first of them."""

    OPERATOR = "operator"
    TENANT = "tenant"
    IDLE = "idle"  # its last lease held GPUs that it did not use
    DEPENDENCY = "dependency"  # another job must end first
    SWEEP = "sweep"  # as many jobs of its sweep as allowed are under way
    NOT_BEFORE = "not_before"  # its tenant named the earliest start


def first_hold(codes: Collection[str]) -> HoldCode:
    """Return the hold under which a job with these holds is listed."""
    return next((code for code in HoldCode if code in codes), HoldCode.TENANT)


class HeldJob(Value, frozen=True, array_like=True):
    """A waiting job that may not start; `until_us` is its earliest start, 0 if unknown."""

    job: JobId
    tenant: TenantId
    gpus: int
    code: HoldCode
    until_us: int = 0
