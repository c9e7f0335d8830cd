"""Reads a pool's rows in one consistent view, and builds the snapshot for a policy."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from evenshare_core.domain.backoff import Backoff
from evenshare_core.domain.cluster import Node, capacity_by_type
from evenshare_core.domain.entitlements import Entitlement, Mode, Tenant, effective_quotas
from evenshare_core.domain.held_jobs import HeldJob
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.domain.job_ranks import JobRank
from evenshare_core.domain.jobs import Job as JobValue
from evenshare_core.domain.snapshot import (
    Change,
    ChangeKind,
    PoolPrice,
    Service,
    Snapshot,
    Surcharge,
    lease_bounds_of,
    quotas_since,
    schema_of,
)
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.money.pricing import DEFAULT_THETA_MILLI
from evenshare_core.policies.registry import options as policy_options
from evenshare_core.policies.registry import policy as policy_named
from evenshare_core.units import ONE_MILLI, SECOND_US
from scheduling.engine.changes import JobFacts, LeaseHold, timed_changes
from scheduling.engine.clock import PoolNow, grid_instant
from scheduling.engine.estimates import with_estimates
from scheduling.engine.snapshot_rows import (
    StoredJob,
    active_jobs,
    held_jobs,
    job_deadlines,
    job_ranks,
    job_resources,
    job_utilities,
    live_leases,
    node_resources,
    ranked_jobs,
    read_measured_profiles,
    with_price_limits,
)
from scheduling.models import MaintenanceWindow, Pool, PoolClock, PoolFence, PriceSetting
from scheduling.models import Node as NodeRow
from scheduling.selectors.rounds.states import LeftState, read_left_state
from scheduling.selectors.sharing.settings import (
    equal_tenants,
    narrowed,
    price_limits,
    sharing_rules,
)
from tenants.models import Quota
from tenants.scopes import engine_view
from tenants.selectors.credit import credit_left
from tenants.selectors.quotas import quotas_in_force
from tenants.sql import fetch_rows

_HOLDS = """
SELECT l.job_id, l.gpus, (extract(epoch FROM l.started_at) * 1000000)::bigint,
       (extract(epoch FROM l.ended_at) * 1000000)::bigint, t.name
FROM scheduling_lease l JOIN scheduling_gputype t ON t.id = l.gpu_type_id
WHERE l.pool_id = %s AND l.started_at IS NOT NULL AND (l.state <> 'ended' OR l.ended_at >= %s)
ORDER BY l.job_id, l.number
"""

# The submission time of a job in quarantine may be out of range, so it is bounded.
_GONE = """
SELECT id, tenant_id, gpus,
       (extract(epoch FROM greatest(coalesce(place_at, eligible_at, submitted_at),
                                   '0001-01-01Z'))
        * 1000000)::bigint, gpu_types, weight,
       (extract(epoch FROM coalesce(ended_at, %s)) * 1000000)::bigint
FROM scheduling_job
WHERE (pool_id = %s AND ended_at > %s
       -- A job that ended while it was held was no demand.
       AND cardinality(holds) = 0 AND coalesce(eligible_at, submitted_at) <= least(%s, ended_at))
   OR id = ANY(%s)
