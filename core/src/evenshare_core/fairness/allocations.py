"""A round's allocation as arrays: ideal shares, and allocated whole GPUs.

- A row is a tenant's job type with active jobs. Its weight is the tenant's quota in GPUs over
  all types, divided among its active job types by their priorities. Tenants without quota
  have no row; nor have job types that can run on no GPU type here.
- Columns are the GPU types that have GPUs now, slowest first: by the mean speed of the
  active profiles that run there, then by name.
- Speeds are relative to the row's own speed on the first column if it runs there, else to
  its slowest type. A speed is 0 if the profile has none, or if each of the row's jobs
  refuses the type or exceeds its GPUs.

Source: OEF 4.2.4; LTGF eq. (6) for weight and quota.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from evenshare_core.domain.cluster import placement_gpus
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.holds import HeldLease
from evenshare_core.fairness.properties import TOLERANCE, Array
from evenshare_core.units import ONE_MILLI

RowKey = tuple[int, int]  # (tenant, profile; 0 for jobs without a known profile)
# ideals are in whole micro-GPUs
QUANTUM = 1e-6


@dataclass(frozen=True, eq=False)
class Allocation:
    """Rows by (tenant, profile), sorted; columns by GPU type name.

    `demand` has the most GPUs that each row's jobs can use.
    """

    rows: tuple[RowKey, ...]
    gpu_types: tuple[str, ...]
    speedups: Array
    shares: Array
    capacity: Array
    weights: Array
    demand: Array

    @property
    def capped(self) -> Array:
        """1 if a row has all GPUs that it can use, else 0."""
        held = self.shares.sum(axis=1)
        slack = (TOLERANCE + QUANTUM * sum(self.shares.shape)) * np.maximum(1, self.demand)
        return np.asarray(held >= self.demand - slack, float)

    @property
    def bounded(self) -> Array:
        """1 if a row is limited by its jobs, not by its share.

        Scaled by weight, it could not use as many GPUs as the row with the most GPUs per weight
        has. No division can promise envy-freeness to such rows.
        """
        most = (self.shares.sum(axis=1) / self.weights).max(initial=0)
        short = self.demand < self.weights * most - QUANTUM
        return np.asarray(np.maximum(self.capped, short), float)

    @property
    def promised(self) -> Array:
        """1 for rows with the promise of envy-freeness: those that no cap affects.

        A program that reaches a row's cap during its steps gives the row a floor instead, and the
        row may end below its cap. The result does not show which rows were capped on the way. But
        if no row ends at its cap, no row was capped. A row that could use the whole pool is never
        capped.
        """
        concerned = self.capped.any() & (self.demand < self.capacity.sum())
        return np.asarray((self.bounded == 0) & ~concerned, float)

    @property
    def noise(self) -> Array:
        """The tolerance of each row's throughput, for the solver's accuracy and rounding.

        Rounding to micro-GPUs changes each share by up to half a micro-GPU. For each row, it may
        also take half a micro-GPU from the largest share of a type.
        """
        done = (self.speedups * self.shares).sum(axis=1)
        return np.asarray(TOLERANCE * done + self._rounding, float)

    @property
    def noise_against(self) -> Array:
        """The tolerance of row l's throughput with the share of row i, scaled by weight (n x n).

        The rounding error of the share of i is scaled by l's weight over i's.
        """
        times = np.maximum(1, self.weights[:, None] / self.weights[None, :])
        return np.asarray(self.noise[:, None] + self._rounding[:, None] * (times - 1), float)

    @property
    def _rounding(self) -> Array:
        fastest = self.speedups.max(axis=1, initial=1)
        return np.asarray(QUANTUM * sum(self.shares.shape) * fastest, float)


def frame(snapshot: Snapshot) -> Allocation:
    """Return the rows of all job types with jobs and quota now, with empty shares."""
    quota: dict[int, int] = {}
    for row in snapshot.entitlements:
        quota[row.tenant] = quota.get(row.tenant, 0) + row.gpus
    profiles = {row.id: row for row in snapshot.profiles}
    groups: dict[RowKey, list[Job]] = {}
    for job in snapshot.jobs:
        groups.setdefault((job.tenant, known_profile(job, profiles)), []).append(job)
    types = _columns(snapshot, [profiles[key] for _, key in groups if key])
    capacity = list(types.values())
    parts: dict[int, int] = {}
    for tenant, key in groups:
        parts[tenant] = parts.get(tenant, 0) + _priority(profiles, key)
    rows, speedups, weights, demand = [], [], [], []
    for tenant, key in sorted(groups):
        speeds, usable = _speeds(profiles.get(key), types, groups[tenant, key])
        if usable and quota.get(tenant, 0) > 0:
            rows.append((tenant, key))
            speedups.append(speeds)
            weights.append(quota[tenant] * _priority(profiles, key) / parts[tenant])
            demand.append(usable)
    return Allocation(
        rows=tuple(rows),
        gpu_types=tuple(types),
        speedups=np.array(speedups, float).reshape(len(rows), len(types)),
        shares=np.zeros((len(rows), len(types))),
        capacity=np.array(capacity, float),
        weights=np.array(weights, float),
        demand=np.array(demand, float),
    )


def known_profile(job: Job, profiles: dict[int, Profile]) -> int:
    """Return the job's profile; 0 if it has none, or one that is not in the snapshot."""
    return job.profile if job.profile in profiles else 0


