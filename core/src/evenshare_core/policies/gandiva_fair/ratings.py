"""Rates of jobs at their homes, recomputed when their inputs change.

If tickets, nodes or options of a GPU type change, all of its rates are recomputed. If jobs came,
left or moved, only the rates of their nodes are recomputed, given the tenants' rates on other
nodes. If the totals of tenants have then drifted by 1 % of the type, all rates are recomputed. In a
small pool, one change can be enough for that.

Rates equalize tenants, not the jobs of one tenant. If a tenant gets all that it deserves on other
nodes, one of its jobs would have the rate 0 and never get a turn. A job's rate is therefore at
least a fraction of its tenant's tickets per GPU. A tenant's jobs over the same nodes share evenly.
"""

from collections.abc import Iterable, Mapping

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.values import canonical_bytes, sha256_hex
from evenshare_core.policies.gandiva_fair.homes import TypeHomes
from evenshare_core.policies.gandiva_fair.memory import Memory, Rated, StrideJob
from evenshare_core.policies.gandiva_fair.rates import (
    UNIT,
    SpanningJob,
    level_again,
    placement_rates,
)
from evenshare_core.policies.gandiva_fair.tickets import Claim
from evenshare_core.units import GPU_MICRO

# All rates of a type are recomputed if the totals drift by more than 1 / DRIFT of the type.
DRIFT = 100
# If a job's tenant has tickets, the job's minimum rate is (1) x size / LEAST_PART.
LEAST_PART = 16


def set_rates(
    tickets: str,
    homes: Mapping[str, TypeHomes],
    jobs: Iterable[StrideJob],
    quotas: Mapping[Claim, int],
    memory: Memory,
) -> None:
    """Set the rate of every job that has a home. `tickets`: the policy's option of this name."""
    by_type: dict[str, dict[int, int]] = {}
    for (tenant, gpu_type), micro in sorted(quotas.items()):
        if micro:
            by_type.setdefault(gpu_type, {})[tenant] = micro
    for name, row in homes.items():
        weights = by_type.get(name, {})
        tenants = tuple(sorted(weights))
        made_of = [tickets, [weights[tenant] for tenant in tenants], sorted(row.gpus.items())]
        key = sha256_hex(canonical_bytes(made_of))
        before = memory.rated.get(name)
        is_same = before is not None and (before.key, before.tenants) == (key, tenants)
        if is_same and not row.touched:
            continue
        if tickets == "paper":
            _rate_by_tickets(row, weights)
            totals: dict[int, int] = {}
        else:
            least = _least_rates(name, jobs, weights)
            if (
                before is None
                or not is_same
                or not _rate_nodes(row, weights, before.totals, jobs, least)
            ):
                totals = _rate_by_placement(row, weights, least)
            else:
                totals = before.totals
        memory.rated[name] = Rated(key, totals, tenants)
        row.touched.clear()
    for name in memory.rated.keys() - homes.keys():
        del memory.rated[name]


def _demand(row: TypeHomes, nodes: Iterable[int]) -> dict[int, dict[int, int]]:
    """Return, by node and tenant, the GPUs of jobs whose home is one node."""
    demand: dict[int, dict[int, int]] = {}
    for node in nodes:
        asked = demand[node] = {}
        for one in row.jobs[node]:
            if len(one.home) == 1:
                asked[one.job.tenant] = asked.get(one.job.tenant, 0) + one.job.gpus
    return demand


