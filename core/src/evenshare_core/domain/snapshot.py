"""Everything that a policy may look at, at one instant of pool time."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple

from evenshare_core.domain.backoff import Backoff
from evenshare_core.domain.cluster import Node, Resources
from evenshare_core.domain.deadlines import Deadline
from evenshare_core.domain.entitlements import Entitlement, Tenant
from evenshare_core.domain.estimates import JobEstimate
from evenshare_core.domain.ids import Each, IdKind, JobId, Row, TenantId, shaped
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.measured_speeds import MeasuredProfile
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.utilities import Utility
from evenshare_core.domain.values import Value

# Version 9 has profilers or what was measured of job types, version 8 deadlines or estimates,
# version 7 surcharges, version 6 utilities of jobs, version 5 resources besides GPUs, version 4
# bounds of lease lengths, version 3 back-offs; without any of them it is of version 2.
SCHEMA_VERSION = 9


# Ids of rows of resources are those of nodes, or of jobs.
NodeResources = Annotated[tuple[Resources, ...], shaped(Each(Row((IdKind.NODE,))))]
JobResources = Annotated[tuple[Resources, ...], shaped(Each(Row((IdKind.JOB,))))]


class ChangeKind(StrEnum):
    """What changed between two rounds; the integrals of fairness advance at each."""

    QUOTA = "quota"  # tenant, gpu_type: effective quota is now `gpus`
    ACTIVE = "active"  # job became active with demand `gpus`
    HOLD = "hold"  # job holds `gpus` of one type from now on
    RELEASE = "release"  # job holds nothing from now on
    INACTIVE = "inactive"  # job ended, failed or was cancelled


class Change(Value, frozen=True, array_like=True):
    """One timed change since the last round.

    `gpu_types`: of QUOTA and HOLD the one type (an older hold: none, it counts
    on the type that the job claims), of ACTIVE the types that the job accepts (none: any); which
    of them it claims is decided when the change is applied. `weight` is of ACTIVE: the job's
    inside its tenant.
    """

    at_us: int
    kind: ChangeKind
    tenant: TenantId
    job: JobId = 0
    gpus: int = 0
    gpu_types: tuple[str, ...] = ()
    weight: int = 1


class ServiceMark(NamedTuple):
    """The sums of a claim at an instant at which a fairness window may begin."""

    at_us: int
    alloc_gpu_us: int
    fair_gpu_us: int
    entitled_gpu_us: int


class ClaimService(Value, frozen=True, array_like=True):
    """GPU-time sums of one tenant for one GPU type, exact up to `since_us`.

    `alloc_gpu_us`: received, eq. (11). `fair_gpu_us`: deserved, the integral of
    min(demand, quota), eq. (8)(9). `entitled_gpu_us`: the integral of quota, demand or not, for
    variant (16). `held`, `demand`, `quota`, `weights` are the present step values. `marks`:
    where a fairness window may begin.
    """

    tenant: TenantId
    gpu_type: str
    since_us: int
    quota: int = 0
    demand: int = 0
    weights: int = 0
    held: int = 0
    alloc_gpu_us: int = 0
    fair_gpu_us: int = 0
    entitled_gpu_us: int = 0
    marks: tuple[ServiceMark, ...] = ()


class ClassService(Value, frozen=True, array_like=True):
    """Running integral of min(demand, FairShare_j W / sum W), eq. (13)(14), for all active
    jobs of one (tenant, GPU type, demand, weight); as far as its claim's `since_us`."""

    tenant: TenantId
    gpu_type: str
    demand: int
    weight: int
    jobs: int
    fair_gpu_us: int


class JobService(Value, frozen=True, array_like=True):
    """One active job: its class, the class integral when it arrived, and what it received.

    `gpu_type` is the type that it claims; while it holds GPUs, theirs.

    Deserved until t = class integral at t - `baseline_gpu_us`; received until t =
    `alloc_gpu_us` + `held` x (t - `held_since_us`).
    """

    job: JobId
    tenant: TenantId
    gpu_type: str
    demand: int
    weight: int
    baseline_gpu_us: int
    alloc_gpu_us: int = 0
    held: int = 0
    held_since_us: int = 0


class Service(Value, frozen=True, array_like=True):
    """GPU-time sums of a pool up to `at_us`; rows sorted by their keys.

    Source: LTGF eq. (1)-(15); architecture, "Fairness belongs to the snapshot".
    """

    at_us: int
    claims: tuple[ClaimService, ...] = ()
    classes: tuple[ClassService, ...] = ()
    jobs: tuple[JobService, ...] = ()


def quotas_since(service: Service, at_us: int) -> int:
    """Return from when the quotas that a round at `at_us` reads count, for fairness and for money.

    From the round that applies them, whether they were planned or edited. The very first ones
    count from the start of the sums: nothing was asked for or held until then, so that there is
    nothing to pay either.
    """
    return at_us if service.claims else service.at_us


