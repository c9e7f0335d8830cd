"""`virtual`: jobs last as long as they say, in pool time. For demos, load tests and training.

Its world is the table VirtualWork alone; it starts and stops at the very instants it is asked
for, so that a live round and a simulated one give the same leases. A job with a profile runs at
the speed that the profile has on the lease's GPU type when it is launched, in the whole numbers
of `evenshare_core.simulation.state`: it ends after the work left / speed, rounded up,
and a lease that is taken back has done the time held x speed, rounded down.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

from evenshare_core.units import ONE_MILLI
from scheduling.engine.executors.base import (
    ExecutorTraits,
    Extension,
    Launch,
    Report,
    ReportState,
    Stop,
)
from scheduling.models import VirtualWork


class VirtualExecutor:
    """Executor protocol over rows instead of processes."""

    traits = ExecutorTraits(simulates=True, is_exclusive=True)

    def launch(self, launches: Sequence[Launch]) -> list[Report]:
        """Start work; a token that runs or ran already is reported as it stands.

        Work that cannot run on its lease's GPU type is not started: it is reported stopped, and
        its job waits again.
        """
        with connection.cursor() as cursor:
            cursor.execute(
                """
                WITH asked AS (
                    SELECT x.job_id, x.token, x.at_us,
                           CASE WHEN job.profile_id IS NULL THEN %s
                                ELSE coalesce((profile.speedups ->> type.name)::integer, 0)
                           END AS speed_milli
                    FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) x(job_id, token, at_us)
                    JOIN scheduling_job job ON job.id = x.job_id
                    JOIN scheduling_lease lease ON lease.job_id = x.job_id
                     AND lease.number = split_part(x.token, '-', 3)::integer
                    JOIN scheduling_gputype type ON type.id = lease.gpu_type_id
                    LEFT JOIN scheduling_profile profile ON profile.id = job.profile_id
                )
                UPDATE scheduling_virtualwork work
                SET token = asked.token, launched_us = asked.at_us,
                    speed_milli = asked.speed_milli
                FROM asked
                WHERE work.job_id = asked.job_id AND work.token <> asked.token
                  AND asked.speed_milli > 0
                """,
                [
                    ONE_MILLI,
                    [launch.job_id for launch in launches],
                    [launch.token for launch in launches],
                    [launch.at_us for launch in launches],
                ],
            )
        works = VirtualWork.objects.filter(job_id__in=[launch.job_id for launch in launches])
        launched = {work.token: work.launched_us for work in works}
        return [_launched(launch, launched.get(launch.token)) for launch in launches]

    def stop(self, stops: Sequence[Stop]) -> list[Report]:
        """Stop work at the asked instant; what had finished by then is reported finished."""
        asked = {stop.token: stop for stop in stops}
        works = VirtualWork.objects.filter(token__in=list(asked))
        reports = [_stopped(work, asked[work.token].at_us) for work in works]
        known = {report.token for report in reports}
        # Work that was never launched is stopped too: nothing of it runs.
        reports += [
            Report(stop.token, ReportState.STOPPED, stop.at_us, stop.at_us)
            for stop in stops
            if stop.token not in known
        ]
        return reports

    def extend(self, pool_id: int, leases: Sequence[Extension]) -> None:
        """Nothing runs that could outlive the portal, so nothing needs a dead man's limit."""

    def list(self, pool_id: int, at_us: int) -> list[Report]:
        """Report running work, and work whose duration has passed by `at_us`."""
        works = VirtualWork.objects.filter(job__pool_id=pool_id).exclude(token="")
        return [report for work in works if (report := _listed(work, at_us)) is not None]

    def forget(self, tokens: Sequence[str]) -> None:
        """Book the work that an ended lease did, once, and clear its token."""
        with connection.cursor() as cursor:
            cursor.execute(
                """
                UPDATE scheduling_virtualwork work
                SET token = '', launched_us = NULL,
                    done_us = least(
                        duration_us, done_us + (x.ended_us - launched_us) * speed_milli / 1000
                    )
                FROM (
                    SELECT job.id AS job_id,
                           (extract(epoch FROM lease.ended_at) * 1000000)::bigint AS ended_us
                    FROM scheduling_virtualwork w
                    JOIN scheduling_job job ON job.id = w.job_id
                    JOIN scheduling_lease lease ON lease.job_id = job.id
                     AND lease.number = split_part(w.token, '-', 3)::integer
                    WHERE w.token = ANY(%s) AND lease.ended_at IS NOT NULL
                ) x
                WHERE work.job_id = x.job_id
                """,
                [list(tokens)],
            )


def _launched(launch: Launch, launched_us: int | None) -> Report:
    if launched_us is None:
        return Report(launch.token, ReportState.STOPPED, launch.at_us, launch.at_us)
    return Report(launch.token, ReportState.RUNNING, launched_us)


def _listed(work: VirtualWork, at_us: int) -> Report | None:
    if work.launched_us is None:
        return None
    left_us = work.duration_us - work.done_us
    ends_us = work.launched_us - (-left_us * ONE_MILLI // work.speed_milli)
    if ends_us <= at_us:
        return Report(work.token, ReportState.FINISHED, work.launched_us, ends_us, work.exit_code)
    return Report(work.token, ReportState.RUNNING, work.launched_us)


def _stopped(work: VirtualWork, at_us: int) -> Report:
    listed = _listed(work, at_us)
    if listed is not None and listed.state is ReportState.FINISHED:
        return listed
    started_us = at_us if work.launched_us is None else work.launched_us
    return Report(work.token, ReportState.STOPPED, started_us, max(at_us, started_us))