ORDER BY id
"""


def read_snapshot(pool_id: int, *, number: int, at: datetime) -> Snapshot:
    """Return the snapshot of a pool for its round `number` at the time `at` of the round grid.

    All reads are in one REPEATABLE READ transaction, so that all rows are from the same moment. The
    caller holds the pool's fence; no row is locked here.
    """
    return read_with_state(pool_id, number=number, at=at)[0]


def read_with_state(pool_id: int, *, number: int, at: datetime) -> tuple[Snapshot, LeftState]:
    """Return the snapshot, and the state that the last round left, which the snapshot includes.

    Raises:
        MissingStateError: the state of the last round is unknown.
    """
    with engine_view(pool_id):
        left = read_left_state(pool_id)
        return _read(pool_id, number, to_us(at), left), left


def _read(pool_id: int, number: int, at_us: int, left: LeftState) -> Snapshot:
    pool = Pool.objects.get(pk=pool_id)
    scale = PoolClock.objects.values_list("scale", flat=True).get(pool_id=pool_id)
    service = left.sums()
    policy = policy_named(pool.policy)
    options = policy_options(pool.policy, pool.options)
    lease_us = pool.lease_s * SECOND_US
    bounds_us = lease_bounds_of(
        lease_us, pool.least_lease_s * SECOND_US, pool.most_lease_s * SECOND_US
    )
    held_us = max(lease_us, *bounds_us, options.min_runtime_us)
    until_us = at_us + held_us + pool.round_s * scale * SECOND_US
    nodes = _nodes(pool_id, from_us(at_us), from_us(until_us))
    prices, surcharges = _prices(pool_id, nodes, left.prices)
    entitlements, quota_changes = _entitlements(pool_id, nodes, service, prices, at_us)
    # Jobs that arrived after the time of the round belong to the next round: no round may use the
    # future.
    own_rows = active_jobs(pool_id, from_us(at_us))
    job_rows = with_price_limits(own_rows, price_limits(pool_id))
    # A job whose lease is being released neither waits nor holds GPUs. Its GPUs may be given to
    # another lease, which waits until they are released.
    candidates = [row for row in job_rows if row.state != "stopping"]
    leases = live_leases(pool_id)
    backoffs, holds = _backoffs(job_rows, at_us), held_jobs(pool_id, from_us(at_us))
    # If no node declares resources, no job can lack them: leave out the jobs' declarations.
    has, utilities = node_resources(pool_id), job_utilities(candidates)
    deadlines, ranks = job_deadlines(candidates), _ranks(pool, own_rows)
    needs = job_resources(candidates) if has else ()
    changes = quota_changes + _changes(pool_id, job_rows, service, at_us)
    profiles, measured = read_measured_profiles({row.job.profile for row in candidates} - {0})
    jobs, estimates = with_estimates(candidates, profiles)
    profilers = tuple(row.job.id for row in candidates if row.profiling_s)
    schema = schema_of(
        backoffs, bounds_us, has, utilities, surcharges, deadlines=deadlines, estimates=estimates,
        profilers=profilers, measured=measured, holds=holds, ranks=ranks,
    )  # fmt: skip # rows of what belongs together
    return Snapshot(
        schema=schema,
        pool=pool_id,
        number=number,
        at_us=at_us,
        round_us=pool.round_s * scale * SECOND_US,
        lease_us=lease_us,
        policy=policy.name,
        policy_version=policy.version,
        options=pool.options,
        seed=pool.seed,
        nodes=nodes,
        tenants=_tenants(pool, (*entitlements, *jobs, *holds), at_us),
        entitlements=entitlements,
        jobs=jobs,
        leases=leases,
        prices=prices,
        changes=tuple(sorted(changes, key=lambda change: change.at_us)),
        service=service,
        memory=left.remembered(policy.name, policy.version),
        profiles=profiles, backoffs=backoffs, surcharges=surcharges, lease_bounds_us=bounds_us,
        node_resources=has, job_resources=needs, utilities=utilities, deadlines=deadlines,
        estimates=estimates, profilers=profilers, measured=measured, holds=holds, ranks=ranks,
    )  # fmt: skip # rows of what belongs together


def _ranks(pool: Pool, rows: Iterable[StoredJob]) -> tuple[JobRank, ...]:
    """Return the ranks of jobs; `rows` have their own price limits, not those of tenants."""
    if policy_named(pool.policy).traits.reads_arrivals:
        return ()
    candidates = (row for row in rows if row.state != "stopping")
    return job_ranks(ranked_jobs(candidates), equal_tenants(pool.pk))


def _backoffs(job_rows: Iterable[StoredJob], at_us: int) -> tuple[Backoff, ...]:
    """Return the jobs that may not start yet because their process was lost."""
    return tuple(
        Backoff(row.job.id, row.backoff_until_us, row.losses)
        for row in job_rows
        if row.state == "pending"
        and row.backoff_until_us is not None
        and row.backoff_until_us > at_us
    )


def _nodes(pool_id: int, at: datetime, until: datetime) -> tuple[Node, ...]:
    """Return the nodes; a node that is not up, or has a maintenance window soon, has no GPUs.

    A term that starts at `at` holds its GPUs for a lease length, or for the minimum runtime if that
    is longer. It may last one more round, until `until`, because only a round ends it. No term may
    overlap a window.
    """
    windows = MaintenanceWindow.objects.filter(pool_id=pool_id, starts_at__lt=until, ends_at__gt=at)
    blocked = set(windows.values_list("node_id", flat=True))
    rows = NodeRow.objects.filter(pool_id=pool_id).order_by("id")
    return tuple(
        Node(id_, type_, gpus if state == NodeRow.State.UP and id_ not in blocked else 0)
        for id_, type_, gpus, state in rows.values_list(
            "id", "gpu_type__name", "gpus", "effective_state"
        )
    )


def _entitlements(
    pool_id: int,
    nodes: tuple[Node, ...],
    service: Service,
    prices: tuple[PoolPrice, ...],
    at_us: int,
) -> tuple[tuple[Entitlement, ...], list[Change]]:
    """Return the effective quotas at `at_us`, and their changes, which are dated by `quotas_since`.

    The tenants' own settings and offers, at `prices`, restrict the modes and limits.
    """
    at = from_us(at_us)
    posted = {price.gpu_type: price.price_micro for price in prices}
    bounds = _effective(pool_id, capacity_by_type(nodes), at)
    entitlements = narrowed(bounds, sharing_rules(pool_id, at), posted)
    known = {(claim.tenant, claim.gpu_type): claim.quota for claim in service.claims}
    now = {(e.tenant, e.gpu_type): e.gpus for e in entitlements}
    since_us = quotas_since(service, at_us)
    changes = [
        Change(since_us, ChangeKind.QUOTA, tenant, gpus=gpus, gpu_types=(gpu_type,))
        for tenant, gpu_type in sorted(set(known) | set(now))
        if known.get((tenant, gpu_type), 0) != (gpus := now.get((tenant, gpu_type), 0))
    ]
    return entitlements, changes


def _effective(pool_id: int, capacity: dict[str, int], at: datetime) -> list[Entitlement]:
    rows = (
        quotas_in_force(pool_id, at)
        .select_related("gpu_type")
        .order_by("tenant_id", "gpu_type__name")
    )
    by_type: dict[str, list[Quota]] = {}
    for quota in rows:
        by_type.setdefault(quota.gpu_type.name, []).append(quota)
    entitlements: list[Entitlement] = []
    for gpu_type, quotas in by_type.items():
        gpus = effective_quotas([row.gpus for row in quotas], capacity.get(gpu_type, 0))
        entitlements += [
            Entitlement(
                row.tenant_id, gpu_type, count, Mode(row.mode), row.borrow_limit, row.lend_limit
            )
            for row, count in zip(quotas, gpus, strict=True)
        ]
    return sorted(entitlements, key=lambda e: (e.tenant, e.gpu_type))


def _tenants(
    pool: Pool, rows: Iterable[Entitlement | JobValue | HeldJob], at_us: int
) -> tuple[Tenant, ...]:
    wanted = {row.tenant for row in rows}
    left = credit_left(pool.book, wanted, from_us(at_us))
    return tuple(
        Tenant(tenant, left[tenant].micro if tenant in left else None) for tenant in sorted(wanted)
    )


def _prices(
    pool_id: int, nodes: tuple[Node, ...], last: Iterable[Mapping[str, Any]]
) -> tuple[tuple[PoolPrice, ...], tuple[Surcharge, ...]]:
    """Return the last posted prices, with the operator's present settings for the next prices.

    Surcharges are returned only for types whose price rises with the queue.
    """
    posted = {row["gpu_type"]: row for row in last}
    settings = {
        setting.gpu_type.name: setting
        for setting in PriceSetting.objects.filter(pool_id=pool_id).select_related("gpu_type")
    }
    prices, surcharges = [], []
    for gpu_type in sorted({node.gpu_type for node in nodes}):
        setting = settings.get(gpu_type)
        row = posted.get(gpu_type, {})
        prices.append(
            PoolPrice(
                gpu_type,
                row.get("price_micro", 0),
                row.get("used", 0),
                row.get("capacity", 0),
                to_micro(setting.base) if setting else SECOND_US,
                int(setting.theta * ONE_MILLI) if setting else DEFAULT_THETA_MILLI,
            )
        )
        if setting and setting.surcharge_cap:
            surcharges.append(
                Surcharge(
                    gpu_type,
                    int(setting.surcharge_step * ONE_MILLI / 100),
                    int(setting.surcharge_cap * ONE_MILLI),
                    row.get("queued", 0),
                    row.get("surcharge_micro", 0),
                )
            )
    return tuple(prices), tuple(surcharges)


def _changes(
    pool_id: int, job_rows: Sequence[StoredJob], service: Service, at_us: int
) -> list[Change]:
    facts = [JobFacts(row.job) for row in job_rows]
    active = {row.job.id for row in job_rows}
    # A job in quarantine or on hold has not ended, but no longer counts as demand.
    vanished = [job.job for job in service.jobs if job.job not in active]
    since, at = from_us(service.at_us), from_us(at_us)
    facts += [
        JobFacts(JobValue(job, tenant, gpus, submitted_us, tuple(gpu_types), weight), ended_us)
        for job, tenant, gpus, submitted_us, gpu_types, weight, ended_us in fetch_rows(
            _GONE, [at, pool_id, since, at, vanished]
        )
        if job not in active
    ]
    holds = [LeaseHold(*row) for row in fetch_rows(_HOLDS, [pool_id, since])]
    return timed_changes(service, facts, holds, at_us)


def next_number(pool_id: int) -> int:
    return PoolFence.objects.values_list("next_round", flat=True).get(pool_id=pool_id)


def next_instant(pool_id: int, now: PoolNow) -> datetime:
    """Return the time of the next round on the grid, after the last checked time."""
    pool = Pool.objects.select_related("fence").get(pk=pool_id)
    step = timedelta(seconds=pool.round_s * now.scale)
    at = grid_instant(now, pool.round_s)
    checked = pool.fence.last_checked_at
    while checked is not None and at <= checked:
        at += step
    return at
