"""Who shares what: the job types of tenants as rows, the GPU types as columns, and the program.

Source: OEF (Middleware 2024), 4.2.4: each job type of a tenant is a virtual tenant.

- A row is (tenant, profile); jobs without a profile are one job type of speed 1 everywhere. It
  stands for the active jobs of that type, and is gone with the last of them.
- A tenant's weight is the sum of its effective quotas over the GPU types of the pool, and its rows
  divide it by their profiles' priorities. A tenant without quota has weight 0: no row in the
  program, leftovers only.
- Columns are the GPU types that have GPUs now, slowest first: by the mean speed of the profiles
  that run there, then by name. Speeds are taken relative to the first column.
- A row cannot run on a type where its profile has no speed, that none of its jobs accepts, or that
  is smaller than each of their gangs: its speed there is 0.
- It is capped by what its jobs can use; a cap that the whole pool does not exceed is left out, so
  that arrivals in a long queue change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import inf
from typing import NamedTuple

import numpy as np

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.decision import Solve
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import JobService, Snapshot
from evenshare_core.domain.values import canonical_bytes, sha256_hex
from evenshare_core.formulations.shares import ShareProblem, ShareRule, solve_shares
from evenshare_core.units import GPU_MICRO, ONE_MILLI


class Candidate(NamedTuple):
    """A job that waits or whose lease ended; in the order of its first three fields."""

    since_us: int
    submitted_us: int
    id: int
    job: Job
    lease: Lease | None


class Column(NamedTuple):
    """A GPU type with the GPUs that may be scheduled now."""

    name: str
    gpus: int


class Row:
    """The active jobs of one job type of a tenant; tuples and lists have an entry per column.

    `speeds`: thousandths, 0 where it cannot run; `base`: of its profile on the slowest type, 1000
    where that cannot run there. `gangs`: the smallest gang that may run there
    (0: none). `most`: GPUs that its jobs can use. `ideal` in micro-GPUs and `deviation` in
    micro-GPU-microseconds; `real` are whole GPUs of this round, `held` those on its account.
    """

    __slots__ = (
        "_kinds", "base", "columns", "deviation", "gangs", "held", "ideal", "largest", "most",
        "profile", "queue", "real", "speeds", "tenant", "weight",
    )  # fmt: skip

    def __init__(
        self, key: tuple[int, int], weight: Fraction, speeds: Sequence[int],
        columns: Sequence[Column], jobs: Sequence[Job],
    ) -> None:  # fmt: skip
        (self.tenant, self.profile), self.weight = key, weight
        self.columns = columns
        self._kinds: dict[tuple[tuple[str, ...], int], tuple[int, ...]] = {}
        self.base = (speeds[0] if speeds else 0) or ONE_MILLI
        self.speeds = tuple(speeds)
        self.gangs = tuple(
            min((job.gpus for job in jobs if kind in self.kinds(job)), default=0)
            for kind in range(len(columns))
        )
        self.speeds = tuple(
            speed if gang else 0 for speed, gang in zip(speeds, self.gangs, strict=True)
        )
        usable = [job.gpus for job in jobs if self.kinds(job)]
        self.most, self.largest = sum(usable), max(usable, default=0)
        self.queue: list[Candidate] = []
        self.ideal = self.real = (0,) * len(columns)
        self.deviation, self.held = [0] * len(columns), [0] * len(columns)

    @property
    def key(self) -> tuple[int, int]:
        """Ties go to the lower tenant, then to the lower profile."""
        return (self.tenant, self.profile)

    def kinds(self, job: Job) -> tuple[int, ...]:
        """The columns on which a job of this row can run: fastest first, of equals the slower."""
        found = self._kinds.get((job.gpu_types, job.gpus))
        if found is None:
            fits = [
                kind
                for kind, column in enumerate(self.columns)
                if self.speeds[kind]
                and job.gpus <= column.gpus
                and (not job.gpu_types or column.name in job.gpu_types)
            ]
            found = tuple(sorted(fits, key=lambda kind: (-self.speeds[kind], kind)))
            self._kinds[job.gpu_types, job.gpus] = found
        return found

    def deficit(self, lease_us: int) -> int:
        """What it is behind now, in micro-GPU-microseconds: ideal + deviation - held."""
        missing = sum(self.ideal) - sum(self.held) * GPU_MICRO
        return missing * lease_us + sum(self.deviation)


def table(snapshot: Snapshot, *, by_starvation: bool) -> tuple[list[Column], list[Row]]:
    """Return the columns and the rows of a round, rows in the order of their keys, with queues."""
    profiles = {row.id: row for row in snapshot.profiles}
    groups: dict[tuple[int, int], list[Job]] = {}
    for job in snapshot.jobs:
        profile = job.profile if job.profile in profiles else 0
        groups.setdefault((job.tenant, profile), []).append(job)
    columns = _columns(snapshot, [profiles[key] for _, key in groups if key])
    weights = _weights(snapshot, groups, profiles)
    rows = [
        Row(key, weights[key], _speeds(profiles.get(key[1]), columns), columns, groups[key])
        for key in sorted(groups)
    ]
    _queue(snapshot, rows, groups, by_starvation=by_starvation)
    return columns, rows


def _columns(snapshot: Snapshot, profiles: Iterable[Profile]) -> list[Column]:
    gpus = capacity_by_type(snapshot.nodes)
    told: dict[str, list[int]] = {}
    for profile in profiles:
        for gpu_type, speed in profile.speedups:
            if speed:
                told.setdefault(gpu_type, []).append(speed)

    def rank(name: str) -> tuple[Fraction, str]:
        speeds = told.get(name, [ONE_MILLI])
        return (Fraction(sum(speeds), len(speeds)), name)

    return [Column(name, gpus[name]) for name in sorted(gpus, key=rank) if gpus[name] > 0]


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


def _speeds(profile: Profile | None, columns: Sequence[Column]) -> list[int]:
    if profile is None:
        return [ONE_MILLI] * len(columns)
    told = dict(profile.speedups)
    return [told.get(column.name, 0) for column in columns]


def _queue(
    snapshot: Snapshot,
    rows: Iterable[Row],
    groups: dict[tuple[int, int], list[Job]],
    *,
    by_starvation: bool,
) -> None:
    """Put the jobs that may be given GPUs now into their row, longest starvation first."""
    at_us = snapshot.at_us
    ended = {lease.job: lease for lease in snapshot.leases if lease.ends_by(at_us)}
    running = {lease.job for lease in snapshot.leases if lease.job not in ended}
    sums = {row.job: row for row in snapshot.service.jobs}
    for row in rows:
        for job in groups[row.key]:
            if job.id in running:
                continue
            lease = ended.get(job.id)
            since_us = at_us if lease is not None else _starved_since(job, sums.get(job.id))
            if not by_starvation:
                since_us = 0
            row.queue.append(Candidate(since_us, job.submitted_us, job.id, job, lease))
        row.queue.sort(key=lambda one: one[:3])


def _starved_since(job: Job, sums: JobService | None) -> int:
    """When it last held GPUs, else when it was submitted: the snapshot's sums know it."""
    return max(job.submitted_us, sums.held_since_us if sums is not None else 0)


