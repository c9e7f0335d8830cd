"""The candidates of LTGF by tenant, in the order of their reward (Algorithm 2).

Source: LTGF, Algorithm 1, lines 2-3; Algorithm 2; sections 5.2.1 and 6.1.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import ClaimService, JobService, Snapshot
from evenshare_core.fairness.gpu_time import job_received, windowed
from evenshare_core.policies.ltgf.options import LtgfOptions
from evenshare_core.units import SECOND_US

# (not new, -reward, GPU-time while rho is undefined, submitted, id, job, its sums, lease that
# ended). A plain tuple, because building and sorting 10,000 of them is most of a round; the
# order is decided by the id at the latest.
Candidate = tuple[bool, float, float, int, int, Job, JobService, Lease | None]


class Claim:
    """A tenant's claim on one GPU type in this round: its sums and its queue."""

    __slots__ = ("alloc", "fair", "gpu_type", "integrals", "next", "queue", "quota", "tenant")

    def __init__(self, row: ClaimService, at_us: int, *, by_quota: bool) -> None:
        self.tenant = row.tenant
        self.gpu_type = row.gpu_type
        self.quota = row.quota
        self.alloc, self.fair = windowed(row, at_us, by_quota=by_quota)  # line 2
        self.integrals: dict[tuple[int, int], int] = {}  # (demand, weight): class integral
        self.queue: list[Candidate] = []
        self.next = 0

    def rho(self) -> float | None:
        """(12); None while nothing was deserved."""
        return self.alloc / self.fair if self.fair else None

    def rank(self) -> tuple[float, float]:
        """Least first. While rho is undefined: 0 before any GPU-time, then last by quota."""
        if self.fair:
            return self.alloc / self.fair, 0.0
        if not self.alloc:
            return 0.0, 0.0
        return inf, self.alloc / self.quota if self.quota else inf

    def entry(self, index: int) -> tuple[float, float, int, int, int]:
        """Its place in the heap of tenants; ties go to the earlier next job."""
        head = self.queue[self.next]
        return (*self.rank(), head[3], head[4], index)

    def job_rho(self, row: JobService, at_us: int) -> float | None:
        """(15); None while nothing was deserved."""
        fair = self.integrals[row.demand, row.weight] - row.baseline_gpu_us
        return job_received(row, at_us) / fair if fair else None

    def score(self, row: JobService, at_us: int) -> tuple[float, float]:
        """Algorithm 2, line 3, of a job that ran: minus its reward; GPU-time while undefined."""
        rho = self.job_rho(row, at_us)
        if rho is None:
            return inf, job_received(row, at_us) / row.weight
        return rho, 0.0


def claims(snapshot: Snapshot, options: LtgfOptions) -> list[Claim]:
    """Return every claim with its candidates, sorted by (tenant, GPU type)."""
    at_us = snapshot.at_us
    by_quota = options.tenant_share == "quota"
    found = {
        (row.tenant, row.gpu_type): Claim(row, at_us, by_quota=by_quota)
        for row in snapshot.service.claims
    }
    for row in snapshot.service.classes:
        found[row.tenant, row.gpu_type].integrals[row.demand, row.weight] = row.fair_gpu_us
    ended = {lease.job: lease for lease in snapshot.leases if lease.ends_by(at_us)}
    running = {lease.job for lease in snapshot.leases if lease.job not in ended}
    new_first, hooked = options.new_jobs_first, options.hooked
    for job, sums in _with_sums(snapshot):
        if job.id in running:
            continue  # it keeps its GPUs
        claim = found[sums.tenant, sums.gpu_type]
        score = spent = 0.0
        if sums.alloc_gpu_us or sums.held:
            score, spent = claim.score(sums, at_us)
        if hooked:
            score -= _bonus(job, at_us, options)  # 5.2.1
        old = new_first and job.terms > 0  # 6.1.1
        lease = ended.get(job.id)
        claim.queue.append((old, score, spent, job.submitted_us, job.id, job, sums, lease))
    for claim in found.values():
        claim.queue.sort()
    return [found[key] for key in sorted(found)]


def _with_sums(snapshot: Snapshot) -> Iterator[tuple[Job, JobService]]:
    """Jobs beside their GPU-time sums.

    Both are sorted by job and name the same ones as a rule, so they are walked side by side;
    else rows are looked up.

    Raises:
        ValueError: a job was never active for the sums.
    """
    rows = snapshot.service.jobs
    if len(rows) == len(snapshot.jobs) and all(
        job.id == row.job for job, row in zip(snapshot.jobs, rows, strict=True)
    ):
        yield from zip(snapshot.jobs, rows, strict=True)
        return
    by_job = {row.job: row for row in rows}
    for job in snapshot.jobs:
        if job.id not in by_job:
            raise ValueError(f"job {job.id} is in the snapshot, but no ACTIVE change told of it")
        yield job, by_job[job.id]


def _bonus(job: Job, at_us: int, options: LtgfOptions) -> float:
    """The reward hooks of 5.2.1."""
    bonus = options.lease_bonus * job.terms
    if not job.terms:
        bonus += options.new_job_bonus
    if job.deadline_us is not None:
        left = (job.deadline_us - at_us) / (options.deadline_horizon_s * SECOND_US)
        bonus += options.deadline_bonus * (1 - min(1.0, max(0.0, left)))
    return bonus
