"""A tenant's throughput with the shares of other tenants, and the work of its quota after trades.

| paper | here |
|---|---|
| w_l . x_l | `ComparedShare.own`: row l with its own share |
| pi_l / pi_i (w_l . x_i) | `OtherShare.throughput`: row l with the share of tenant i, by weight |

Rows, weights and speeds are those of `allocations.frame`. The shares of a tenant's job types are
added up, because the division among them is the tenant's own. An envy-free division of rows
is therefore envy-free here too. A row uses at most the GPUs of its jobs.

Source: OEF (10), by weight as 4.2.3; Gandiva_fair, section 4 (trades).
"""

from typing import NamedTuple

import numpy as np

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness import properties
from evenshare_core.fairness.allocations import frame, ideal_shares


class OtherShare(NamedTuple):
    """A row's throughput with the share of another tenant."""

    tenant: int
    throughput: float


class ComparedShare(NamedTuple):
    """A job type's throughput with its own share, and with each other tenant's, by tenant.

    Throughput is in GPUs of the slowest type. `profile` is 0 for jobs without a job type.
    """

    profile: int
    own: float
    others: tuple[OtherShare, ...]


class QuotaWork(NamedTuple):
    """The throughput of a tenant's whole quota, without and with the trades in force."""

    without: float
    traded: float


def with_others_shares(
    snapshot: Snapshot, decision: Decision, tenant: int
) -> tuple[ComparedShare, ...]:
    """Return the comparison for each job type of a tenant, by profile.

    Empty if the policy computed no shares before rounding, or no other tenant has any.
    """
    allocation = frame(snapshot)
    owners = np.array([owner for owner, _ in allocation.rows], int)
    others = sorted(set(owners.tolist()) - {tenant})
    mine = owners == tenant
    if not decision.ideals or not others or not mine.any():
        return ()
    shares = ideal_shares(allocation, decision)
    speedups, weights = allocation.speedups[mine], allocation.weights[mine]
    each = np.array(
        [
            shares[owners == one].sum(axis=0) / allocation.weights[owners == one].sum()
            for one in others
        ]
    )
    offers = each[None, :, :] * weights[:, None, None]
    gained = properties.useful(speedups, offers, allocation.demand[mine])
    own = properties.throughputs(speedups, shares[mine])
    profiles = [profile for owner, profile in allocation.rows if owner == tenant]
    return tuple(
        ComparedShare(
            profile,
            float(own[row]),
            tuple(OtherShare(one, float(gained[row, place])) for place, one in enumerate(others)),
        )
        for row, profile in enumerate(profiles)
    )


def quota_work(snapshot: Snapshot, decision: Decision, tenant: int) -> QuotaWork | None:
    """Return the work of a tenant's quota at the speeds of its present jobs, averaged by weight.

    None if no trade of the tenant is in force, or it has no jobs.
    """
    swaps = {row.gpu_type: row.gpus for row in decision.swaps if row.tenant == tenant}
    allocation = frame(snapshot)
    mine = np.array([owner == tenant for owner, _ in allocation.rows], bool)
    if not swaps or not mine.any():
        return None
    speeds = np.average(allocation.speedups[mine], axis=0, weights=allocation.weights[mine])
    quota = {row.gpu_type: row.gpus for row in snapshot.entitlements if row.tenant == tenant}
    held = np.array([quota.get(name, 0) for name in allocation.gpu_types], float)
    moved = np.array([swaps.get(name, 0) for name in allocation.gpu_types], float)
    return QuotaWork(float(held @ speeds), float((held + moved) @ speeds))
