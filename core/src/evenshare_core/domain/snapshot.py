"""A policy's complete input, at one instant of pool time."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple

from msgspec.structs import replace

from evenshare_core.domain.backoff import Backoff
from evenshare_core.domain.cluster import Node, Resources
from evenshare_core.domain.deadlines import Deadline
from evenshare_core.domain.entitlements import Entitlement, Tenant
from evenshare_core.domain.estimates import JobEstimate
from evenshare_core.domain.held_jobs import HeldJob
from evenshare_core.domain.ids import Each, IdKind, JobId, Row, TenantId, shaped
from evenshare_core.domain.job_ranks import JobRank
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.measured_speeds import MeasuredProfile
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.utilities import Utility
from evenshare_core.domain.values import Value

# Version 2 is the base. Version 3 adds back-offs, 4 bounds of lease lengths, 5 CPUs and memory.
# Version 6 adds utilities of jobs, 7 surcharges, 8 deadlines or estimates. Version 9 adds profilers
# or measured job types, 10 held jobs
# and ranks.
SCHEMA_VERSION = 10


# Ids in resource rows are node ids or job ids.
NodeResources = Annotated[tuple[Resources, ...], shaped(Each(Row((IdKind.NODE,))))]
JobResources = Annotated[tuple[Resources, ...], shaped(Each(Row((IdKind.JOB,))))]


class ChangeKind(StrEnum):
    """The kind of a change between two rounds; the integrals of fairness advance at each change."""

    QUOTA = "quota"  # tenant, gpu_type: effective quota is now `gpus`
    ACTIVE = "active"  # job became active with demand `gpus`
    HOLD = "hold"  # job holds `gpus` of its GPU type from now on
    RELEASE = "release"  # job holds no GPUs from now on
    INACTIVE = "inactive"  # job ended, failed or was cancelled


class Change(Value, frozen=True, array_like=True):
    """A timed change since the last round.

    `gpu_types` depends on the kind. For QUOTA and HOLD it has one type; a HOLD in old data has none
    and counts on the type that the job claims. For ACTIVE it has the types that the job accepts
    (empty: any); the claimed type is decided when the change is applied. `weight` is the job's
    weight within its tenant, for ACTIVE only.
    """

    at_us: int
    kind: ChangeKind
    tenant: TenantId
    job: JobId = 0
    gpus: int = 0
    gpu_types: tuple[str, ...] = ()
    weight: int = 1


class ServiceMark(NamedTuple):
    """The sums of a claim at a possible start of a fairness window."""

    at_us: int
    alloc_gpu_us: int
    fair_gpu_us: int
    entitled_gpu_us: int


class ClaimService(Value, frozen=True, array_like=True):
    """GPU-time sums of one tenant for one GPU type, exact up to `since_us`.

    `alloc_gpu_us` is received, eq. (11). `fair_gpu_us` is deserved, the integral of min(demand,
    quota), eq. (8)(9). `entitled_gpu_us` is the integral of quota, whatever the demand, for variant
    (16). `held`, `demand`, `quota` and `weights` are the current values. `marks` are the possible
    starts of a fairness window.
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
    """The running integral of min(demand, FairShare_j W / sum W) for a class of jobs, by (13)(14).

    A class has all active jobs of one (tenant, GPU type, demand, weight). The integral extends to
    its claim's `since_us`.
    """

    tenant: TenantId
    gpu_type: str
    demand: int
    weight: int
    jobs: int
    fair_gpu_us: int