def _priority(profiles: dict[int, Profile], key: int) -> int:
    return profiles[key].priority if key in profiles else 1


def _columns(snapshot: Snapshot, profiles: Iterable[Profile]) -> dict[str, int]:
    """Return GPU types with their GPUs, slowest first."""
    gpus: dict[str, int] = {}  # counted without code of the policies (ADR 0200)
    for node in snapshot.nodes:
        gpus[node.gpu_type] = gpus.get(node.gpu_type, 0) + node.gpus
    speeds_by_type: dict[str, list[int]] = {}
    for profile in profiles:
        for name, speed in profile.speedups:
            if speed:
                speeds_by_type.setdefault(name, []).append(speed)

    def mean(name: str) -> float:
        speeds = speeds_by_type.get(name, [ONE_MILLI])
        return sum(speeds) / len(speeds)

    there = sorted((name for name, count in gpus.items() if count), key=lambda n: (mean(n), n))
    return {name: gpus[name] for name in there}


def _speeds(
    profile: Profile | None, types: dict[str, int], jobs: Iterable[Job]
) -> tuple[list[float], int]:
    """Return a row's speeds, and the GPUs that its jobs can use on any of the types."""
    speed_by_type = dict(profile.speedups) if profile else dict.fromkeys(types, ONE_MILLI)
    runs: set[str] = set()
    usable = 0
    # Jobs with the same accepted types and the same size are checked once.
    counts: dict[tuple[tuple[str, ...], int], int] = {}
    for job in jobs:
        counts[job.gpu_types, job.gpus] = counts.get((job.gpu_types, job.gpus), 0) + 1
    for (accepted, gpus), count in counts.items():
        fits = [
            name
            for name, there in types.items()
            if speed_by_type.get(name) and gpus <= there and (not accepted or name in accepted)
        ]
        runs.update(fits)
        usable += gpus * count if fits else 0
    base = speed_by_type.get(next(iter(types), ""), 0) or ONE_MILLI
    return [speed_by_type.get(name, 0) / base if name in runs else 0.0 for name in types], usable


def ideal_shares(allocation: Allocation, decision: Decision) -> Array:
    """Return the GPUs before rounding; ideals without a row are left out."""
    rows = {key: place for place, key in enumerate(allocation.rows)}
    types = {name: place for place, name in enumerate(allocation.gpu_types)}
    shares = np.zeros_like(allocation.shares)
    for ideal in decision.ideals:
        row, column = rows.get((ideal.tenant, ideal.profile)), types.get(ideal.gpu_type)
        if row is not None and column is not None:
            shares[row, column] += ideal.gpus
    return shares


def held_shares(allocation: Allocation, snapshot: Snapshot, held: list[HeldLease]) -> Array:
    """Return the GPUs held after the round."""
    rows = {key: place for place, key in enumerate(allocation.rows)}
    types = {name: place for place, name in enumerate(allocation.gpu_types)}
    profiles = {row.id: row for row in snapshot.profiles}
    profile_of = {job.id: known_profile(job, profiles) for job in snapshot.jobs}
    shares = np.zeros_like(allocation.shares)
    for hold in held:
        row = rows.get((hold.tenant, profile_of.get(hold.job, 0)))
        column = types.get(hold.gpu_type)
        if row is not None and column is not None:
            shares[row, column] += placement_gpus(hold.placement)
    return shares
