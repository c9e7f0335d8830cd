"""The candidates of LTGF by tenant, in the order of their reward (Algorithm 2).

A job that accepts several GPU types is in its tenant's queue for each type.

Source: LTGF, Algorithm 1, lines 2-3; Algorithm 2; sections 5.2.1 and 6.1.1.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from operator import attrgetter

import msgspec

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.jobs import UNHEARD, Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import ClaimService, ClassService, JobService, Snapshot
from evenshare_core.fairness.claims import AloneTypes, reported_type_first
from evenshare_core.fairness.gpu_time import ClaimSums, ClassIntegral, job_received, windowed
from evenshare_core.fairness.rho import rho_of
from evenshare_core.policies.ltgf.options import LtgfOptions
from evenshare_core.policies.shared.session import KeptRound
from evenshare_core.units import SECOND_US

# integrals of job classes by gang and weight
Classes = Mapping[tuple[int, int], ClassService] | Mapping[tuple[int, int], ClassIntegral]


class LtgfCandidate(msgspec.Struct, frozen=True, gc=False):
    """A job that waits (no lease) or whose lease ended, with its GPU-time sums.

    `rank`, lowest first: (not new, -reward, GPU-time if rho is undefined, submitted, id).
    `gpu_types`: the types in whose queues the job is; reasons name the first. A struct is faster to
    create and read than a named tuple, and a round has 10,000 candidates.
    """

    rank: tuple[bool, float, float, int, int]
    job: Job
    sums: JobService
    lease: Lease | None
    gpu_types: tuple[str, ...]


_RANK = attrgetter("rank")
Rank = tuple[float, float, int]  # the rank of a claim
TIED_VERSION = "4"  # the policy's version in which claims without quota tied
# (job, sums, lease): a candidate before it is ranked
Waiting = tuple[Job, JobService, Lease | None]


class TenantClaim:
    """A tenant's claim on one GPU type in this round: its sums and its queue."""

    __slots__ = ("_sums", "alloc", "classes", "fair", "gpu_type", "is_tied", "next", "queue",
                 "quota", "tenant")  # fmt: skip # a table

    def __init__(
        self, row: ClaimService | ClaimSums, at_us: int, *, by_quota: bool = False
    ) -> None:
        """Read the claim's sums.

        Kept sums of jobs are advanced to the round only when they are needed.
        """
        self.tenant = row.tenant
        self.gpu_type = row.gpu_type
        self.quota = row.quota
        self.alloc, self.fair = windowed(row, at_us, by_quota=by_quota)  # line 2 of Algorithm 1
        self.classes: Classes = {}
        self._sums = row if isinstance(row, ClaimSums) else None
        self.is_tied = False  # whether GPU-time received without quota does not count
        self.queue: list[LtgfCandidate] = []
        self.next = 0

    def rho(self) -> float | None:
        """Return rho by (12), or None if the tenant deserves nothing yet."""
        return rho_of(self.alloc, self.fair)

    def rank(self) -> Rank:
        """Return the rank by rho; the lowest is served first.

        A claim whose rho is undefined is first until it receives GPU-time. After that it is last,
        by GPU-time over quota. Claims without quota follow, by GPU-time.
        """
        if self.fair:
            return self.alloc / self.fair, 0.0, 0
        if not self.alloc:
            return 0.0, 0.0, 0
        if self.quota:
            return inf, self.alloc / self.quota, 0
        return inf, inf, 0 if self.is_tied else self.alloc

    def entry(self, index: int) -> tuple[float, float, int, int, int, int]:
        """Return the claim's heap entry.

        On a tie, the claim whose next job was submitted earlier is first.
        """
        head = self.queue[self.next].job
        return (*self.rank(), head.submitted_us, head.id, index)

    def job_rho(self, row: JobService, at_us: int) -> float | None:
        """Return rho by (15), or None if the job deserves nothing yet."""
        return rho_of(job_received(row, at_us), self._job_fair_us(row, at_us))

    def score(self, row: JobService, at_us: int) -> tuple[float, float]:
        """Return (-reward, 0) for a job that ran, (inf, GPU-time / weight) if rho is undefined."""
        # Hot path, run for each waiting job in each round, so calls are inlined.
        if self._sums is None:
            fair_us = self.classes[row.demand, row.weight].fair_gpu_us - row.baseline_gpu_us
        else:
            fair_us = self._job_fair_us(row, at_us)
        received_us = row.alloc_gpu_us
        if row.held:
            received_us += row.held * (at_us - row.held_since_us)
        if fair_us:
            return received_us / fair_us, 0.0
        return inf, received_us / row.weight

    def _job_fair_us(self, row: JobService, at_us: int) -> int:
        if self._sums is not None:
            self._sums.advance(at_us)
            self.classes, self._sums = self._sums.classes, None
        return self.classes[row.demand, row.weight].fair_gpu_us - row.baseline_gpu_us


