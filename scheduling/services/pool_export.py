"""Export of a live pool to the files that `simulate` reads: jobs, nodes, quotas, prices, profiles.

The export has the present state. Changes since the pool's first round, and features that the
simulator lacks, are reported in remarks. A test simulates an exported pool and finds the leases of
its live rounds: tests/simulation/test_export_pool.py.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.policies.registry import missing_text
from evenshare_core.simulation.pool_files import NamedNode, nodes_csv, prices_csv, quotas_csv
from evenshare_core.simulation.profile_files import profiles_csv
from evenshare_core.simulation.workload_files import workload_csv
from evenshare_core.simulation.workloads import Workload
from scheduling.engine.clock import read_clock
from scheduling.engine.executors.base import executor_traits
from scheduling.engine.snapshots import next_instant, next_number, read_snapshot
from scheduling.models import MaintenanceWindow, Pool, PriceSetting, Profile, Round
from scheduling.models import Node as NodeRow
from scheduling.selectors import stored_texts as texts
from scheduling.selectors.jobs.past_work import PastJobs, open_jobs_count, past_jobs
from scheduling.selectors.jobs.work_left import work_left
from scheduling.selectors.pools.lines import no_pool_text
from scheduling.selectors.rounds.stored import DamagedRoundError, ReplayError, round_values
from scheduling.selectors.sharing.settings import narrowed, sharing_rules
from tenants.models import Budget, Quota
from tenants.scopes import site_scope
from tenants.selectors.quotas import quotas_in_force

FILE_OPTIONS = {
    "jobs.csv": "--trace",
    "nodes.csv": "--node-list",
    "quotas.csv": "--quotas",
    "prices.csv": "--prices",
    "profiles.csv": "--profiles",
}


class PoolExportError(Exception):
    """The pool cannot be exported; the message says why."""


@dataclass(frozen=True, slots=True)
class PoolExport:
    """The files and options for `simulate`, with remarks.

    `files` is keyed by file name; `FILE_OPTIONS` has the option of each file. `options` are the
    other options. `remarks` are sentences.
    """

    files: Mapping[str, str]
    options: tuple[str, ...]
    remarks: tuple[str, ...]


def export_pool(
    name: str, *, last_days: int | None = None, until: datetime | None = None
) -> PoolExport:
    """Return a pool as files, and the options to simulate it from its first round on.

    With `last_days`, the simulation starts that many days of pool time before `until`, by default
    now. The simulated pool is empty at that time, and only jobs submitted from then to `until`
    arrive.

    Raises:
        PoolExportError: the pool does not exist, has no node or no job, or its policy is not
            installed.
    """
    with site_scope():
        pool = Pool.objects.filter(name=name).first()
        if pool is None:
            raise PoolExportError(no_pool_text(name))
        now = read_clock(pool.pk)
        number, at = next_number(pool.pk), next_instant(pool.pk, now)
    simulates = executor_traits(pool.executor).simulates
    if not simulates and (missing := missing_text(pool.policy)):
        raise PoolExportError(missing)
    # Only a virtual executor knows how much work its jobs have left.
    snapshot = None if simulates else read_snapshot(pool.pk, number=number, at=at)
    with site_scope():
        left = {} if snapshot is None else work_left(snapshot)[0]
        end = now.pool_at if until is None else until
        since = None if last_days is None else end - timedelta(days=last_days)
        left_us = {key: one.left_us for key, one in left.items()}
        jobs = past_jobs(pool.pk, left_us, since=since, until=until)
        nodes = _nodes(pool)
        _check_there(pool, nodes, jobs, last_days)
        start = _start(pool, jobs)
        if since is not None:
            start = max(start, since)
        return PoolExport(
            _files(pool, nodes, jobs, now.pool_at),
            _options(pool, start, now.scale),
            tuple(_remarks(pool, start, jobs, simulates=simulates)),
        )


def _check_there(pool: Pool, nodes: list[NamedNode], jobs: PastJobs, last_days: int | None) -> None:
    if not nodes:
        raise PoolExportError(texts.NO_NODE.format(pool=pool.name))
    if not jobs.jobs and last_days is not None:
        days = texts.LAST_DAYS.format(count=f"{last_days:,}")
        days = texts.LAST_DAY if last_days == 1 else days
        raise PoolExportError(texts.NO_JOB_IN_TIME.format(pool=pool.name, days=days))
    if not jobs.jobs:
        raise PoolExportError(texts.NO_JOB.format(pool=pool.name))


def _nodes(pool: Pool) -> list[NamedNode]:
    """Return nodes in the order of the rounds; nodes that are not up have no GPUs."""
    rows = NodeRow.objects.filter(pool=pool).order_by("id")
    return [
        NamedNode(name, Node(id_, type_, gpus if state == NodeRow.State.UP else 0), cpus, memory_mb)
        for id_, name, type_, gpus, state, cpus, memory_mb in rows.values_list(
            "id", "name", "gpu_type__name", "gpus", "effective_state", "cpus", "memory_mb"
        )
    ]


def _files(pool: Pool, nodes: list[NamedNode], jobs: PastJobs, at: datetime) -> dict[str, str]:
    types = {one.node.gpu_type for one in nodes}
    files = {
        "jobs.csv": workload_csv(Workload(jobs.jobs, jobs.tenants), all_estimates=True),
        "nodes.csv": nodes_csv(nodes),
        "quotas.csv": quotas_csv(_quotas(pool, types, jobs, at)),
    }
    prices = PriceSetting.objects.filter(pool=pool, gpu_type__name__in=types)
    settings = prices.order_by("gpu_type__name").values_list(
        *("gpu_type__name", "base", "theta", "surcharge_cap", "surcharge_step")
    )
    if settings:
        files["prices.csv"] = prices_csv(settings)
    profiles = Profile.objects.filter(pool=pool, jobs__isnull=False).distinct().order_by("id")
    if profiles:
        files["profiles.csv"] = profiles_csv(
            (row.tenant.slug, row.name, row.speedups, row.priority)
            for row in profiles.select_related("tenant")
        )
    return files


def _quotas(
    pool: Pool, types: set[str], jobs: PastJobs, at: datetime
) -> list[tuple[str, Entitlement]]:
    """Return the quotas in force, and 0 GPUs for tenants that have jobs but no quota.

    The order of tenants in the file decides ties. Quotas are limited by the tenants' own settings;
    offers become lend limits at the last posted price.
    """
    rows = quotas_in_force(pool.pk, at).filter(gpu_type__name__in=types)
    rows = rows.select_related("gpu_type", "tenant")
    rules = sharing_rules(pool.pk, at)
    quotas = []
    for row in rows:
        bounds = Entitlement(
            row.tenant_id, row.gpu_type.name, row.gpus, Mode(row.mode), row.borrow_limit,
            row.lend_limit,
        )  # fmt: skip # rows of what belongs together
        (quota,) = narrowed([bounds], rules)
        quotas.append((row.tenant.slug, quota))
    without = set(jobs.tenants) - {quota.tenant for _, quota in quotas}
    quotas += [
        (jobs.tenants[tenant], Entitlement(tenant, min(types), 0)) for tenant in sorted(without)
    ]
    return sorted(quotas, key=lambda row: (row[1].tenant, row[1].gpu_type))


def _start(pool: Pool, jobs: PastJobs) -> datetime:
    """Return a pool's earliest known time: of its first job, first round, or that round's sums."""
    first = Round.objects.filter(pool=pool).order_by("number").first()
    starts_us = [job.submitted_us for job in jobs.jobs]
    if first is not None:
        starts_us.append(to_us(first.at))
        with suppress(ReplayError, DamagedRoundError):
            starts_us.append(round_values(first)[0].service.at_us)
    return from_us(min(starts_us))


def _options(pool: Pool, start: datetime, scale: int) -> tuple[str, ...]:
    options = [
        *("--policy", pool.policy, "--round-s", str(pool.round_s * scale)),
        *("--lease-s", str(pool.lease_s), "--seed", str(pool.seed)),
        *("--start", start.isoformat(), "--estimates", "given"),
    ]
    if pool.least_lease_s:
        options += ["--least-lease-s", str(pool.least_lease_s)]
    if pool.most_lease_s:
        options += ["--most-lease-s", str(pool.most_lease_s)]
    for key, value in sorted(pool.options.items()):
        options += ["--option", f"{pool.policy}.{key}={json.dumps(value)}"]
    return tuple(options)


def _remarks(pool: Pool, start: datetime, jobs: PastJobs, *, simulates: bool) -> list[str]:
    rounds = Round.objects.filter(pool=pool)
    quotas = Quota.objects.filter(pool=pool)
    changed = quotas.filter(Q(valid_from__gt=start) | Q(valid_until__isnull=False)).count()
    down = NodeRow.objects.filter(pool=pool).exclude(effective_state=NodeRow.State.UP).count()
    limits = Budget.objects.filter(
        book=pool.book, credit_limit__isnull=False, tenant__in=list(jobs.tenants)
    ).count()
    others = rounds.filter(at__gte=start).exclude(policy=pool.policy).count()
    windows = MaintenanceWindow.objects.filter(pool=pool).count()
    counted = (
        (open_jobs_count(pool.pk, start), texts.OLD_JOBS),
        (others, texts.OTHER_POLICY),
        (changed, texts.OTHER_QUOTAS),
        (down, texts.NODES_AWAY),
        (windows, texts.WINDOWS),
        (limits, texts.CREDIT_LIMITS),
        (jobs.quarantined, texts.QUARANTINED),
        (0 if simulates else jobs.guessed, texts.GUESSED),
        (jobs.scaled, texts.SCALED),
    )
    remarks = [text.format(count=f"{count:,}") for count, text in counted if count]
    if pool.on_demand:
        remarks.append(texts.ON_DEMAND)
    return remarks
