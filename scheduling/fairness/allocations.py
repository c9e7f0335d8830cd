"""A round's allocation as arrays: what was ideal, and what was held in whole GPUs.

A row is one job type of a tenant that has jobs now, with its part of the tenant's weight: the
tenant's GPUs of quota over all types, divided by the priorities of its job types. A tenant
without quota has no weight, and no row. Source: OEF 4.2.4; LTGF eq. (6) for weight and quota.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduling.domain.decision import Decision
from scheduling.domain.profiles import PLAIN_MILLI
from scheduling.domain.snapshot import Snapshot
from scheduling.fairness.holds import Hold
from scheduling.fairness.properties import TOLERANCE, Array

RowKey = tuple[int, int]  # (tenant, profile)


@dataclass(frozen=True, eq=False)
class Allocation:
    """Rows by (tenant, profile), sorted; columns by GPU type name.

    `demand`: GPUs that the row's jobs can use; nobody can do more with more.
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
        """1 where a row has all GPUs that it can use: no promise is made to it beyond that."""
        held = self.shares.sum(axis=1)
        return np.asarray(held >= self.demand - TOLERANCE * np.maximum(1, self.demand), float)


def frame(snapshot: Snapshot) -> Allocation:
    """Return the rows of all that have jobs and quota now, with empty shares."""
    quota: dict[int, int] = {}
    for row in snapshot.entitlements:
        quota[row.tenant] = quota.get(row.tenant, 0) + row.gpus
    demand: dict[RowKey, int] = {}
    for job in snapshot.jobs:
        if quota.get(job.tenant, 0) > 0:
            key = (job.tenant, job.profile)
            demand[key] = demand.get(key, 0) + job.gpus
    capacity: dict[str, int] = {}
    for node in snapshot.nodes:
        capacity[node.gpu_type] = capacity.get(node.gpu_type, 0) + node.gpus
    rows, types = tuple(sorted(demand)), tuple(sorted(capacity))
    priority = {row.id: row.priority for row in snapshot.profiles}
    parts: dict[int, int] = {}
    for tenant, profile in rows:
        parts[tenant] = parts.get(tenant, 0) + priority.get(profile, 1)
    return Allocation(
        rows=rows,
        gpu_types=types,
        speedups=_speedups(snapshot, rows, types),
        shares=np.zeros((len(rows), len(types))),
        capacity=np.array([capacity[name] for name in types], float),
        weights=np.array(
            [quota[t] * priority.get(p, 1) / parts[t] for t, p in rows], float
        ),
        demand=np.array([demand[key] for key in rows], float),
    )  # fmt: skip


def _speedups(snapshot: Snapshot, rows: tuple[RowKey, ...], types: tuple[str, ...]) -> Array:
    """A row without a profile runs equally fast everywhere."""
    known = {row.id: dict(row.speedups) for row in snapshot.profiles}
    table = np.ones((len(rows), len(types)))
    for place, (_, profile) in enumerate(rows):
        if profile in known:
            table[place] = [known[profile].get(name, 0) / PLAIN_MILLI for name in types]
    return table


def ideal_shares(found: Allocation, decision: Decision) -> Array:
    """Return the GPUs before rounding; ideals of who has no row are left out."""
    rows = {key: place for place, key in enumerate(found.rows)}
    types = {name: place for place, name in enumerate(found.gpu_types)}
    shares = np.zeros_like(found.shares)
    for ideal in decision.ideals:
        row, column = rows.get((ideal.tenant, ideal.profile)), types.get(ideal.gpu_type)
        if row is not None and column is not None:
            shares[row, column] += ideal.gpus
    return shares


def held_shares(found: Allocation, snapshot: Snapshot, held: list[Hold]) -> Array:
    """Return the GPUs held after the round."""
    rows = {key: place for place, key in enumerate(found.rows)}
    types = {name: place for place, name in enumerate(found.gpu_types)}
    profile_of = {job.id: job.profile for job in snapshot.jobs}
    shares = np.zeros_like(found.shares)
    for hold in held:
        row = rows.get((hold.tenant, profile_of.get(hold.job, 0)))
        column = types.get(hold.gpu_type)
        if row is not None and column is not None:
            shares[row, column] += sum(gpus for _, gpus in hold.placement)
    return shares