class JobService(Value, frozen=True, array_like=True):
    """An active job: its class, the class integral at its arrival, and the received GPU-time.

    `gpu_type` is the type that it claims: the type of its GPUs while it holds any.

    Deserved until t = class integral at t - `baseline_gpu_us`; received until t = `alloc_gpu_us` +
    `held` x (t - `held_since_us`).
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
    """Return the instant from which the quotas of a round at `at_us` count, for fairness and money.

    Planned or edited quotas count from the round that applies them. The very first ones count from
    the start of the sums: until the first round nothing was requested or held, so nothing is owed.
    """
    return at_us if service.claims else service.at_us


class PoolPrice(Value, frozen=True, array_like=True):
    """The posted price of a GPU type (micro-credits per GPU-hour) and the usage behind it.

    The operator sets `base_micro` and `theta_milli`: price = base x (theta^u - 1), u = used /
    capacity. The type's `Surcharge`, if it has one, is added.
    """

    gpu_type: str
    price_micro: int
    used: int
    capacity: int
    base_micro: int
    theta_milli: int


class Surcharge(Value, frozen=True, array_like=True):
    """The amount that GPUs queued for borrowing add to the posted price of a type (ADR 0165).

    The operator sets `step_milli`, the maximum change per round length, and `cap_milli`, the
    maximum surcharge, both in thousandths of the base. `queued` (GPUs) and `surcharge_micro`
    (micro-credits per GPU-hour, included in the posted price) are those of the last posting.
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
    holds: tuple[HeldJob, ...] = (),
    ranks: tuple[JobRank, ...] = (),
) -> int:
    """Return the schema version of a snapshot with these rows."""
    newest_first: tuple[tuple[int, object], ...] = (
        (SCHEMA_VERSION, holds or ranks),
        (9, profilers or measured),
        (8, deadlines or estimates),
        (7, surcharges),
        (6, utilities),
        (5, resources),
        (4, lease_bounds_us),
        (3, backoffs),
    )
    return next((version for version, rows in newest_first if rows), 2)


def lease_bounds_of(lease_us: int, least_us: int, most_us: int) -> tuple[int, ...]:
    """Return the snapshot's bounds of lease lengths; a bound of 0 is replaced by `lease_us`.

    Empty if both are 0.
    """
    if not least_us and not most_us:
        return ()
    return (least_us or lease_us, most_us or lease_us)


class Snapshot(Value, frozen=True, array_like=True):
    """The immutable input of one round.

    Nodes, tenants, jobs, leases and profiles are sorted by id, entitlements by (tenant, GPU type),
    `prices` by GPU type. Jobs contain their order of arrival.

    - `prices`: posted at the end of the last round, valid in this one.
    - `memory`: the policy's private state, dropped if the policy or its version changes.
    - `service`: the sums at the last round; `changes` happened since, in time order.
    - `profiles`: the profiles that the jobs name.
    - `backoffs`: jobs that may not start yet.
    - `lease_bounds_us`: the minimum and maximum length of a term; empty if only `lease_us` is
      allowed.
    - `node_resources`, `job_resources`: CPUs and memory by id, if stated.
    - `utilities`: the value of each job that states it.
    - `surcharges`: of GPU types whose price rises with the queue.
    - `deadlines`, `estimates`: for jobs that have them, by job.
    - `profilers`: ids of the jobs that are profiling runs.
    - `measured`: the measured profiles, by profile id; only the certificate reads them.
    - `holds`: waiting jobs that are not among `jobs` because they may not start, by job.
    - `ranks`: jobs whose tenant orders its own jobs, by job.
    """

    newest: ClassVar[tuple[str, ...]] = (
        "backoffs", "lease_bounds_us", "node_resources", "job_resources", "utilities",
        "surcharges", "deadlines", "estimates", "profilers", "measured",
        "holds", "ranks",
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
    holds: tuple[HeldJob, ...] = ()
    ranks: tuple[JobRank, ...] = ()

    @property
    def longest_us(self) -> int:
        """The maximum length of a term."""
        return max((self.lease_us, *self.lease_bounds_us))


def with_schema(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the schema version of its rows."""
    schema = schema_of(
        snapshot.backoffs,
        snapshot.lease_bounds_us,
        (*snapshot.node_resources, *snapshot.job_resources),
        snapshot.utilities,
        snapshot.surcharges,
        deadlines=snapshot.deadlines,
        estimates=snapshot.estimates,
        profilers=snapshot.profilers,
        measured=snapshot.measured,
        holds=snapshot.holds,
        ranks=snapshot.ranks,
    )
    return replace(snapshot, schema=schema)
