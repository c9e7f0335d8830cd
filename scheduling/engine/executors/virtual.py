"""`virtual`: jobs last as long as they declare, in pool time. For demos, load tests and training.

Its only state is the table VirtualWork. Jobs start and stop at exactly the requested times, so that
live and simulated rounds give the same leases. A job with a profile runs at the speed of
`VirtualSpeeds` on the lease's GPU type at its launch. Without such a row it runs at the profile's
speed. As in `evenshare_core.simulation.state`, all numbers are whole. A job ends after (remaining
work / speed), rounded up. A lease that is taken back has done (held time x speed) of work, rounded
down. A job with `VirtualSpeeds` reports its iterations so far, and the values of its stopping
metric (`scheduling.engine.executors.virtual_curves`). A profiling run lasts for its time limit, at
any speed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import connection

from evenshare_core.estimation.evaluations import StopCriterion
from evenshare_core.units import ONE_MILLI
from scheduling.engine.executors.base import (
    Evaluations,
    ExecutorError,
    ExecutorTraits,
    Extension,
    Iterations,
    Launch,
    Report,
    ReportState,
    Stop,
    token_job,
    token_number,
)
from scheduling.engine.executors.virtual_curves import evaluations_until
from scheduling.models import Job, VirtualWork, criterion_of
from tenants.scopes import site_scope

# By job: the metric's name, and the criterion.
Criteria = Mapping[int, tuple[str, StopCriterion]]


class VirtualExecutor:
    """The executor protocol, implemented by table rows instead of processes."""

    traits = ExecutorTraits(simulates=True, is_exclusive=True)

    def launch(self, launches: Sequence[Launch]) -> list[Report]:
        """Start work; for a token that already runs, report its current state.

        A late token is reported as stopped: its lease, or a later lease of its job, was launched or
        stopped before. Work that cannot run on its lease's GPU type is not started: it is reported
        as stopped, and its job waits again.
        """
        with site_scope(), connection.cursor() as cursor:
            cursor.execute(
                """
                WITH asked AS (
                    SELECT x.job_id, x.token, x.at_us, x.number,
                           CASE WHEN job.profile_id IS NULL THEN %s
                                ELSE coalesce(
                                    (coalesce(truth.speedups, profile.speedups)
                                     ->> type.name)::integer, 0)
                           END AS speed_milli,
                           coalesce(truth.iteration_us, 0) AS iteration_us,
                           job.profiling_s * 1000000 AS limit_us,
                           (SELECT coalesce(extract(epoch FROM sum(h.ended_at - h.started_at)), 0)
                                   * 1000000
                            FROM scheduling_lease h
                            WHERE job.profiling_s > 0 AND h.job_id = x.job_id
                              AND h.number < x.number)::bigint AS held_us
                    FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::integer[])
                      x(job_id, token, at_us, number)
                    JOIN scheduling_job job ON job.id = x.job_id
                    JOIN scheduling_lease lease ON lease.job_id = x.job_id
                     AND lease.number = x.number
                    JOIN scheduling_gputype type ON type.id = lease.gpu_type_id
                    LEFT JOIN scheduling_profile profile ON profile.id = job.profile_id
                    LEFT JOIN scheduling_virtualspeeds truth ON truth.profile_id = profile.id
                )
                UPDATE scheduling_virtualwork work
                SET token = asked.token, launched_us = asked.at_us,
                    speed_milli = asked.speed_milli, last_number = asked.number,
                    iteration_us = asked.iteration_us,
                    duration_us = CASE
                        WHEN asked.limit_us = 0 THEN work.duration_us
                        ELSE work.done_us + greatest(asked.limit_us - asked.held_us, 0)
                                            * asked.speed_milli / 1000
                    END
                FROM asked
                WHERE work.job_id = asked.job_id AND work.last_number < asked.number
                  AND asked.speed_milli > 0
                """,
                [ONE_MILLI, *_columns(launches)],
            )
        works = _works([launch.token for launch in launches])
        criteria = _criteria(works.values())
        _end([launch for launch in launches if launch.token not in works])
        return [_launched(launch, works.get(launch.token), criteria) for launch in launches]

    def stop(self, stops: Sequence[Stop]) -> list[Report]:
        """Stop work at the requested time; report work that had finished by then as finished."""
        _end(stops)
        works = _works([stop.token for stop in stops])
        criteria = _criteria(works.values())
        return [_stopped(stop, works.get(stop.token), criteria) for stop in stops]

    def extend(self, pool_id: int, leases: Sequence[Extension]) -> None:
        """Do nothing: no process can outlive the portal, so no dead man's limit is needed."""

    def list(self, pool_id: int, at_us: int) -> list[Report]:
        """Report running work, and work whose duration has passed by `at_us`."""
        with site_scope():
            works = list(VirtualWork.objects.filter(job__pool_id=pool_id).exclude(token=""))
        criteria = _criteria(works)
        return [_listed(work, at_us, criteria) for work in works]

    def forget(self, tokens: Sequence[str]) -> None:
        """Add the work that an ended lease did, once, and clear its token."""
        with site_scope(), connection.cursor() as cursor:
            cursor.execute(
                """
                UPDATE scheduling_virtualwork work
                SET token = '', launched_us = NULL, stopped_us = NULL,
                    done_us = least(
                        duration_us,
                        done_us + (coalesce(x.ended_us, launched_us) - launched_us)
                                  * speed_milli / 1000
                    )
                FROM (
                    SELECT job.id AS job_id,
                           (extract(epoch FROM lease.ended_at) * 1000000)::bigint AS ended_us
                    -- By job, because no index has the token.
                    FROM unnest(%s::bigint[], %s::text[]) asked(job_id, token)
                    JOIN scheduling_virtualwork w ON w.job_id = asked.job_id
                     AND w.token = asked.token
                    JOIN scheduling_job job ON job.id = w.job_id
                    LEFT JOIN scheduling_lease lease ON lease.job_id = job.id
                     AND lease.number = split_part(w.token, '-', 3)::integer
                    -- If the lease is missing (a backup was restored), its work is unknown.
                    WHERE lease.ended_at IS NOT NULL OR lease.id IS NULL
                ) x
                WHERE work.job_id = x.job_id
                """,
                [[token_job(token) for token in tokens], list(tokens)],
            )


