"""Figures of a run of `turns`, averaged over quanta, by tenant and GPU type."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from evenshare_core.units import ONE_MILLI


def mean_gpus(
    result: Mapping[str, Any], since: int, until: int, *, by_type: bool = False
) -> dict[Any, float]:
    """Return the tenants' average GPUs over [since, until), by tenant or (tenant, type)."""
    total: defaultdict[Any, int] = defaultdict(int)
    for key, row in result["gpus"].items():
        tenant, name = key.split(" ", 1)
        total[(int(tenant), name) if by_type else int(tenant)] += sum(row[since:until])
    return {key: gpus / (until - since) for key, gpus in sorted(total.items())}


def progress(
    result: Mapping[str, Any], speeds: Mapping[int, Mapping[str, int]], since: int, until: int
) -> dict[int, float]:
    """Return the tenants' throughput over [since, until), in GPUs of the slowest type."""
    total: defaultdict[int, float] = defaultdict(float)
    for (tenant, name), gpus in mean_gpus(result, since, until, by_type=True).items():
        total[tenant] += gpus * speeds[tenant][name] / ONE_MILLI
    return dict(sorted(total.items()))


def least_use(result: Mapping[str, Any], since: int, until: int) -> int:
    """Return the fewest GPUs in use in a quantum of [since, until)."""
    rows: list[list[int]] = list(result["gpus"].values())
    return min(sum(row[quantum] for row in rows) for quantum in range(since, until))
