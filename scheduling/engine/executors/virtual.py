"""`virtual`: jobs last as long as they say, in pool time. For demos, load tests and training.

Its world is the table VirtualWork alone; it starts and stops at the very instants it is asked
for, so that a live round and a simulated one give the same leases.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

from scheduling.engine.executors.base import Extension, Launch, Report, ReportState, Stop
from scheduling.models import VirtualWork


class VirtualExecutor:
    """Executor protocol over rows instead of processes."""

    def launch(self, launches: Sequence[Launch]) -> list[Report]:
        """Start work; a token that runs or ran already is reported as it stands."""
        with connection.cursor() as cursor:
            cursor.execute(
                """
                UPDATE scheduling_virtualwork work
                SET token = x.token, launched_us = x.at_us
                FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) x(job_id, token, at_us)
                WHERE work.job_id = x.job_id AND work.token <> x.token
                """,
                [
                    [launch.job_id for launch in launches],
                    [launch.token for launch in launches],
                    [launch.at_us for launch in launches],
                ],
            )
        wanted = {launch.token for launch in launches}
        works = VirtualWork.objects.filter(job_id__in=[launch.job_id for launch in launches])
        return [
            Report(work.token, ReportState.RUNNING, work.launched_us)
            for work in works
            if work.token in wanted and work.launched_us is not None
        ]

    def stop(self, stops: Sequence[Stop]) -> list[Report]:
        """Stop work at the asked instant; what had finished by then is reported finished."""
        asked = {stop.token: stop for stop in stops}
        works = VirtualWork.objects.filter(token__in=list(asked))
        reports = [_stopped(work, asked[work.token].at_us) for work in works]
        found = {report.token for report in reports}
        # Work that was never launched is stopped too: nothing of it runs.
        reports += [
            Report(stop.token, ReportState.STOPPED, stop.at_us, stop.at_us)
            for stop in stops
            if stop.token not in found
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
                    done_us = least(duration_us, done_us + x.ended_us - launched_us)
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


def _listed(work: VirtualWork, at_us: int) -> Report | None:
    if work.launched_us is None:
        return None
    ends_us = work.launched_us + work.duration_us - work.done_us
    if ends_us <= at_us:
        return Report(work.token, ReportState.FINISHED, work.launched_us, ends_us, work.exit_code)
    return Report(work.token, ReportState.RUNNING, work.launched_us)


def _stopped(work: VirtualWork, at_us: int) -> Report:
    listed = _listed(work, at_us)
    if listed is not None and listed.state is ReportState.FINISHED:
        return listed
    started_us = at_us if work.launched_us is None else work.launched_us
    return Report(work.token, ReportState.STOPPED, started_us, max(at_us, started_us))