def claims(snapshot: Snapshot, options: LtgfOptions) -> list[TenantClaim]:
    """Return every claim of a snapshot with its candidates, sorted by (tenant, GPU type)."""
    at_us = snapshot.at_us
    by_quota = options.deserves_quota
    rows = {
        (row.tenant, row.gpu_type): TenantClaim(row, at_us, by_quota=by_quota)
        for row in snapshot.service.claims
    }
    by_key = _Claims(rows, at_us)
    classes: dict[tuple[int, str], dict[tuple[int, int], ClassService]] = {}
    for one in snapshot.service.classes:
        of_claim = classes.setdefault((one.tenant, one.gpu_type), {})
        of_claim[one.demand, one.weight] = one
    for key, of_claim in classes.items():
        by_key[key].classes = of_claim
    queue_up(_candidates(snapshot), by_key, at_us, options, capacity_by_type(snapshot.nodes))
    for claim in by_key.values():
        claim.is_tied = snapshot.policy_version == TIED_VERSION
    return [by_key[key] for key in sorted(by_key)]


def kept_claims(view: KeptRound, options: LtgfOptions) -> list[TenantClaim]:
    """Return the claims that have candidates, from kept sums."""
    if options.new_jobs_first or options.hooked:
        view.count_terms([*view.waiting, *(lease.job for lease in view.due)])
    ids = [*view.waiting, *[lease.job for lease in view.due]]
    leases: list[Lease | None] = [None] * len(view.waiting)
    leases += view.due
    jobs, rows = map(view.jobs.__getitem__, ids), map(view.sums.jobs.__getitem__, ids)
    by_key = _KeptClaims(view, by_quota=options.deserves_quota)
    waiting = zip(jobs, rows, leases, strict=True)
    queue_up(waiting, by_key, view.at_us, options, view.sums.capacity)
    return [by_key[key] for key in sorted(by_key)]


class _Claims(dict[tuple[int, str], TenantClaim]):
    """The claims by key. A claim without past quota or demand is created on first access."""

    def __init__(self, rows: Mapping[tuple[int, str], TenantClaim], at_us: int) -> None:
        super().__init__(rows)
        self._at_us = at_us

    def __missing__(self, key: tuple[int, str]) -> TenantClaim:
        claim = self[key] = TenantClaim(ClaimService(*key, self._at_us), self._at_us)
        return claim


class _KeptClaims(_Claims):
    """The claims by key. A claim is created only if it has candidates."""

    def __init__(self, view: KeptRound, *, by_quota: bool) -> None:
        super().__init__({}, view.at_us)
        self._sums, self._by_quota = view.sums.claims, by_quota

    def __missing__(self, key: tuple[int, str]) -> TenantClaim:
        row = self._sums.get(key)
        if row is None:
            return super().__missing__(key)
        claim = self[key] = TenantClaim(row, self._at_us, by_quota=self._by_quota)
        return claim


def queue_up(
    candidates: Iterable[Waiting],
    by_key: Mapping[tuple[int, str], TenantClaim],
    at_us: int,
    options: LtgfOptions,
    capacity: Mapping[str, int],
) -> None:
    """Put candidates into the queues of their claims, sorted.

    `capacity`: GPUs of the pool by type.
    """
    new_first, hooked = options.new_jobs_first, options.hooked
    only = next(iter(capacity)) if len(capacity) == 1 else None
    alone = AloneTypes()
    for job, sums, lease in candidates:
        claim = by_key[sums.tenant, sums.gpu_type]
        score = spent = 0.0
        if sums.alloc_gpu_us or sums.held:
            score, spent = claim.score(sums, at_us)
        if hooked:
            score -= _bonus(job, at_us, options)  # section 5.2.1
        old = new_first and job.terms > 0  # section 6.1.1
        rank = (old, score, spent, job.submitted_us, job.id)
        if sums.gpu_type == only or len(job.gpu_types) == 1:
            claim.queue.append(LtgfCandidate(rank, job, sums, lease, alone[sums.gpu_type]))
            continue
        types = reported_type_first(capacity, job, sums.gpu_type)
        candidate = LtgfCandidate(rank, job, sums, lease, types)
        for gpu_type in types:
            by_key[job.tenant, gpu_type].queue.append(candidate)
    for claim in tuple(by_key.values()):
        claim.queue.sort(key=_RANK)


def _candidates(snapshot: Snapshot) -> Iterator[Waiting]:
    """Yield jobs that wait or whose lease ended, with their GPU-time sums.

    Raises:
        ValueError: the sums do not contain a job.
    """
    ended = {lease.job: lease for lease in snapshot.leases if lease.ends_by(snapshot.at_us)}
    running = {lease.job for lease in snapshot.leases if lease.job not in ended}
    for job, sums in _with_sums(snapshot):
        if job.id not in running:  # jobs whose leases continue are not candidates
            yield job, sums, ended.get(job.id)


def _with_sums(snapshot: Snapshot) -> Iterator[tuple[Job, JobService]]:
    """Yield jobs with their GPU-time sums.

    Jobs and sums are both sorted by job and usually match, so they are zipped. If they do not
    match, sums are looked up.

    Raises:
        ValueError: the sums do not contain a job.
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
            raise ValueError(UNHEARD.format(job.id))
        yield job, by_job[job.id]


def _bonus(job: Job, at_us: int, options: LtgfOptions) -> float:
    """Return the job's bonus by the reward hooks of section 5.2.1."""
    bonus = options.lease_bonus * job.terms
    if not job.terms:
        bonus += options.new_job_bonus
    if job.deadline_us is not None:
        left = (job.deadline_us - at_us) / (options.deadline_horizon_s * SECOND_US)
        bonus += options.deadline_bonus * (1 - min(1.0, max(0.0, left)))
    return bonus