class PoolPrice(Value, frozen=True, array_like=True):
    """Posted price of a GPU type (micro-credits per GPU-hour) with the use it came from.

    `base_micro` and `theta_milli` are the operator's setting: price = base x (theta^u - 1),
    u = used / capacity, with the `Surcharge` of its type, where it has one.
    """

    gpu_type: str
    price_micro: int
    used: int
    capacity: int
    base_micro: int
    theta_milli: int


class Surcharge(Value, frozen=True, array_like=True):
    """What GPUs queued for borrowing add to the posted price of a type (ADR 0165).

    `step_milli` and `cap_milli` are the operator's setting, in thousandths of the base: by how much
    it moves in one round length at most, and how high it rises. `queued` (GPUs) and
    `surcharge_micro` (micro-credits per GPU-hour, in the posted price already) are as posted last.
    """

    gpu_type: str
    step_milli: int
    cap_milli: int
    queued: int = 0
    surcharge_micro: int = 0


def schema_of(
    backoffs: tuple[Backoff, ...],
    lease_bounds_us: tuple[int, ...] = (),
    resources: tuple[Resources, ...] = (),
    utilities: tuple[Utility, ...] = (),
    surcharges: tuple[Surcharge, ...] = (),
    *,
    deadlines: tuple[Deadline, ...] = (),
    estimates: tuple[JobEstimate, ...] = (),
    profilers: tuple[int, ...] = (),
    measured: tuple[MeasuredProfile, ...] = (),
) -> int:
    """Return the version of a snapshot with these."""
    newest_first: tuple[tuple[int, object], ...] = (
        (SCHEMA_VERSION, profilers or measured),
        (8, deadlines or estimates),
        (7, surcharges),
        (6, utilities),
        (5, resources),
        (4, lease_bounds_us),
        (3, backoffs),
    )
    return next((version for version, rows in newest_first if rows), 2)


def lease_bounds_of(lease_us: int, least_us: int, most_us: int) -> tuple[int, ...]:
    """Return the bounds of lease lengths as a snapshot has them; 0: none but `lease_us` itself."""
    if not least_us and not most_us:
        return ()
    return (least_us or lease_us, most_us or lease_us)


class Snapshot(Value, frozen=True, array_like=True):
    """The immutable input of one round.

    Nodes, tenants, jobs, leases and profiles are sorted by id (the order of arrival is in the
    jobs), entitlements by (tenant, GPU type), `prices` by GPU type. These are the ones posted at
    the end of the last round: valid in this one. `memory` is the policy's private state, dropped
    when policy or version change. `service` is as of the last round; `changes` happened since, in
    time order. `profiles` are those that its jobs name. `backoffs`, by job: which of them may not
    start yet. `lease_bounds_us`: the least and the most that a policy may give a term instead of
    `lease_us`; empty: nothing else. `node_resources` and `job_resources`, by id: CPUs and memory of
    the nodes and jobs that tell them. `utilities`, by job: what those are worth that say it.
    `surcharges`: of GPU types whose price rises with the queue. `deadlines` and `estimates`, by
    job: of those that have them. `profilers`: ids of the jobs that are profiling runs. `measured`,
    by profile: of those of which anything was measured, for the certificate alone.
    """

    newest: ClassVar[tuple[str, ...]] = (
        "backoffs", "lease_bounds_us", "node_resources", "job_resources", "utilities",
        "surcharges", "deadlines", "estimates", "profilers", "measured",
    )  # fmt: skip # a table

    schema: int
    pool: int
    number: int
    at_us: int
    round_us: int
    lease_us: int
    policy: str
    policy_version: str
    options: dict[str, Any]
    seed: int
    nodes: tuple[Node, ...]
    tenants: tuple[Tenant, ...]
    entitlements: tuple[Entitlement, ...]
    jobs: tuple[Job, ...]
    leases: tuple[Lease, ...]
    prices: tuple[PoolPrice, ...]
    changes: tuple[Change, ...]
    service: Service
    memory: dict[str, Any] = {}
    profiles: tuple[Profile, ...] = ()
    backoffs: tuple[Backoff, ...] = ()
    lease_bounds_us: tuple[int, ...] = ()
    node_resources: NodeResources = ()
    job_resources: JobResources = ()
    utilities: tuple[Utility, ...] = ()
    surcharges: tuple[Surcharge, ...] = ()
    deadlines: tuple[Deadline, ...] = ()
    estimates: tuple[JobEstimate, ...] = ()
    profilers: tuple[JobId, ...] = ()
    measured: tuple[MeasuredProfile, ...] = ()

    @property
    def longest_us(self) -> int:
        """The longest that a term may last."""
        return max((self.lease_us, *self.lease_bounds_us))
