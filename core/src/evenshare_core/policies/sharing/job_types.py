"""The participants of a round: the job types of tenants, the GPU types, and the program.

Source: OEF (Middleware 2024), 4.2.4: each job type of a tenant is a virtual tenant.

- A job type is (tenant, profile). It exists while the tenant has active jobs with this profile.
  Jobs without a profile form a job type with speed 1 on all types.
- A tenant's weight is the sum of its effective quotas over the GPU types of the pool. It is divided
  among its job types by their profiles' priorities. A tenant without quota has weight 0: it is not
  in the program and gets only leftover GPUs.
- The GPU types are those that have GPUs now, slowest first: by the mean speed of the profiles that
  run on them, then by name. Speeds are relative to the first type.
- The speed of a job type is 0 on a GPU type that it cannot use. Its profile has no speed on the
  type, none of its jobs accepts the type, or the type is too small for all its jobs.
- A job type is capped by the GPUs that its jobs can use. A cap of at least the whole pool is left
  out, so that arrivals in a long queue do not change the program.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from math import inf
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.decision import Solve
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import JobService, Snapshot
from evenshare_core.domain.values import canonical_bytes, sha256_hex
from evenshare_core.formulations.problems import ShareProblem, ShareRule
from evenshare_core.formulations.shares import solve_shares
from evenshare_core.units import GPU_MICRO, ONE_MILLI


class WaitingJob(NamedTuple):
    """A job that waits or whose lease ended. Jobs are sorted by the first three fields."""

    since_us: int
    submitted_us: int
    id: int
    job: Job
    lease: Lease | None


class GpuTypeCapacity(NamedTuple):
    """A GPU type with its schedulable GPUs."""

    name: str
    gpus: int


class JobType:
    """The active jobs of one job type of a tenant. Tuples and lists have an entry per GPU type.

    `speeds`: in thousandths, 0 on types that the job type cannot use. `base`: the speed on the
    slowest type, or 1000 if it cannot use this type. `gangs`: the smallest gang that may run on
    each type (0 if none). `most`: GPUs that its jobs can use. `ideal` is in micro-GPUs and
    `deviation` in micro-GPU-microseconds. `real`: whole GPUs of this round. `held`: GPUs that count
    as received.
    """

    __slots__ = (
        "_usable",
        "base",
        "deviation",
        "gangs",
        "held",
        "ideal",
        "largest",
        "most",
        "profile",
        "queue",
        "real",
        "speeds",
        "tenant",
        "types",
        "weight",
    )

    def __init__(
        self, key: tuple[int, int], weight: Fraction, speeds: Sequence[int],
        types: Sequence[GpuTypeCapacity], jobs: Sequence[Job],
    ) -> None:  # fmt: skip # rows of what belongs together
        (self.tenant, self.profile), self.weight = key, weight
        self.types = types
        self._usable: dict[tuple[tuple[str, ...], int], tuple[int, ...]] = {}
        self.base = (speeds[0] if speeds else 0) or ONE_MILLI
        self.speeds = tuple(speeds)
        self.gangs = tuple(
            min((job.gpus for job in jobs if type_index in self.usable_types(job)), default=0)
            for type_index in range(len(types))
        )
        self.speeds = tuple(
            speed if gang else 0 for speed, gang in zip(speeds, self.gangs, strict=True)
        )
        usable = [job.gpus for job in jobs if self.usable_types(job)]
        self.most, self.largest = sum(usable), max(usable, default=0)
        self.queue: list[WaitingJob] = []
        self.ideal = self.real = (0,) * len(types)
        self.deviation, self.held = [0] * len(types), [0] * len(types)

    @property
    def key(self) -> tuple[int, int]:
        """Return (tenant, profile). On a tie, the lower tenant is first, then the lower profile."""
        return (self.tenant, self.profile)

    def usable_types(self, job: Job) -> tuple[int, ...]:
        """Return the types on which a job of this type can run: fastest first, then by index."""
        usable = self._usable.get((job.gpu_types, job.gpus))
        if usable is None:
            fits = [
                type_index
                for type_index, capacity in enumerate(self.types)
                if self.speeds[type_index]
                and job.gpus <= capacity.gpus
                and (not job.gpu_types or capacity.name in job.gpu_types)
            ]
            usable = tuple(sorted(fits, key=lambda index: (-self.speeds[index], index)))
            self._usable[job.gpu_types, job.gpus] = usable
        return usable

    def deficit(self, lease_us: int) -> int:
        """Return the current deficit ideal + deviation - held, in micro-GPU-microseconds."""
        missing = sum(self.ideal) - sum(self.held) * GPU_MICRO
        return missing * lease_us + sum(self.deviation)


def read_job_types(
    snapshot: Snapshot, *, by_starvation: bool
) -> tuple[list[GpuTypeCapacity], list[JobType]]:
    """Return a round's GPU types, and its job types with their queues, sorted by key."""
    profiles = {row.id: row for row in snapshot.profiles}
    groups: dict[tuple[int, int], list[Job]] = {}
    for job in snapshot.jobs:
        profile = job.profile if job.profile in profiles else 0
        groups.setdefault((job.tenant, profile), []).append(job)
    types = _gpu_types(snapshot, [profiles[key] for _, key in groups if key])
    weights = _weights(snapshot, groups, profiles)
    job_types = [
        JobType(key, weights[key], _speeds(profiles.get(key[1]), types), types, groups[key])
        for key in sorted(groups)
    ]
    _queue(snapshot, job_types, groups, by_starvation=by_starvation)
    return types, job_types


