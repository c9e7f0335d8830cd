"""GPU-time that jobs received and deserved until their end: rho_ij of LTGF's eq. (15) at the end.

A round's sums contain only active jobs. The snapshot has the sums of the last round and the changes
since then, so an end lies between the two.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from evenshare_core.domain.snapshot import Change, ChangeKind, JobService, Service
from evenshare_core.fairness.gpu_time import Sums, job_received
from evenshare_core.fairness.rho import rho_of


class JobGpuTime(NamedTuple):
    """A job's AllocTime_ij and FairTime_ij, in micro-GPU-seconds."""

    received_gpu_us: int
    deserved_gpu_us: int

    @property
    def rho(self) -> float | None:
        """Return rho_ij, eq. (15); None if nothing was deserved."""
        return rho_of(self.received_gpu_us, self.deserved_gpu_us)


def ended_jobs(
    service: Service, changes: Iterable[Change], capacity: Mapping[str, int]
) -> dict[int, JobGpuTime]:
    """Return the GPU-time of each job that ended in `changes`, from its submission to its end.

    A job that was held meanwhile ended once and arrived again; both periods count.

    `service`: the sums before the changes. `capacity`: GPUs by type, as for `gpu_time.advance`.
    Only the sums of tenants with an ended job are advanced.

    Raises:
        ValueError: the changes contradict the sums.
    """
    rows = list(changes)
    tenants = {row.tenant for row in rows if row.kind is ChangeKind.INACTIVE}
    if not tenants:
        return {}
    sums = Sums(_of_tenants(service, tenants), capacity)
    ended: dict[int, JobGpuTime] = {}
    for row in rows:
        if row.tenant not in tenants:
            continue
        at_us = max(row.at_us, service.at_us)
        if row.kind is ChangeKind.INACTIVE and (job := sums.jobs.get(row.job)) is not None:
            before, period = ended.get(row.job, (0, 0)), _gpu_time(sums, job, at_us)
            ended[row.job] = JobGpuTime(*map(sum, zip(before, period, strict=True)))
        sums.apply(row, at_us)
    return ended


def _of_tenants(service: Service, tenants: set[int]) -> Service:
    return Service(
        service.at_us,
        tuple([row for row in service.claims if row.tenant in tenants]),
        tuple([row for row in service.classes if row.tenant in tenants]),
        tuple([row for row in service.jobs if row.tenant in tenants]),
    )


def _gpu_time(sums: Sums, job: JobService, at_us: int) -> JobGpuTime:
    claim = sums.claims[job.tenant, job.gpu_type]
    claim.advance(at_us)
    integral = claim.classes[job.demand, job.weight].fair_gpu_us
    return JobGpuTime(job_received(job, at_us), integral - job.baseline_gpu_us)
