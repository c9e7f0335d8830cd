"""Stores the reported values of stopping metrics as a bounded list of (iteration, metric).

Each report contains all evaluations of a process. A repeated, late or reordered report therefore
changes nothing, and a missed one is included in the next. Unusable reports are left out and noted
on the job. Curves are fitted outside rounds, by `scheduling.engine.refits`. Source:
docs/estimation.md.
"""

from collections.abc import Sequence
from typing import NamedTuple

import structlog

from evenshare_core.estimation.evaluations import merge_evaluations, refusal_of
from scheduling.engine.executors.base import Evaluations, Report, lease_token, token_job
from scheduling.engine.fence import lock_fence
from scheduling.models import Job, Lease, MetricHistory, criterion_of
from scheduling.selectors import stored_texts as texts
from tenants.faults import fault_point
from tenants.scopes import engine_scope

# The length of `MetricHistory.refused`.
WHY_MAX = 200

log = structlog.get_logger(__name__)


class _Change(NamedTuple):
    history: MetricHistory
    is_new: bool


def keep_evaluations(
    pool_id: int, token: int, reports: Sequence[Report], *, installation: str
) -> None:
    """Add the reported evaluations of stopping metrics to the histories of their jobs.

    Call it before the same reports are observed. It accepts only reports of live leases, of jobs
    that have a criterion and may still run.
    """
    speaking = {one.token: one.evaluations for one in reports if one.evaluations is not None}
    if not speaking:
        return
    with engine_scope(pool_id):
        lock_fence(pool_id, token)
        changes = [
            change
            for job, evaluations in _jobs(pool_id, speaking, installation)
            if (change := _change(job, evaluations)) is not None
        ]
        MetricHistory.objects.bulk_create(one.history for one in changes if one.is_new)
        MetricHistory.objects.bulk_update([one.history for one in changes if not one.is_new], _KEPT)
        fault_point("evaluate.before_commit")


_KEPT = ["points", "evaluations", "iteration", "is_met", "refused"]


def _jobs(
    pool_id: int, speaking: dict[str, Evaluations], installation: str
) -> list[tuple[Job, Evaluations]]:
    """Return jobs with a stopping criterion, and the reports of their live leases, by id."""
    leases = (
        Lease.objects.filter(
            pool_id=pool_id,
            job__in={token_job(token) for token in speaking},
            state__in=(Lease.State.LAUNCHING, Lease.State.RUNNING, Lease.State.STOPPING),
        )
        .exclude(job__stop_metric="")
        .select_related("job", "job__metric_history")
        .order_by("job_id", "number")
    )
    named = [(row.job, lease_token(row.job_id, row.number, installation)) for row in leases]
    # If a moved job has several leases, the newest lease's report is used.
    heard = {job.pk: (job, speaking[token]) for job, token in named if token in speaking}
    return list(heard.values())


def _change(job: Job, said: Evaluations) -> _Change | None:
    criterion = criterion_of(job)
    if criterion is None:
        return None
    is_new = not hasattr(job, "metric_history")
    history = MetricHistory(job=job, tenant_id=job.tenant_id) if is_new else job.metric_history
    why = said.refused or _refusal(job, said)
    if why:
        if history.refused == why[:WHY_MAX]:
            return None
        log.info("evaluate.refused", job=job.pk, why=why)
        history.refused = why[:WHY_MAX]
        return _Change(history, is_new)
    before = history.as_points
    points = merge_evaluations(before, said.points, criterion)
    if points == before:
        return None
    history.points = [list(point) for point in points]
    history.evaluations, history.iteration = len(points), points[-1].iteration
    history.is_met = any(criterion.is_met(point.metric) for point in points)
    return _Change(history, is_new)


def _refusal(job: Job, said: Evaluations) -> str:
    if said.metric != job.stop_metric:
        return texts.OTHER_METRIC
    return refusal_of(said.points)