def _end(calls: Sequence[Launch | Stop]) -> None:
    """End the work of these tokens, so that they are never launched later."""
    if not calls:
        return
    with site_scope(), connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE scheduling_virtualwork work
            SET last_number = greatest(work.last_number, x.number),
                stopped_us = CASE WHEN work.token = x.token THEN coalesce(stopped_us, x.at_us)
                                  ELSE stopped_us END
            FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::integer[])
              x(job_id, token, at_us, number)
            WHERE work.job_id = x.job_id
            """,
            _columns(calls),
        )


def _columns(calls: Sequence[Launch | Stop]) -> list[list[int] | list[str]]:
    """Return the jobs, tokens, times and lease numbers."""
    return [
        [call.job_id for call in calls],
        [call.token for call in calls],
        [call.at_us for call in calls],
        [token_number(call.token) for call in calls],
    ]


def _works(tokens: Sequence[str]) -> dict[str, VirtualWork]:
    """Return the work of tokens that runs, or has ended and was not forgotten."""
    jobs = [token_job(token) for token in tokens]
    with site_scope():
        works = list(VirtualWork.objects.filter(job_id__in=jobs, token__in=list(tokens)))
    return {work.token: work for work in works}


def _criteria(works: Iterable[VirtualWork]) -> Criteria:
    """Return the stopping criteria of jobs that report their iterations, by job."""
    counted = [work.job_id for work in works if work.iteration_us]
    if not counted:
        return {}
    with site_scope():
        jobs = list(Job.objects.filter(pk__in=counted).exclude(stop_metric=""))
    named = ((job.pk, job.stop_metric, criterion_of(job)) for job in jobs)
    return {job: (metric, criterion) for job, metric, criterion in named if criterion is not None}


def _launched(launch: Launch, work: VirtualWork | None, criteria: Criteria) -> Report:
    if work is None:
        return Report(launch.token, ReportState.STOPPED, launch.at_us, launch.at_us)
    if work.stopped_us is not None:
        return _listed(work, work.stopped_us, criteria)
    return Report(launch.token, ReportState.RUNNING, _launched_us(work))


def _listed(work: VirtualWork, at_us: int, criteria: Criteria) -> Report:
    launched_us = _launched_us(work)
    left_us = work.duration_us - work.done_us
    ends_us = launched_us - (-left_us * ONE_MILLI // work.speed_milli)
    until_us = at_us if work.stopped_us is None else min(at_us, work.stopped_us)
    held_us = min(ends_us, until_us) - launched_us
    said: dict[str, Any] = {
        "iterations": _iterations(work, held_us),
        "evaluations": _evaluations(work, held_us, criteria),
    }
    if ends_us <= until_us:
        return Report(
            work.token, ReportState.FINISHED, launched_us, ends_us, work.exit_code, **said
        )
    if work.stopped_us is not None and work.stopped_us <= at_us:
        ended_us = max(work.stopped_us, launched_us)
        return Report(work.token, ReportState.STOPPED, launched_us, ended_us, **said)
    return Report(work.token, ReportState.RUNNING, launched_us, **said)


def _iterations(work: VirtualWork, held_us: int) -> Iterations | None:
    """Return the number of whole iterations in a held time, and their duration, rounded up."""
    if not work.iteration_us:
        return None
    count = max(0, held_us) * work.speed_milli // (work.iteration_us * ONE_MILLI)
    return Iterations(count, -(-count * work.iteration_us * ONE_MILLI // work.speed_milli))


def _evaluations(work: VirtualWork, held_us: int, criteria: Criteria) -> Evaluations | None:
    """Return the job's metric values since its first lease, or None if it has no metric."""
    if not work.iteration_us or work.job_id not in criteria:
        return None
    metric, criterion = criteria[work.job_id]
    done_us = work.done_us + max(0, held_us) * work.speed_milli // ONE_MILLI
    seen = evaluations_until(
        work.job_id,
        criterion,
        iterations=max(1, work.duration_us // work.iteration_us),
        done=min(done_us, work.duration_us) // work.iteration_us,
    )
    return Evaluations(metric, seen) if seen else None


def _stopped(stop: Stop, work: VirtualWork | None, criteria: Criteria) -> Report:
    """Report stopped work. Work that was never launched counts as stopped and never runs."""
    if work is None or work.stopped_us is None:
        return Report(stop.token, ReportState.STOPPED, stop.at_us, stop.at_us)
    return _listed(work, max(stop.at_us, work.stopped_us), criteria)


def _launched_us(work: VirtualWork) -> int:
    if work.launched_us is None:
        raise ExecutorError(f"the work of job {work.job_id} has a token and was not launched")
    return work.launched_us
