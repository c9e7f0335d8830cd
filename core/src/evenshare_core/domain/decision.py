"""What a round answers: leases to grant, renew and end, why jobs wait, shares and prices."""

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
from evenshare_core.domain.reasons import EndReason, PreemptionRule, Reason
from evenshare_core.domain.snapshot import PoolPrice, Service, Snapshot, Surcharge
from evenshare_core.domain.values import Value

# What rows of a decision tell beside their fields, by name: these and no others, so that it is
# known which of them are ids.
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
    """The numbers that decided: rho of tenant and job as the policy saw them when it picked.

    None: nothing was deserved so far, so rho is not defined. `note` names the rule where it was
    not the plain order (for example `reserved`).
    """

    tenant_rho: float | None
    job_rho: float | None
    note: str = ""


class Grant(Value, frozen=True, array_like=True):
    """A new lease. `order` counts the picks of the round from 1, grants and renewals alike.

    `own`, `borrowed` and `price_micro` are filled by `decide_round`, not by the policy.
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
    """One more term for a lease, on the same GPUs."""

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


class End(Value, frozen=True, array_like=True):
    """A lease that the round takes back."""

    lease: LeaseId
    job: JobId
    tenant: TenantId
    reason: EndReason


class Preemption(Value, frozen=True, array_like=True):
    """Why a lease ends before its expiry; it is among the `ends` too, as preempted or moved.

    `for_job`: who gets the GPUs. `numbers`: what the rule compared, by name.
    """

    lease: LeaseId
    job: JobId
    tenant: TenantId
    rule: PreemptionRule
    for_job: JobId
    for_tenant: TenantId
    numbers: Numbers = {}


class TermLength(Value, frozen=True, array_like=True):
    """How long the term lasts that a job is granted or renewed, within the pool's bounds."""

    job: JobId
    lease_us: int


class Trade(Value, frozen=True, array_like=True):
    """Two tenants exchange quota of two GPU types, in micro-GPUs, from this round on.

    `buyer` receives `bought_micro` of the faster type from `seller`, which receives `sold_micro` of
    the slower one. `rate_micro`: millionths of a slow GPU per fast one; negative where a trade that
    was made before is undone, with the amounts of then. `buyer_rate_micro` and `seller_rate_micro`:
    what a fast GPU was worth to each in slow ones, by the profiles of then.
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
    """Whole GPUs of a type that a tenant's quota has more by the trades that stand; or fewer."""

    tenant: TenantId
    gpu_type: str
    gpus: int


class Skip(Value, frozen=True, array_like=True):
    """Jobs of one tenant that wait for one reason, in arrival order, with its numbers."""

    reason: Reason
    tenant: TenantId
    jobs: tuple[JobId, ...]
    gpus: int
    numbers: Numbers = {}


class Share(Value, frozen=True, array_like=True):
    """One tenant's round for one GPU type, in GPUs; rho is None while nothing was deserved.

    `deserved` = min(demand, quota). `held_before`: all leases before the round; `got`: granted or
    renewed in it; `own` and `borrowed`: all leases after it. `alloc_gpu_us` and `fair_gpu_us` count
    from the start of the fairness window, if the pool has one. `rho_after` is rho at the end of one
    lease length if all holds of this round last that long.
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

    `profile` 0 stands for jobs without one. Source: x_lj of OEF (9), (10).
    """

    tenant: TenantId
    profile: ProfileId
    gpu_type: str
    gpus: float


class Solve(Value, frozen=True, array_like=True):
    """How a policy's program was solved. `fallback` says what was used instead, and why."""

    backend: str
    status: str
    objective: float | None = None
    fallback: str = ""


class PlanKind(StrEnum):
    """What a plan says of a job that waits. Names are part of the API."""

    OWN = "own"  # it starts within its tenant's quota
    BORROWED = "borrowed"  # it starts on GPUs that are borrowed in part or whole
    REFUSED = "refused"  # at no time that was looked at is it worth what it would cost


class Plan(Value, frozen=True, array_like=True):
    """When a job is to start, on what, and what that costs and gains; or why it is refused.

    `start_us` and `end_us` are instants; 0 of one that is refused. `borrowed`: of its GPUs, those
    above quota at the start. `price_micro`: per borrowed GPU-hour, the mean that is expected.
    `needed_micro`: the highest price per GPU-hour at which it would be admitted, what an hour of
    its GPUs is worth to it. `lowest_micro`: the lowest price that there was for it, itself counted;
    of one that borrows later, the price now. Of one that is refused both are of the same slot, that
    in which it would lose least, and the price is above what was needed.
    `value_micro` - `cost_micro` is what it gains.
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
        """What it is worth less what it costs."""
        return self.value_micro - self.cost_micro


class Decision(Value, frozen=True, array_like=True):
    """The answer of one round. `service` and `memory` are the next snapshot's.

    `prices` are posted now and valid in the next round. A policy fills `grants`, `renewals`,
    `ends`, `skips`, `memory` and, where it solves a program, `ideals` and `solve`;
    `decide_round` adds the rest. `preemptions` explain the ends of leases that had not expired.
    `lengths`, by job: of terms that are not of the pool's lease length. `trades` are made or undone
    in this round; `swaps`, by (tenant, GPU type), are what all trades that stand add up to, and
    count in the round as if quotas were so. `plans`: of jobs whose plan is new or says something
    else than before. A policy that sets theta itself answers `prices` of the theta that the next
    round's prices are posted with.
    `surcharges` are the part of `prices` that the queue
    adds, where the operator lets it. `answers`: to jobs with deadlines, where they are new.
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
    """Return effective quotas as they are with what trades add and take, sorted by their keys.

    A tenant that had none of a type borrows and lends of it as the default says.
    """
    rows = {(row.tenant, row.gpu_type): row for row in quotas}
    for swap in swaps:
        key = (swap.tenant, swap.gpu_type)
        before = rows.get(key) or Entitlement(*key, gpus=0)
        rows[key] = msgspec.structs.replace(before, gpus=before.gpus + swap.gpus)
    return tuple(rows[key] for key in sorted(rows))


def with_swaps(snapshot: Snapshot, swaps: tuple[Swap, ...]) -> Snapshot:
    """Return the snapshot with the quotas that trades make of its own."""
    if not swaps:
        return snapshot
    return msgspec.structs.replace(snapshot, entitlements=swapped(snapshot.entitlements, swaps))