class Shares(NamedTuple):
    """Fractional shares in micro-GPUs by row, how they were found, and of which program."""

    key: str
    micro: dict[tuple[int, int], tuple[int, ...]]
    solve: Solve | None


class Program:
    """The program of a round: the rows with weight that can run, and what identifies it."""

    def __init__(
        self, rows: Iterable[Row], columns: Sequence[Column], rule: ShareRule, backend: str
    ) -> None:
        self._rule, self._backend, self._columns = rule, backend, columns
        self._rows = [row for row in rows if row.weight and row.most]
        everything = sum(column.gpus for column in columns)
        self._caps = [row.most if row.most < everything else None for row in self._rows]
        told = [
            [*row.key, *row.weight.as_integer_ratio(), row.base, row.speeds, cap]
            for row, cap in zip(self._rows, self._caps, strict=True)
        ]
        self.key = sha256_hex(canonical_bytes([rule.value, backend, columns, told]))

    def solve(self) -> Shares:
        """Solve it anew. A solver that fails is told of as a fallback, never raised."""
        if not self._rows:
            return Shares(self.key, {}, None)
        found = solve_shares(
            ShareProblem(
                speedups=np.array(
                    [[speed / row.base for speed in row.speeds] for row in self._rows]
                ),
                capacity=np.array([float(column.gpus) for column in self._columns]),
                weights=np.array([float(row.weight) for row in self._rows]),
                caps=np.array([inf if cap is None else float(cap) for cap in self._caps]),
            ),
            self._rule,
            self._backend,
        )
        micro = quantised(found.shares.tolist(), [column.gpus for column in self._columns])
        return Shares(
            self.key,
            {row.key: shares for row, shares in zip(self._rows, micro, strict=True)},
            Solve(found.backend, found.status, round(float(found.total), 6), found.fallback),
        )


def quantised(shares: Sequence[Sequence[float]], capacity: Sequence[int]) -> list[tuple[int, ...]]:
    """Round a solver's floats once, to micro-GPUs; what then exceeds a type is taken from the top.

    A solver's last digits may differ between machines, those of a micro-GPU do not.
    """
    rows = [[max(0, round(share * GPU_MICRO)) for share in row] for row in shares]
    for kind, gpus in enumerate(capacity):
        over = sum(row[kind] for row in rows) - gpus * GPU_MICRO
        for row in sorted(rows, key=lambda row: -row[kind]):  # of equals the first: it is stable
            cut = min(row[kind], max(0, over))
            row[kind] -= cut
            over -= cut
    return [tuple(row) for row in rows]
