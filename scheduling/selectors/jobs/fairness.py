"""A job's rho: the GPU-time that it received over its part of its tenant's fair share."""

from datetime import datetime
from typing import Annotated

from evenshare_core.domain.instants import to_us
from evenshare_core.fairness.gpu_time import ServiceView, job_received
from evenshare_core.fairness.rho import rho_of
from evenshare_core.units import SECOND_US
from scheduling.models import Job, PoolFence
from scheduling.selectors.jobs.preemption_costs import PreemptionCost
from scheduling.selectors.rounds.states import MissingStateError, read_left_state
from tenants.answers import Answer, about
from tenants.scopes import site_reading


class JobRho(Answer, frozen=True, kw_only=True):
    """A job's GPU-time since its submission, compared with its part of its tenant's fair share."""

    rho: Annotated[
        float | None,
        about(
            "Received / deserved. 1: as early as with its fair share; below 1: it would have ended"
            " earlier with it. null: nothing deserved, or unknown."
        ),
    ]
    received_gpu_s: Annotated[float | None, about("GPU-time that it held; null: unknown.")]
    deserved_gpu_s: Annotated[float | None, about("Its part of the fair share; null: unknown.")]
    as_of: Annotated[
        datetime | None, about("Its end, or the last check of an active job; null: unknown.")
    ]


class JobFairness(JobRho, frozen=True, kw_only=True):
    """A job's rho, and what preemptions cost it. Times are pool time."""

    preemptions: PreemptionCost


UNKNOWN = JobRho(rho=None, received_gpu_s=None, deserved_gpu_s=None, as_of=None)


def read_job_rho(job: Job) -> JobRho:
    """Return a job's rho until its end, or until the last round if it is active.

    Both are exact. An ended job needs no query, an active one one more than `read_left_state`.

    Source: LTGF eq. (13)-(15).
    """
    if not job.is_active:
        return _rho(job.received_gpu_us, job.deserved_gpu_us, job.ended_at)
    try:
        with site_reading():
            # Nothing changed between the last stored round and a later check that stored none. The
            # check is read first, so that the sums are not older than it for another reason.
            checked_at = PoolFence.objects.values_list("last_checked_at", flat=True).get(
                pool_id=job.pool_id
            )
            left = read_left_state(job.pool_id)
    except MissingStateError:
        return UNKNOWN
    view = ServiceView(left.sums())
    row = view.jobs.get(job.pk)
    if row is None:  # no round has counted it yet
        return UNKNOWN
    at = max(left.at, checked_at or left.at)
    return _rho(job_received(row, to_us(at)), view.job_deserved(job.pk, to_us(at)), at)


def _rho(received_us: int | None, deserved_us: int | None, at: datetime | None) -> JobRho:
    if received_us is None or deserved_us is None:
        return UNKNOWN
    return JobRho(
        rho=rho_of(received_us, deserved_us),
        received_gpu_s=received_us / SECOND_US,
        deserved_gpu_s=deserved_us / SECOND_US,
        as_of=at,
    )
