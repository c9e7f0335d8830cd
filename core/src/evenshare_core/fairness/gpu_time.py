"""Long-term GPU-time fairness (LTGF): exact integrals of received and deserved GPU-time.

Source: Z. Ye et al., "ASTRAEA: A Fair Deep Learning Scheduler for Multi-Tenant GPU Clusters", IEEE
TPDS 2021, section 4.2, eq. (1)-(16).

| paper | here | unit |
|---|---|---|
| Quota_j (6) | `ClaimService.quota`, per GPU type | GPUs |
| Demand_j (7) | `ClaimService.demand` | GPUs |
| FairShare_j (8) | min(demand, quota) | GPUs |
| FairTime_j (9) | `ClaimService.fair_gpu_us` | micro-GPU-seconds |
| Alloc_j (10), AllocTime_j (11) | `ClaimService.held`, `.alloc_gpu_us` | GPUs, micro-GPU-seconds |
| rho_j (12), rho_ij (15) | `claim_rho`, `ServiceView.job_rho` | ratio, None while undefined |
| FairTime_ij (13)(14) | class integral - `JobService.baseline_gpu_us` | micro-GPU-seconds |
| FairTime_j by (16) | `ClaimService.entitled_gpu_us`: integral of the quota | same |

All inputs are step functions, so a sum changes only when its own claim changes and at the round's
instant; nothing is sampled. Tenant sums are exact. The share of a job (13) need not be whole: each
class integral is floored once per interval between changes. So FairTime_ij is at most the true
value, and less than 1 micro-GPU-second per interval below it
(`test_gpu_time.py::TestExactFractions`).

A rho with FairTime = 0 is undefined: None in reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from evenshare_core.domain.snapshot import (
    Change,
    ChangeKind,
    ClaimService,
    ClassService,
    JobService,
    Service,
    ServiceMark,
)
from evenshare_core.fairness.rho import rho_of

# A fairness window has this many marks, so it forgets at most 1/16 of its length too early.
MARKS_PER_WINDOW = 16


def advance(
    service: Service,
    changes: Iterable[Change],
    at_us: int,
    *,
    capacity: Mapping[str, int] | None = None,
    window_us: int = 0,
    at_round: Callable[[Sums], object] | None = None,
) -> Service:
    """Advance all sums from `service.at_us` to `at_us` through the timed changes in between.

    Changes are in time order; one older than `service.at_us` counts from `service.at_us`.
    `capacity` (GPUs per type) limits the types that a job may claim. A gang does not claim a type
    that has too few GPUs while another accepted one has enough. INACTIVE also releases the job's
    GPUs. `window_us` > 0 keeps the marks of a fairness window. `at_round` may move claims at the
    round's instant, after all changes.

    Raises:
        ValueError: time runs backwards, or a change contradicts the state (it is named).

    Source: eq. (1)-(15).
    """
    if at_us < service.at_us:
        raise ValueError(f"service is at {service.at_us} and cannot go back to {at_us}")
    sums = Sums(service, capacity or {})
    last_us = service.at_us
    for change in changes:
        instant_us = max(change.at_us, service.at_us)
        if not last_us <= instant_us <= at_us:
            raise ValueError(f"out of time order or after the round: {change}")
        last_us = instant_us
        sums.apply(change, instant_us)
    if at_round is not None:
        at_round(sums)
    return sums.freeze(at_us, window_us)


class ClassIntegral:
    """The active jobs with one (demand, weight), and what each has deserved so far, by (14)."""

    __slots__ = ("fair_gpu_us", "jobs")

    def __init__(self, jobs: int = 0, fair_gpu_us: int = 0) -> None:
        self.jobs = jobs
        self.fair_gpu_us = fair_gpu_us


class ClaimSums:
    """The current values of a claim (tenant, GPU type) and its sums, while they advance."""

    __slots__ = ("alloc_gpu_us", "classes", "demand", "entitled_gpu_us", "fair_gpu_us", "gpu_type",
                 "held", "marks", "quota", "since_us", "tenant", "weights")  # fmt: skip # a table

    def __init__(self, row: ClaimService) -> None:
        self.tenant, self.gpu_type = row.tenant, row.gpu_type
        self.since_us = row.since_us
        self.quota = row.quota
        self.demand = row.demand
        self.weights = row.weights
        self.held = row.held
        self.alloc_gpu_us = row.alloc_gpu_us
        self.fair_gpu_us = row.fair_gpu_us
        self.entitled_gpu_us = row.entitled_gpu_us
        self.marks = row.marks
        self.classes: dict[tuple[int, int], ClassIntegral] = {}  # by (demand, weight)

    def advance(self, at_us: int) -> None:
        """Extend the integrals to `at_us`, at the current values."""
        span_us = at_us - self.since_us
        if span_us <= 0:
            return
        self.since_us = at_us
        share = min(self.demand, self.quota)  # (8)
        self.alloc_gpu_us += self.held * span_us  # (11)
        self.fair_gpu_us += share * span_us  # (9)
        self.entitled_gpu_us += self.quota * span_us  # (16)
        for (demand, weight), row in self.classes.items():
            job_share = share * weight * span_us // self.weights  # (13)
            row.fair_gpu_us += min(demand * span_us, job_share)  # (14)

    def enter(self, demand: int, weight: int) -> ClassIntegral:
        """Add a job that requests GPUs from now on; return the integral of its class."""
        self.demand += demand
        self.weights += weight
        row = self.classes.setdefault((demand, weight), ClassIntegral())
        row.jobs += 1
        return row

    def leave(self, job: JobService) -> None:
        """Remove a job that no longer requests GPUs of this claim."""
        self.demand -= job.demand
        self.weights -= job.weight
        row = self.classes[job.demand, job.weight]
        row.jobs -= 1
        if not row.jobs:  # the next job of this class starts its integral at 0
            del self.classes[job.demand, job.weight]

    def rho(self) -> float | None:
        """Return rho of eq. (12) at `since_us`; None while nothing was deserved."""
        return rho_of(self.alloc_gpu_us, self.fair_gpu_us)

    def mark(self, at_us: int, window_us: int) -> None:
        """Advance to a round, and keep the marks at which the fairness window may begin.

        The window begins at the oldest mark inside it. The first mark represents all earlier
        history, which the window forgets one length later.
        """
        self.advance(at_us)
        if window_us <= 0:
            self.marks = ()
            return
        if not self.marks:
            self.marks = (ServiceMark(at_us, 0, 0, 0),)
            return
        marks = self.marks
        if at_us - marks[-1].at_us >= window_us // MARKS_PER_WINDOW:
            now = ServiceMark(at_us, self.alloc_gpu_us, self.fair_gpu_us, self.entitled_gpu_us)
            marks = (*marks, now)
        while len(marks) > 1 and marks[0].at_us < at_us - window_us:
            marks = marks[1:]
        self.marks = marks

    def frozen(self) -> ClaimService:
        return ClaimService(
            self.tenant, self.gpu_type, self.since_us, self.quota, self.demand, self.weights,
            self.held, self.alloc_gpu_us, self.fair_gpu_us, self.entitled_gpu_us, self.marks,
        )  # fmt: skip # rows of what belongs together


class Sums:
    """The sums while they advance; jobs without a change keep their frozen rows.

    The simulator keeps one object for all rounds. `claim` creates the container of a claim's sums.
    """

    def __init__(
        self,
        service: Service,
        capacity: Mapping[str, int],
        claim: Callable[[ClaimService], ClaimSums] = ClaimSums,
    ) -> None:
        self.capacity = capacity
        self._new_claim = claim
        self.claims = {(row.tenant, row.gpu_type): claim(row) for row in service.claims}
        for row in service.classes:
            classes = self.claims[row.tenant, row.gpu_type].classes
            classes[row.demand, row.weight] = ClassIntegral(row.jobs, row.fair_gpu_us)
        self.jobs = {job.job: job for job in service.jobs}

    def apply(self, change: Change, at_us: int) -> None:
        """Apply one change at `at_us`, which is not earlier than the claim's last change.

        Raises:
            ValueError: the change contradicts the state.
        """
        if change.kind is ChangeKind.QUOTA:
            self._quota(change, at_us)
        elif change.kind is ChangeKind.ACTIVE:
            self._active(change, at_us)
        elif change.kind is ChangeKind.HOLD:
            self._hold(change, at_us)
        elif change.kind is ChangeKind.RELEASE:
            self._release(change, at_us)
        else:
            self._inactive(change, at_us)

    def _claim(self, tenant: int, gpu_type: str, at_us: int) -> ClaimSums:
        """Return the claim, advanced to `at_us`; a new one starts there with quota 0."""
        claim = self.claims.get((tenant, gpu_type))
        if claim is None:
            row = ClaimService(tenant=tenant, gpu_type=gpu_type, since_us=at_us)
            claim = self._new_claim(row)
            self.claims[tenant, gpu_type] = claim
        claim.advance(at_us)
        return claim

    def _quota(self, change: Change, at_us: int) -> None:
        if len(change.gpu_types) != 1 or change.gpus < 0:
            raise ValueError(f"a quota needs one GPU type and at least 0 GPUs: {change}")
        self._claim(change.tenant, change.gpu_types[0], at_us).quota = change.gpus

    def _active(self, change: Change, at_us: int) -> None:
        if change.job in self.jobs:
            raise ValueError(f"job is active already: {change}")
        if change.gpus < 1 or change.weight < 1:
            raise ValueError(f"an active job needs a demand and a weight of at least 1: {change}")
        claim = self._claim(change.tenant, self._claimed_type(change, at_us), at_us)
        row = claim.enter(change.gpus, change.weight)
        self.jobs[change.job] = JobService(
            change.job, change.tenant, claim.gpu_type, change.gpus, change.weight, row.fair_gpu_us
        )

    def _claimed_type(self, change: Change, at_us: int) -> str:
        """Return the accepted type with the tenant's lowest rho; ties by name.

        Types on which the demand stays within the quota come first. Otherwise all jobs would claim
        the type with the lowest rho, while another type has no demand and its rho does not change.
        """
        accepted = change.gpu_types or tuple(self.capacity)
        accepted = accepted or tuple({gpu_type for _, gpu_type in self.claims})
        roomy = [name for name in accepted if self.capacity.get(name, 0) >= change.gpus]
        candidates = sorted(roomy or accepted)
        if not candidates:
            raise ValueError(f"the job accepts any GPU type, but the pool has none: {change}")
        if len(candidates) == 1:
            return candidates[0]

        def key(gpu_type: str) -> tuple[bool, float, str]:
            claim = self.claims.get((change.tenant, gpu_type))
            if claim is None:
                return False, 0.0, gpu_type
            claim.advance(at_us)
            # A claim that deserved nothing so far is ranked like a claim that received nothing.
            return claim.demand + change.gpus > claim.quota, claim.rho() or 0.0, gpu_type

        return min(candidates, key=key)

    def _job(self, change: Change) -> JobService:
        job = self.jobs.get(change.job)
        if job is None:
            raise ValueError(f"job is not active: {change}")
        if job.tenant != change.tenant:
            raise ValueError(f"job belongs to tenant {job.tenant}: {change}")
        return job

    def _hold(self, change: Change, at_us: int) -> None:
        job = self._job(change)
        if change.gpus < 1:
            raise ValueError(f"a hold needs at least 1 GPU: {change}")
        if job.held:
            raise ValueError(f"job holds {job.held} GPUs already: {change}")
        if len(change.gpu_types) > 1:
            raise ValueError(f"a hold has exactly one GPU type: {change}")
        if change.gpu_types:  # empty in old data, in which holds have no type
            job = self.move(job, change.gpu_types[0], at_us)
        self._set_held(job, change.gpus, at_us)

    def _release(self, change: Change, at_us: int) -> None:
        job = self._job(change)
        if not job.held:
            raise ValueError(f"job holds nothing: {change}")
        self._set_held(job, 0, at_us)

    def move(self, job: JobService, gpu_type: str, at_us: int) -> JobService:
        """Move the claim of a job without GPUs to another type from now on; return its new row.

        Its demand counts there and no longer on the old type; the GPU-time that it deserved is
        kept.
        """
        if gpu_type == job.gpu_type:
            return job
        old = self._claim(job.tenant, job.gpu_type, at_us)
        deserved_us = old.classes[job.demand, job.weight].fair_gpu_us - job.baseline_gpu_us
        old.leave(job)
        new = self._claim(job.tenant, gpu_type, at_us)
        row = new.enter(job.demand, job.weight)
        moved = self.jobs[job.job] = JobService(
            job.job, job.tenant, gpu_type, job.demand, job.weight,
            row.fair_gpu_us - deserved_us, job.alloc_gpu_us, 0, job.held_since_us,
        )  # fmt: skip # rows of what belongs together
        return moved

    def _set_held(self, job: JobService, held: int, at_us: int) -> None:
        self._claim(job.tenant, job.gpu_type, at_us).held += held - job.held
        self.jobs[job.job] = JobService(
            job.job, job.tenant, job.gpu_type, job.demand, job.weight, job.baseline_gpu_us,
            job_received(job, at_us), held, at_us,
        )  # fmt: skip # rows of what belongs together

    def _inactive(self, change: Change, at_us: int) -> None:
        job = self._job(change)
        claim = self._claim(job.tenant, job.gpu_type, at_us)
        claim.held -= job.held
        claim.leave(job)
        del self.jobs[job.job]

    def freeze(self, at_us: int, window_us: int) -> Service:
        """Advance every claim to `at_us` and return the sums as values."""
        claims = [self.claims[key] for key in sorted(self.claims)]
        for claim in claims:
            claim.mark(at_us, window_us)
        return Service(
            at_us=at_us,
            claims=tuple(claim.frozen() for claim in claims),
            classes=tuple(
                ClassService(
                    claim.tenant, claim.gpu_type, demand, weight, row.jobs, row.fair_gpu_us
                )
                for claim in claims
                for (demand, weight), row in sorted(claim.classes.items())
            ),
            jobs=tuple([self.jobs[job] for job in sorted(self.jobs)]),
        )


def received(claim: ClaimService | ClaimSums, at_us: int) -> int:
    """Return AllocTime_j by eq. (11) until `at_us` >= `claim.since_us`, if nothing changes."""
    return claim.alloc_gpu_us + claim.held * (at_us - claim.since_us)


def deserved(claim: ClaimService | ClaimSums, at_us: int) -> int:
    """Return FairTime_j by eq. (9) until `at_us` >= `claim.since_us`, if nothing changes."""
    return claim.fair_gpu_us + min(claim.demand, claim.quota) * (at_us - claim.since_us)


def entitled(claim: ClaimService | ClaimSums, at_us: int) -> int:
    """Return FairTime_j by eq. (16), the integral of the quota until `at_us`."""
    return claim.entitled_gpu_us + claim.quota * (at_us - claim.since_us)


def windowed(
    claim: ClaimService | ClaimSums, at_us: int, *, by_quota: bool = False
) -> tuple[int, int]:
    """Return (received, deserved) since the start of the fairness window, or of the sums.

    With `by_quota`, deserved is eq. (16), else eq. (8).
    """
    fair = entitled(claim, at_us) if by_quota else deserved(claim, at_us)
    if not claim.marks:
        return received(claim, at_us), fair
    begin = claim.marks[0]
    base = begin.entitled_gpu_us if by_quota else begin.fair_gpu_us
    return received(claim, at_us) - begin.alloc_gpu_us, fair - base


def claim_rho(claim: ClaimService, at_us: int, *, by_quota: bool = False) -> float | None:
    """Return rho_j, eq. (12); None while FairTime is 0. `at_us` >= `claim.since_us`."""
    alloc, fair = windowed(claim, at_us, by_quota=by_quota)
    return rho_of(alloc, fair)


def job_received(job: JobService, at_us: int) -> int:
    """Return AllocTime_ij until `at_us`, in micro-GPU-seconds."""
    return job.alloc_gpu_us + job.held * (at_us - job.held_since_us)


class ServiceView:
    """Access to sums by key, for pages, reports and policies. Times are >= `service.at_us`."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.claims = {(row.tenant, row.gpu_type): row for row in service.claims}
        self.classes = {
            (row.tenant, row.gpu_type, row.demand, row.weight): row.fair_gpu_us
            for row in service.classes
        }
        self.jobs = {job.job: job for job in service.jobs}

    def tenant_rho(self, tenant: int, gpu_type: str, at_us: int | None = None) -> float | None:
        """Return rho_j of a claim; None while nothing was deserved or if the claim is unknown."""
        claim = self.claims.get((tenant, gpu_type))
        if claim is None:
            return None
        return claim_rho(claim, self.service.at_us if at_us is None else at_us)

    def job_deserved(self, job_id: int, at_us: int | None = None) -> int:
        """Return FairTime_ij, eq. (14), in micro-GPU-seconds.

        Raises:
            KeyError: the job is not active.
        """
        job = self.jobs[job_id]
        integral = self.classes[job.tenant, job.gpu_type, job.demand, job.weight]
        if at_us is not None and at_us > self.service.at_us:
            claim = self.claims[job.tenant, job.gpu_type]
            span_us = at_us - self.service.at_us
            share = min(claim.demand, claim.quota) * job.weight * span_us // claim.weights
            integral += min(job.demand * span_us, share)
        return integral - job.baseline_gpu_us

    def job_rho(self, job_id: int, at_us: int | None = None) -> float | None:
        """Return rho_ij, eq. (15); None while nothing was deserved.

        Raises:
            KeyError: the job is not active.
        """
        fair = self.job_deserved(job_id, at_us)
        instant_us = self.service.at_us if at_us is None else at_us
        return rho_of(job_received(self.jobs[job_id], instant_us), fair)