def _gpu_types(snapshot: Snapshot, profiles: Iterable[Profile]) -> list[GpuTypeCapacity]:
    gpus = capacity_by_type(snapshot.nodes)
    speeds_on: dict[str, list[int]] = {}
    for profile in profiles:
        for gpu_type, speed in profile.speedups:
            if speed:
                speeds_on.setdefault(gpu_type, []).append(speed)

    def rank(name: str) -> tuple[Fraction, str]:
        speeds = speeds_on.get(name, [ONE_MILLI])
        return (Fraction(sum(speeds), len(speeds)), name)

    return [GpuTypeCapacity(name, gpus[name]) for name in sorted(gpus, key=rank) if gpus[name] > 0]


def _weights(
    snapshot: Snapshot,
    keys: Iterable[tuple[int, int]],
    profiles: dict[int, Profile],
) -> dict[tuple[int, int], Fraction]:
    quotas: dict[int, int] = {}
    for row in snapshot.entitlements:
        quotas[row.tenant] = quotas.get(row.tenant, 0) + row.gpus
    priorities = {key: profiles[key[1]].priority if key[1] else 1 for key in keys}
    sums: dict[int, int] = {}
    for (tenant, _), priority in priorities.items():
        sums[tenant] = sums.get(tenant, 0) + priority
    return {
        key: Fraction(quotas.get(key[0], 0) * priority, sums[key[0]])
        for key, priority in priorities.items()
    }


def _speeds(profile: Profile | None, types: Sequence[GpuTypeCapacity]) -> list[int]:
    if profile is None:
        return [ONE_MILLI] * len(types)
    speeds = dict(profile.speedups)
    return [speeds.get(capacity.name, 0) for capacity in types]


def _queue(
    snapshot: Snapshot,
    job_types: Iterable[JobType],
    groups: dict[tuple[int, int], list[Job]],
    *,
    by_starvation: bool,
) -> None:
    """Queue the jobs that may get GPUs now by job type, the longest-starved first."""
    at_us = snapshot.at_us
    ended = {lease.job: lease for lease in snapshot.leases if lease.ends_by(at_us)}
    running = {lease.job for lease in snapshot.leases if lease.job not in ended}
    sums = {row.job: row for row in snapshot.service.jobs}
    for job_type in job_types:
        for job in groups[job_type.key]:
            if job.id in running:
                continue
            lease = ended.get(job.id)
            since_us = at_us if lease is not None else _starved_since(job, sums.get(job.id))
            if not by_starvation:
                since_us = 0
            job_type.queue.append(WaitingJob(since_us, job.submitted_us, job.id, job, lease))
        job_type.queue.sort(key=_longest_starved)


