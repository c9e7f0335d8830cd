"""Tickets (quotas as shares of each GPU type, for tenants that can use them), and traders.

Source: Gandiva_fair (EuroSys 2020), 3.2 and 3.4.

- A tenant's tickets of a type are its effective quota of the type after trades.
- Its fair share of a type comes from water filling. Capacity is shared in proportion to tickets. No
  tenant gets more than its jobs need; the rest goes to the others. Tenants without tickets share
  the remainder equally. The fastest type is shared first. Jobs that got their GPUs on one type do
  not also request slower types.
- Types are ordered by the mean speed of the profiles that run there, then by name.
"""

import itertools
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from evenshare_core.domain.cluster import Node, capacity_by_type
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.gandiva_fair.rates import FillRow, water_fill
from evenshare_core.policies.gandiva_fair.trading import Trader
from evenshare_core.units import GPU_MICRO, ONE_MILLI

Claim = tuple[int, str]  # (tenant, GPU type)
# Two profiles of a tenant count as the same if their speedups differ by at most this percentage.
SPREAD_PERCENT = 5


class GpuTypes:
    """The types that have GPUs now, slowest first, and the types that each job can use."""

    def __init__(self, nodes: Iterable[Node], profiles: Iterable[Profile]) -> None:
        nodes = tuple(nodes)
        capacity = capacity_by_type(nodes)
        self.profiles = {row.id: row for row in profiles}
        self.names = [name for name in sorted(capacity, key=self._rank) if capacity[name]]
        self.capacity = {name: capacity[name] for name in self.names}
        self.rank = {name: index for index, name in enumerate(self.names)}
        self._usable: dict[tuple[tuple[str, ...], int, int], tuple[str, ...]] = {}

    def _rank(self, name: str) -> tuple[Fraction, str]:
        speeds = [speed for row in self.profiles.values() if (speed := row.speed_milli(name))]
        return (Fraction(sum(speeds), len(speeds)) if speeds else Fraction(ONE_MILLI), name)

    def speed_milli(self, job: Job, gpu_type: str) -> int:
        """Return a job's speed on a type divided by that on its slowest type, in thousandths."""
        profile = self.profiles.get(job.profile)
        return ONE_MILLI if profile is None else profile.speed_milli(gpu_type)

    def usable(self, job: Job) -> tuple[str, ...]:
        """Return the accepted types that can run the job and are large enough, slowest first."""
        key = (job.gpu_types, job.profile, job.gpus)
        types = self._usable.get(key)
        if types is None:
            types = tuple(
                name
                for name in self.names
                if job.gpus <= self.capacity[name]
                and (not job.gpu_types or name in job.gpu_types)
                and self.speed_milli(job, name)
            )
            self._usable[key] = types
        return types


Demand = dict[int, dict[tuple[str, ...], int]]  # requested GPUs, by tenant and usable types


def demand_of(jobs: Iterable[tuple[Job, tuple[str, ...]]]) -> Demand:
    """Return the GPUs that tenants' jobs request. `jobs`: pairs of a job and its usable types."""
    demand: Demand = {}
    for job, usable in jobs:
        if usable:
            of_tenant = demand.setdefault(job.tenant, {})
            of_tenant[usable] = of_tenant.get(usable, 0) + job.gpus
    return demand


class _Uncovered:
    """The micro-GPUs that a tenant's jobs request and have not got yet."""

    def __init__(self, demand: Mapping[tuple[str, ...], int]) -> None:
        self._left = {usable: gpus * GPU_MICRO for usable, gpus in demand.items()}

    def of(self, gpu_type: str) -> int:
        return sum(micro for usable, micro in self._left.items() if gpu_type in usable)

    def cover(self, gpu_type: str, micro: int, rank: Mapping[str, int]) -> None:
        """Give micro-GPUs of a type to jobs that still request some, fewest slower types first."""
        here = [usable for usable in self._left if gpu_type in usable]
        for usable in sorted(here, key=lambda row: (_slower(row, gpu_type, rank), row)):
            part = min(micro, self._left[usable])
            self._left[usable] -= part
            micro -= part


def _slower(usable: tuple[str, ...], gpu_type: str, rank: Mapping[str, int]) -> int:
    return sum(1 for name in usable if rank[name] < rank[gpu_type])


def fair_shares(quotas: Mapping[Claim, int], demand: Demand, types: GpuTypes) -> dict[Claim, int]:
    """Return each tenant's share of each type; shares and `quotas` are in micro-GPUs.

    Source: 3.2, "effective tickets".
    """
    left = {tenant: _Uncovered(rows) for tenant, rows in sorted(demand.items())}
    shares: dict[Claim, int] = {}
    for name in reversed(types.names):
        asked = {tenant: one.of(name) for tenant, one in left.items()}
        amount = types.capacity[name] * GPU_MICRO
        for with_quota in (True, False):
            tenants = [
                tenant
                for tenant, micro in asked.items()
                if micro and (quotas.get((tenant, name), 0) > 0) is with_quota
            ]
            rows = [
                FillRow(quotas[tenant, name] if with_quota else 1, 0, asked[tenant])
                for tenant in tenants
            ]
            for tenant, micro in zip(tenants, water_fill(amount, rows), strict=True):
                shares[tenant, name] = micro
                left[tenant].cover(name, micro, types.rank)
                amount -= micro
    return shares


