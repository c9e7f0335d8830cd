"""Queries the executor for its processes, and records the changes."""

from collections.abc import Sequence
from datetime import datetime

import structlog
from django.db.models import Case, Exists, OuterRef, When

from evenshare_core.domain.instants import to_us
from evenshare_core.units import SECOND_US
from scheduling.engine.breaker import GuardedExecutor, warn_of
from scheduling.engine.evaluate import keep_evaluations
from scheduling.engine.executors.base import (
    Executor,
    ExecutorError,
    Report,
    ReportState,
    Stop,
    lease_token,
    token_job,
)
from scheduling.engine.measure import measure
from scheduling.engine.missing import lost_leases
from scheduling.engine.observe import observe
from scheduling.engine.well_formed import without_other_pools
from scheduling.engine.write_offs import end_written_off, note_orphans
from scheduling.models import Intent, Lease, Pool
from tenants.faults import fault_point
from tenants.scopes import engine_scope

RUNS = (ReportState.ACCEPTED, ReportState.RUNNING)

log = structlog.get_logger(__name__)


def reconcile(
    pool: Pool, executor: Executor, token: int, *, installation: str, at: datetime
) -> int:
    """Record the executor's reports at `at`; return the number of ended processes.

    Leases that an operator wrote off are ended first. A process without a lease is stopped, and is
    recorded as long as it runs. A launched lease that is not listed ends by the rules of
    `scheduling.engine.missing`. If the executor does not answer, nothing else changes: no lease is
    declared lost.
    """
    guarded = GuardedExecutor(pool, executor, installation)
    try:
        reports, named = guarded.list(to_us(at))
    except ExecutorError as error:
        warn_of("executor.silent", pool, error)
        # Write-offs by an operator are applied even if the executor does not answer.
        return len(end_written_off(guarded, pool, token, (), at=at))
    fault_point("reconcile.after_list")
    written_off = end_written_off(guarded, pool, token, reports, at=at)
    live = _live_leases(pool, installation)
    reports = without_other_pools(pool, reports, live)
    measure(pool.pk, token, reports, installation=installation, at=at)
    keep_evaluations(pool.pk, token, reports, installation=installation)
    launched = [one for one, is_launched in live.items() if is_launched]
    missing = [one for one in launched if one not in named]
    lost = lost_leases(guarded, pool, token, missing=missing, launched=len(launched))
    reports = [*reports, *(Report(one, ReportState.STOPPED, to_us(at), to_us(at)) for one in lost)]
    ended = observe(pool.pk, token, reports, installation=installation, at=at)
    fault_point("reconcile.after_observe")
    orphans = [one.token for one in reports if one.state in RUNS and one.token not in live]
    stopped = _stop_orphans(pool, guarded, orphans, at)
    note_orphans(pool, guarded.health, token, set(orphans).difference(stopped))
    ended += stopped
    ended += [one for one in written_off if one not in named]
    guarded.forget(ended)
    return len(ended)


def _live_leases(pool: Pool, installation: str) -> dict[str, bool]:
    """Return the pool's live leases by token, each with whether it was launched."""
    launched = Intent.objects.filter(
        lease=OuterRef("pk"), kind=Intent.Kind.LAUNCH, state=Intent.State.DONE
    )
    live = (
        Lease.objects.filter(pool=pool)
        .exclude(state=Lease.State.ENDED)
        .annotate(launched=Case(When(state=Lease.State.LAUNCHING, then=Exists(launched))))
    )
    held = (Lease.State.RUNNING, Lease.State.STOPPING)
    with engine_scope(pool.pk):
        rows = list(live.values_list("job_id", "number", "state", "launched"))
    return {
        lease_token(job, number, installation): bool(launched) or state in held
        for job, number, state, launched in rows
    }


def _stop_orphans(
    pool: Pool, executor: GuardedExecutor, orphans: Sequence[str], at: datetime
) -> list[str]:
    """Stop processes whose lease has ended; return those that stopped.

    Such processes exist if an operator wrote the lease off, or if the portal crashed after
    recording the end and before requesting the stop.
    """
    if not orphans:
        return []
    log.warning("executor.orphans", pool=pool.name, tokens=list(orphans))
    grace_us = pool.grace_s * SECOND_US
    stops = [Stop(one, token_job(one), to_us(at), grace_us) for one in orphans]
    try:
        stopped = executor.stop(stops).reports
    except ExecutorError as error:
        warn_of("executor.refused", pool, error)
        return []
    return [report.token for report in stopped if report.state not in RUNS]