def _longest_starved(one: WaitingJob) -> tuple[int, int, int]:
    return (one.since_us, one.submitted_us, one.id)


def _starved_since(job: Job, sums: JobService | None) -> int:
    """Return when the job last held GPUs, or when it was submitted."""
    return max(job.submitted_us, sums.held_since_us if sums is not None else 0)


class SolvedShares(NamedTuple):
    """Fractional shares in micro-GPUs by job type, and the program that they solve.

    `micro` is in the order of the program's job types. Its keys and `key` together identify the
    program.
    """

    key: str
    micro: dict[tuple[int, int], tuple[int, ...]]
    solve: Solve | None


class RoundProgram:
    """The program of a round: its identity, and the job types that have weight and can run.

    `former`: solved by the method of former versions. `keys`: the job types, in order. `key`: a
    hash of all other inputs, without ids, so that the memory does not depend on ids (ADR 0195).
    `most`: returns the most GPUs that a job type may get.
    """

    def __init__(
        self,
        job_types: Iterable[JobType],
        types: Sequence[GpuTypeCapacity],
        rule: ShareRule,
        backend: str,
        *,
        former: bool = False,
        most: Callable[[JobType], int] = attrgetter("most"),
    ) -> None:
        self._rule, self._backend, self._types = rule, backend, types
        self._former = former
        self._job_types = [one for one in job_types if one.weight and one.most]
        everything = sum(capacity.gpus for capacity in types)
        self._caps = [cap if (cap := most(one)) < everything else None for one in self._job_types]
        identities = [
            [*one.weight.as_integer_ratio(), one.base, one.speeds, cap]
            for one, cap in zip(self._job_types, self._caps, strict=True)
        ]
        self.keys = tuple(one.key for one in self._job_types)
        self.key = sha256_hex(canonical_bytes([rule.value, backend, types, identities]))

    def solve(self) -> SolvedShares:
        """Solve the program. If the solver fails, the solution records the fallback used."""
        if not self._job_types:
            return SolvedShares(self.key, {}, None)
        solution = solve_shares(
            ShareProblem(
                speedups=np.array(
                    [[speed / one.base for speed in one.speeds] for one in self._job_types]
                ),
                capacity=np.array([float(capacity.gpus) for capacity in self._types]),
                weights=np.array([float(one.weight) for one in self._job_types]),
                caps=np.array([inf if cap is None else float(cap) for cap in self._caps]),
            ),
            self._rule,
            self._backend,
            former=self._former,
        )
        micro = quantised(solution.shares.tolist(), [capacity.gpus for capacity in self._types])
        return SolvedShares(
            self.key,
            {one.key: shares for one, shares in zip(self._job_types, micro, strict=True)},
            Solve(
                solution.backend,
                solution.status,
                round(float(solution.total), 6),
                solution.fallback,
            ),
        )


def quantised(shares: Sequence[Sequence[float]], capacity: Sequence[int]) -> list[tuple[int, ...]]:
    """Round a solver's floats to micro-GPUs.

    If a type is exceeded, the largest shares are reduced. The last digits of a solver may differ
    between machines, but micro-GPUs do not.
    """
    rows = [[max(0, round(share * GPU_MICRO)) for share in row] for row in shares]
    for type_index, gpus in enumerate(capacity):
        over = sum(row[type_index] for row in rows) - gpus * GPU_MICRO
        # on a tie, the first row is reduced first
        for row in sorted(rows, key=itemgetter(type_index), reverse=True):
            cut = min(row[type_index], max(0, over))
            row[type_index] -= cut
            over -= cut
    return [tuple(row) for row in rows]