def covered_quotas(
    quotas: Mapping[Claim, int], demand: Demand, types: GpuTypes
) -> dict[Claim, int]:
    """Return the part of each quota that the tenant's jobs can use; fast types are used first."""
    left = {tenant: _Uncovered(rows) for tenant, rows in demand.items()}
    covered: dict[Claim, int] = {}
    for name in reversed(types.names):
        for tenant, one in left.items():
            covered[tenant, name] = min(quotas.get((tenant, name), 0), one.of(name))
            one.cover(name, covered[tenant, name], types.rank)
    return covered


def traders_of(snapshot: Snapshot, types: GpuTypes) -> dict[int, Trader]:
    """Return the tenants that may trade, by id, each with the quota that it may trade.

    A trader has no reserved quota. Its jobs that accept several types all have a profile, and their
    speedups differ by at most 5 %. Quota that its jobs of a single type need is not traded. If some
    of its jobs can run on fewer types than others, as large gangs may, these sets of types must be
    nested. The snapshot's quotas must be those before trades.
    """
    quotas = quotas_micro(snapshot.entitlements)
    keepers = {row.tenant for row in snapshot.entitlements if row.mode is Mode.RESERVE}
    pinned: dict[int, list[tuple[Job, tuple[str, ...]]]] = {}
    free: dict[int, list[tuple[Job, tuple[str, ...]]]] = {}
    for job in sorted(snapshot.jobs, key=lambda job: job.id):
        usable = types.usable(job)
        if usable:
            (free if len(usable) > 1 else pinned).setdefault(job.tenant, []).append((job, usable))
    traders = {}
    for tenant, asking in sorted(free.items()):
        asked = demand_of(asking)[tenant]
        widest = max(asked, key=len)
        profile = _one_profile(asking, types, widest)
        if profile is None or tenant in keepers or not _are_nested(asked):
            continue
        mine = {key: micro for key, micro in quotas.items() if key[0] == tenant}
        kept = demand_of(pinned.get(tenant, ())).get(tenant, {})
        for usable, gpus in kept.items():
            key = (tenant, usable[0])
            mine[key] = max(0, mine.get(key, 0) - gpus * GPU_MICRO)
        covered = covered_quotas(mine, {tenant: asked}, types)
        quota = {name: covered.get((tenant, name), 0) for name in types.names}
        speeds = {name: profile.speed_milli(name) for name in types.names if name in widest}
        within = _within_of(asked, widest)
        traders[tenant] = Trader(tenant, speeds, quota, sum(asked.values()) * GPU_MICRO, within)
    return traders


def _are_nested(asked: Iterable[tuple[str, ...]]) -> bool:
    sets = [set(usable) for usable in sorted(asked, key=len)]
    return all(one <= other for one, other in itertools.pairwise(sets))


def _within_of(
    asked: Mapping[tuple[str, ...], int], widest: tuple[str, ...]
) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return `Trader.within`: for types that some jobs cannot use, requests of other jobs."""
    rows = []
    for usable in sorted(asked, key=lambda row: (-len(row), row)):
        others = tuple(name for name in widest if name not in usable)
        if others:
            gpus = sum(asked[row] for row in asked if len(row) > len(usable))
            rows.append((others, gpus * GPU_MICRO))
    return tuple(rows)


def _one_profile(
    asking: Iterable[tuple[Job, tuple[str, ...]]], types: GpuTypes, widest: tuple[str, ...]
) -> Profile | None:
    """Return the profile with the most GPUs among jobs that use all of `widest`.

    Return None if a profile is missing, or if speedups differ by more than 5 %.
    """
    gpus: dict[int, int] = {}
    usable_by = set()
    for job, usable in asking:
        usable_by.add((job.profile, usable))
        if usable == widest:
            gpus[job.profile] = gpus.get(job.profile, 0) + job.gpus
    if any(key not in types.profiles for key, _ in usable_by):
        return None
    chosen = types.profiles[max(gpus, key=lambda key: (gpus[key], -key))]
    alike = all(_is_alike(types.profiles[key], chosen, usable) for key, usable in usable_by)
    return chosen if alike else None


def _is_alike(row: Profile, chosen: Profile, usable: tuple[str, ...]) -> bool:
    """Return whether two profiles' speeds, relative to the slowest type, differ by at most 5 %."""
    base, chosen_base = row.speed_milli(usable[0]), chosen.speed_milli(usable[0])
    return all(
        abs(row.speed_milli(name) * chosen_base - chosen.speed_milli(name) * base) * 100
        <= SPREAD_PERCENT * chosen.speed_milli(name) * base
        for name in usable
    )


def quotas_micro(entitlements: Iterable[Entitlement]) -> dict[Claim, int]:
    """Return quotas by claim, in micro-GPUs."""
    return {(row.tenant, row.gpu_type): row.gpus * GPU_MICRO for row in entitlements}


class TenantTypes(NamedTuple):
    """Fair shares, and GPUs of placed jobs, by tenant and GPU type."""

    shares: Mapping[Claim, int]  # fair shares in micro-GPUs
    placed: dict[Claim, int]  # GPUs of placed jobs

    def per_gpu(self, tenant: int, gpu_type: str, more: int = 0) -> float:
        """Return the share of a GPU, at most 1, for each GPU of the tenant's placed jobs.

        `more`: the number of GPUs to place in addition.
        """
        gpus = self.placed.get((tenant, gpu_type), 0) + more
        share = self.shares.get((tenant, gpu_type), 0) / GPU_MICRO
        return min(1.0, share / gpus) if gpus else min(1.0, share)

    def load(self, tenant: int, gpu_type: str) -> float:
        """Return the tickets per GPU of the tenant's placed jobs, (1), from its fair share."""
        gpus = self.placed.get((tenant, gpu_type), 0)
        return self.shares.get((tenant, gpu_type), 0) / gpus if gpus else 0.0
