"""A round's decision: leases to grant, renew and end, reasons of waits, shares and prices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

import msgspec

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.deadlines import DeadlineAnswer
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.ids import (
    Fields,
    IdKind,
    JobId,
    LeaseId,
    ProfileId,
    Shape,
    TenantId,
    shaped,
)
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason, PreemptionRule, Reason
from evenshare_core.domain.snapshot import PoolPrice, Service, Snapshot, Surcharge
from evenshare_core.domain.values import Value

# All numbers in a decision's rows, by name; each is marked as an id or as a plain number.
NUMBERS: Mapping[str, Shape] = MappingProxyType(
    {"first_job": IdKind.JOB}
    | dict.fromkeys(
        (
            "attained_gpu_us", "batch_us", "borrowed", "capacity", "cpus", "deserved_gpu_us",
            "free", "gpu_type", "held", "held_back", "kept", "largest_hole", "limit", "losses",
            "max_price_micro", "may_borrow", "memory_mb", "needed", "needed_micro", "other_types",
            "own", "own_rho", "preempted", "price_micro", "quota", "received_gpu_us",
            "remaining_us", "served_rho", "spendable_micro", "starts_us", "threshold_gpu_us",
            "threshold_us", "until_us", "unused", "value_micro", "withdrawn",
        ),
    )
)  # fmt: skip # a table
Numbers = Annotated[dict[str, Any], shaped(Fields(NUMBERS))]


class Key(Value, frozen=True, array_like=True):
    """The numbers that decided a pick: rho of the tenant and of the job at the time of the pick.

    A rho is `None` if nothing was deserved so far. `note` names the rule if the pick did not follow
    the plain order (for example `reserved`).
    """

    tenant_rho: float | None
    job_rho: float | None
    note: str = ""


class Grant(Value, frozen=True, array_like=True):
    """A new lease.

    `order` numbers the round's picks, grants and renewals together, from 1. The policy leaves
    `own`, `borrowed` and `price_micro` to `decide_round`.
    """

    order: int
    job: JobId
    tenant: TenantId
    gpu_type: str
    placement: Placement
    key: Key
    own: int = 0
    borrowed: int = 0
    price_micro: int = 0


class Renew(Value, frozen=True, array_like=True):
    """An additional term for a lease, on the same GPUs."""

    order: int
    lease: LeaseId
    job: JobId
    tenant: TenantId
    gpu_type: str
    gpus: int
    key: Key
    own: int = 0
    borrowed: int = 0
    price_micro: int = 0

    @classmethod
    def of(cls, lease: Lease, order: int, key: Key) -> Renew:
        """Return an additional term for `lease`."""
        return cls(order, lease.id, lease.job, lease.tenant, lease.gpu_type, lease.gpus, key)


class End(Value, frozen=True, array_like=True):
    """A lease that the round takes back."""

    lease: LeaseId
    job: JobId
    tenant: TenantId
    reason: EndReason


class Preemption(Value, frozen=True, array_like=True):
    """The reason why a lease ends before its expiry.

    The lease is also in `ends`, as preempted or moved. `for_job` gets the GPUs. `numbers` are the
    values that the rule compared, by name.
    """

    lease: LeaseId
    job: JobId
    tenant: TenantId
    rule: PreemptionRule
    for_job: JobId
    for_tenant: TenantId
    numbers: Numbers = {}


class TermLength(Value, frozen=True, array_like=True):
    """The length of a granted or renewed term, within the pool's bounds."""

    job: JobId
    lease_us: int


class Trade(Value, frozen=True, array_like=True):
    """An exchange of quota of two GPU types between two tenants, in micro-GPUs, from this round on.

    `buyer` receives `bought_micro` of the faster type from `seller`, which receives `sold_micro` of
    the slower one. `rate_micro` is in millionths of a slow GPU per fast one. A negative rate undoes
    an earlier trade, with that trade's amounts. `buyer_rate_micro` and `seller_rate_micro` are what
    a fast GPU is worth to each side in slow GPUs, by the profiles at the time of the trade.

    Source: Gandiva_fair (EuroSys 2020), 3.4, 3.5 and figure 9.
    """

    bought_type: str
    bought_micro: int
    buyer: TenantId
    sold_type: str
    sold_micro: int
    seller: TenantId
    rate_micro: int
    buyer_rate_micro: int
    seller_rate_micro: int
    at_us: int


class Swap(Value, frozen=True, array_like=True):
    """Whole GPUs of a type that trades add to a tenant's quota, or take from it (negative)."""

    tenant: TenantId
    gpu_type: str
    gpus: int


class Skip(Value, frozen=True, array_like=True):
    """A tenant's jobs that wait for the same reason, in arrival order, and the reason's numbers."""

    reason: Reason
    tenant: TenantId
    jobs: tuple[JobId, ...]
    gpus: int
    numbers: Numbers = {}


class Share(Value, frozen=True, array_like=True):
    """A tenant's result of a round for one GPU type, in GPUs; a rho is `None` if undefined.

    `deserved` = min(demand, quota). `held_before` counts all leases before the round, `got` the
    GPUs granted or renewed in it, `own` and `borrowed` all leases after it. `alloc_gpu_us` and
    `fair_gpu_us` count from the start of the fairness window, if the pool has one. `rho_after` is
    rho one lease length later, if all leases of this round last that long.
    """

    tenant: TenantId
    gpu_type: str
    quota: int
    demand: int
    deserved: int
    held_before: int
    got: int
    own: int
    borrowed: int
    alloc_gpu_us: int
    fair_gpu_us: int
    rho_before: float | None
    rho_after: float | None


