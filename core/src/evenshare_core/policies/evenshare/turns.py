"""The numbers by which a round ranked tenants, recomputed from its decision."""

from math import inf
from typing import Any

from evenshare_core.domain.cluster import placement_gpus
from evenshare_core.domain.decision import Decision, Grant, Renew
from evenshare_core.policies.evenshare.memory import DecayedSums
from evenshare_core.policies.evenshare.options import EvenshareOptions
from evenshare_core.policies.evenshare.progress import MOVED
from evenshare_core.policies.evenshare.queues import ClaimKey, TenantStanding


def turn_numbers(
    options: EvenshareOptions, lease_us: int, decision: Decision
) -> dict[ClaimKey, dict[str, Any]]:
    """Return, for each claim, the GPU-time received and deserved over the window, and its key.

    `own_ratio` is the key of rule 1 after the round's grants. `served_ratio` is the highest key at
    which the round served a tenant below its deserved GPU-time. With the preset "tight", return the
    GPUs held instead, and min(D, Q) as `share`.
    """
    claims = decision.service.claims
    sums = DecayedSums(options.window_us)
    sums.begin(decision.memory, claims, decision.at_us, 0)
    held = {(row.tenant, row.gpu_type): row.own + row.borrowed for row in decision.shares}
    granted, served = _given(decision)
    numbers = {}
    for row in claims:
        claim = row.tenant, row.gpu_type
        standing = TenantStanding(row, row.tenant, sums.sums(row), held.get(claim, 0))
        standing.granted_us = lease_us * granted.get(claim, 0)
        own = _held(standing) if options.is_tight else _received(standing)
        highest = served.get(row.gpu_type)
        numbers[claim] = own if highest is None else {**own, "served_ratio": highest}
    return numbers


def _given(decision: Decision) -> tuple[dict[ClaimKey, int], dict[str, float]]:
    """Return the GPUs charged to each claim and, by type, the highest served key below 1."""
    picks: list[tuple[Grant | Renew, int]] = [
        (row, placement_gpus(row.placement)) for row in decision.grants if row.key.note != MOVED
    ]
    picks += [(row, row.gpus) for row in decision.renewals]
    granted: dict[ClaimKey, int] = {}
    served: dict[str, float] = {}
    for row, gpus in picks:
        claim, key = (row.tenant, row.gpu_type), row.key.tenant_rho
        granted[claim] = granted.get(claim, 0) + gpus
        if key is not None and key < 1:
            served[row.gpu_type] = max(key, served.get(row.gpu_type, key))
    return granted, served


def _held(standing: TenantStanding) -> dict[str, Any]:
    return {"held": standing.held, "share": standing.share}


def _received(standing: TenantStanding) -> dict[str, Any]:
    key = standing.key()
    sums = {"received_gpu_us": standing.received, "deserved_gpu_us": standing.deserved}
    return sums if key == inf else {**sums, "own_ratio": key}