def _least_rates(
    gpu_type: str, jobs: Iterable[StrideJob], weights: Mapping[int, int]
) -> dict[int, int]:
    """Return each tenant's minimum rate per GPU. `weights`: tickets in micro-GPUs."""
    gpus: dict[int, int] = {}
    for one in jobs:
        if one.gpu_type == gpu_type:
            tenant = one.job.tenant
            gpus[tenant] = gpus.get(tenant, 0) + one.job.gpus
    return {
        tenant: min(GPU_MICRO, weights.get(tenant, 0) // count) * UNIT // (GPU_MICRO * LEAST_PART)
        for tenant, count in gpus.items()
    }


def _set_small(
    row: TypeHomes,
    demand: Mapping[int, Mapping[int, int]],
    small: Mapping[int, Mapping[int, int]],
    least: Mapping[int, int],
) -> None:
    for node, asked in demand.items():
        for one in row.jobs[node]:
            if len(one.home) == 1:
                tenant, gpus = one.job.tenant, one.job.gpus
                rate = small[node][tenant] * gpus // asked[tenant]
                one.passes.set_rate(max(rate, least[tenant] * gpus))


def _set_spanning(
    spanning: Mapping[int, StrideJob], rates: Mapping[int, int], least: Mapping[int, int]
) -> None:
    alike: dict[tuple[int, Placement], list[int]] = {}
    for key, one in spanning.items():
        alike.setdefault((one.job.tenant, one.home), []).append(key)
    for (tenant, _), keys in alike.items():
        rate = sum(rates[key] for key in keys) // len(keys)
        for key in keys:
            spanning[key].passes.set_rate(max(rate, least[tenant] * spanning[key].job.gpus))


def _rate_by_placement(
    row: TypeHomes, weights: Mapping[int, int], least: Mapping[int, int]
) -> dict[int, int]:
    """Set all rates of a type; return the tenants' totals."""
    demand = _demand(row, row.gpus)
    spanning = row.spanning
    rates = placement_rates(
        row.gpus,
        demand,
        {key: SpanningJob(one.job.tenant, dict(one.home)) for key, one in spanning.items()},
        weights,
    )
    _set_small(row, demand, rates.small, least)
    _set_spanning(spanning, rates.spanning, least)
    totals: dict[int, int] = {}
    for key, one in spanning.items():
        totals[one.job.tenant] = totals.get(one.job.tenant, 0) + rates.spanning[key]
    for of_node in rates.small.values():
        for tenant, units in of_node.items():
            totals[tenant] = totals.get(tenant, 0) + units
    return totals


def _rate_nodes(
    row: TypeHomes,
    weights: Mapping[int, int],
    before: Mapping[int, int],
    jobs: Iterable[StrideJob],
    least: Mapping[int, int],
) -> bool:
    """Set the rates on touched nodes, or return False if all rates must be recomputed."""
    touched = row.touched
    if any(
        one.is_new and any(node in touched for node, _ in one.home) for one in row.spanning.values()
    ):
        return False
    totals: dict[int, int] = {}
    for one in jobs:
        home = one.home
        if one.gpu_type == row.gpu_type and (len(home) > 1 or home[0][0] not in touched):
            tenant = one.job.tenant
            totals[tenant] = totals.get(tenant, 0) + one.passes.rate
    demand = _demand(row, sorted(touched))
    amounts = {node: row.gpus[node] * UNIT - _spanned(row, node) for node in demand}
    small = level_again(amounts, demand, weights, totals)
    off = sum(
        abs(totals.get(tenant, 0) - before.get(tenant, 0))
        for tenant in totals.keys() | before.keys()
    )
    if off * DRIFT > sum(row.gpus.values()) * UNIT:
        return False
    _set_small(row, demand, small, least)
    return True


def _spanned(row: TypeHomes, node: int) -> int:
    """Return the units of a node that jobs over several nodes use."""
    return sum(
        one.passes.rate * dict(one.home)[node] // one.job.gpus
        for one in row.jobs[node]
        if len(one.home) > 1
    )


def _rate_by_tickets(row: TypeHomes, weights: Mapping[int, int]) -> None:
    """Set the rates by equations (1) and (3) of the paper."""
    jobs = {one.job.id: one for rows in row.jobs.values() for one in rows}
    gpus: dict[int, int] = {}
    for one in jobs.values():
        gpus[one.job.tenant] = gpus.get(one.job.tenant, 0) + one.job.gpus
    for one in jobs.values():
        tickets = weights.get(one.job.tenant, 0) * one.job.gpus
        one.passes.set_rate(tickets * UNIT // (gpus[one.job.tenant] * GPU_MICRO))