class Ideal(Value, frozen=True, array_like=True):
    """GPUs of one type that a policy's program gives a tenant's job type, before rounding.

    `profile` 0 is for jobs without a profile. Source: x_lj of OEF (9), (10).
    """

    tenant: TenantId
    profile: ProfileId
    gpu_type: str
    gpus: float


class Solve(Value, frozen=True, array_like=True):
    """The final status of a policy's solver.

    `fallback` states which substitute was used and why, if any.
    """

    backend: str
    status: str
    objective: float | None = None
    fallback: str = ""


class PlanKind(StrEnum):
    """The kind of a waiting job's plan. Names are part of the API."""

    OWN = "own"  # it starts within its tenant's quota
    BORROWED = "borrowed"  # it starts on GPUs that are partly or wholly borrowed
    REFUSED = "refused"  # its value is below its cost at every time that was considered


class Plan(Value, frozen=True, array_like=True):
    """A job's planned start, GPUs, cost and gain, or the reason of its refusal.

    - `start_us`, `end_us`: pool times; 0 if the job is refused.
    - `borrowed`: the GPUs of the job above quota at the start.
    - `price_micro`: the expected mean price per borrowed GPU-hour.
    - `needed_micro`: the highest price per GPU-hour at which the job would be
      admitted, which is the value of a GPU-hour to the job.
    - `lowest_micro`: the lowest price available to the job, including the job's own effect on
      it. If the job borrows later, it is the current price.
    - `value_micro` - `cost_micro` is its gain.

    Both prices of a refused job are those of the slot with the least loss, and `lowest_micro` is
    above `needed_micro`.

    Source: Astraea-online (6), (7).
    """

    job: JobId
    tenant: TenantId
    kind: PlanKind
    gpu_type: str
    gpus: int
    start_us: int = 0
    end_us: int = 0
    borrowed: int = 0
    price_micro: int = 0
    cost_micro: int = 0
    value_micro: int = 0
    needed_micro: int = 0
    lowest_micro: int = 0

    @property
    def gain_micro(self) -> int:
        """The job's value minus its cost, in micro-credits."""
        return self.value_micro - self.cost_micro


class Decision(Value, frozen=True, array_like=True):
    """The answer of one round. `service` and `memory` are those of the next snapshot.

    A policy fills `grants`, `renewals`, `ends`, `skips` and `memory`; if it solves a program, also
    `ideals` and `solve`. `decide_round` adds the rest.

    - `prices`: posted now and valid in the next round. A policy that sets theta returns rows
      with the base and theta of these prices.
    - `preemptions`: the reasons of ends before expiry.
    - `lengths`: the terms that differ from the pool's lease length, by job.
    - `trades`: made or undone in this round.
    - `swaps`: the sums of all trades in force, by (tenant, GPU type). Quotas of this round
      include them.
    - `plans`: new or changed plans of jobs.
    - `surcharges`: the part of `prices` that the queue adds, if the operator enabled it.
    - `answers`: new answers to jobs with deadlines.
    """

    newest: ClassVar[tuple[str, ...]] = (
        "preemptions", "lengths", "trades", "swaps", "plans", "surcharges", "answers",
    )  # fmt: skip # a table

    at_us: int
    grants: tuple[Grant, ...] = ()
    renewals: tuple[Renew, ...] = ()
    ends: tuple[End, ...] = ()
    skips: tuple[Skip, ...] = ()
    shares: tuple[Share, ...] = ()
    prices: tuple[PoolPrice, ...] = ()
    service: Service = Service(at_us=0)
    memory: dict[str, Any] = {}
    ideals: tuple[Ideal, ...] = ()
    solve: Solve | None = None
    preemptions: tuple[Preemption, ...] = ()
    lengths: tuple[TermLength, ...] = ()
    trades: tuple[Trade, ...] = ()
    swaps: tuple[Swap, ...] = ()
    plans: tuple[Plan, ...] = ()
    surcharges: tuple[Surcharge, ...] = ()
    answers: tuple[DeadlineAnswer, ...] = ()


def swapped(quotas: Iterable[Entitlement], swaps: Iterable[Swap]) -> tuple[Entitlement, ...]:
    """Return the effective quotas after trades, sorted by their keys.

    A tenant that receives a type of which it has no quota gets the default mode for it.
    """
    rows = {(row.tenant, row.gpu_type): row for row in quotas}
    for swap in swaps:
        key = (swap.tenant, swap.gpu_type)
        before = rows.get(key) or Entitlement(*key, gpus=0)
        rows[key] = msgspec.structs.replace(before, gpus=before.gpus + swap.gpus)
    return tuple(rows[key] for key in sorted(rows))


def with_swaps(snapshot: Snapshot, swaps: tuple[Swap, ...]) -> Snapshot:
    """Return the snapshot with its quotas after trades."""
    if not swaps:
        return snapshot
    return msgspec.structs.replace(snapshot, entitlements=swapped(snapshot.entitlements, swaps))
