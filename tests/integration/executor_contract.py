"""The contract of executors: a test suite that runs against each executor.

A test file provides the fixture `stage` and inherits `ExecutorContract`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from evenshare_core.domain.instants import from_us
from evenshare_core.units import SECOND_US
from scheduling.engine.executors.base import (
    Executor,
    Extension,
    Launch,
    Report,
    ReportState,
    Stop,
    token_job,
    token_number,
)
from scheduling.models import Pool
from tests.tools import PATIENCE_S

RUNNING, FINISHED, STOPPED = ReportState.RUNNING, ReportState.FINISHED, ReportState.STOPPED
GRACE_US = 5 * SECOND_US


class Stage(ABC):
    """A pool with leases for an executor to run, and its clock."""

    pool: Pool
    executor: Executor
    grain_us = 0  # the maximum time by which an engine's report may precede the true time

    @abstractmethod
    def lease(self, *, runs_s: float, exit_code: int = 0, after: str = "") -> str:
        """Create a job with a lease whose program runs for `runs_s`; return its token.

        `after` is the token of an earlier lease of the same job.
        """

    @abstractmethod
    def now_us(self) -> int:
        """Return the current pool time in microseconds."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Wait for some pool time."""

    def end(self, token: str) -> None:
        """Record in the database that a lease has ended, as `observe` does."""
        self.pool.leases.filter(job_id=token_job(token), number=token_number(token)).update(
            state="ended", ended_at=from_us(self.now_us())
        )

    def over(self, token: str) -> None:
        """End a process, record its end, and make the executor forget it."""
        self.ended(token, *self.stop(token))
        self.end(token)
        self.executor.forget([token])

    def launch(self, *tokens: str) -> list[Report]:
        now_us = self.now_us()
        return self.executor.launch([Launch(one, token_job(one), now_us) for one in tokens])

    def stop(self, *tokens: str) -> list[Report]:
        now_us = self.now_us()
        return self.executor.stop([Stop(one, token_job(one), now_us, GRACE_US) for one in tokens])

    def reports(self) -> dict[str, Report]:
        listed: Sequence[Report] = self.executor.list(self.pool.pk, self.now_us())
        assert len({report.token for report in listed}) == len(listed)
        return {report.token: report for report in listed}

    def ended(self, token: str, *already: Report) -> Report:
        """Wait until the executor reports that a token has ended."""
        found = {report.token: report for report in already}
        for _ in range(int(10 * PATIENCE_S)):
            report = found.get(token)
            if report is not None and report.state in (FINISHED, STOPPED):
                return report
            self.wait(0.1)
            found = self.reports()
        raise AssertionError(f"{token} does not end: {found}")


class CallsContract:
    def test_launch_reports_start(self, stage: Stage) -> None:
        before_us = stage.now_us()
        token = stage.lease(runs_s=60)
        (report,) = stage.launch(token)
        assert (report.token, report.state) == (token, RUNNING)
        late_us = report.started_us - before_us
        assert -stage.grain_us <= late_us <= stage.now_us() - before_us, late_us
        assert (report.ended_us, report.exit_code) == (None, None)

    def test_repeated_launch_adopts_running_process(self, stage: Stage) -> None:
        token = stage.lease(runs_s=60)
        (first,) = stage.launch(token)
        stage.wait(0.2)
        (second,) = stage.launch(token)
        assert second.started_us == first.started_us
        assert stage.reports()[token].started_us == first.started_us

    def test_launches_in_batches(self, stage: Stage) -> None:
        tokens = [stage.lease(runs_s=60) for _ in range(3)]
        assert {report.token for report in stage.launch(*tokens)} == set(tokens)
        assert set(stage.reports()) == set(tokens)

    def test_empty_batches_do_nothing(self, stage: Stage) -> None:
        assert stage.executor.launch([]) == []
        assert stage.executor.stop([]) == []
        stage.executor.forget([])
        stage.executor.extend(stage.pool.pk, [])
        assert stage.reports() == {}

    def test_end_reports_exit_code_and_time(self, stage: Stage) -> None:
        token = stage.lease(runs_s=0.3, exit_code=3)
        (launched,) = stage.launch(token)
        report = stage.ended(token)
        assert (report.state, report.exit_code) == (FINISHED, 3)
        assert report.ended_us is not None
        assert launched.started_us == report.started_us
        assert report.started_us + 300_000 <= report.ended_us <= stage.now_us()

    def test_stop_ends_running_process(self, stage: Stage) -> None:
        token = stage.lease(runs_s=60)
        (launched,) = stage.launch(token)
        report = stage.ended(token, *stage.stop(token), *stage.stop(token))
        assert (report.state, report.exit_code) == (STOPPED, None)
        assert report.ended_us is not None
        assert report.ended_us >= launched.started_us

    def test_stop_without_launch_reports_stopped(self, stage: Stage) -> None:
        token = stage.lease(runs_s=60)
        (report,) = stage.stop(token)
        assert report.state is STOPPED

    def test_list_omits_processes_of_other_pools(self, stage: Stage) -> None:
        stage.launch(stage.lease(runs_s=60))
        assert stage.executor.list(stage.pool.pk + 1, stage.now_us()) == []


class ExecutorContract(CallsContract):
    """Executors are idempotent by token, exact about ends, and forget on request."""

    def test_end_is_reported_until_forgotten(self, stage: Stage) -> None:
        token = stage.lease(runs_s=0.1)
        stage.launch(token)
        first = stage.ended(token)
        stage.wait(0.1)
        assert stage.reports()[token] == first
        stage.end(token)
        stage.executor.forget([token])
        stage.executor.forget([token])
        assert stage.reports() == {}

    def test_end_after_query_time_is_not_reported(self, stage: Stage) -> None:
        token = stage.lease(runs_s=0.1)
        stage.launch(token)
        between_us = stage.now_us()
        ended_us = stage.ended(token).ended_us
        assert ended_us is not None
        (report,) = stage.executor.list(stage.pool.pk, min(between_us, ended_us - 1))
        assert report.state is RUNNING

    def test_stop_after_finish_reports_finished(self, stage: Stage) -> None:
        token = stage.lease(runs_s=0.1, exit_code=4)
        stage.launch(token)
        stage.ended(token)
        (report,) = stage.stop(token)
        assert (report.state, report.exit_code) == (FINISHED, 4)

    def test_extension_keeps_reports_unchanged(self, stage: Stage) -> None:
        token = stage.lease(runs_s=60)
        stage.launch(token)
        before = stage.reports()
        until_us = stage.now_us() + 60 * SECOND_US
        for _ in range(2):
            stage.executor.extend(stage.pool.pk, [Extension(token, token_job(token), until_us)])
        assert stage.reports() == before

    def test_late_launch_of_old_lease_changes_nothing(self, stage: Stage) -> None:
        """A round that paused before its call continues while the job's next lease runs."""
        old = stage.lease(runs_s=60)
        stage.launch(old)
        stage.over(old)
        new = stage.lease(runs_s=60, after=old)
        stage.launch(new)
        before = stage.reports()
        for _ in range(2):
            (late,) = stage.launch(old)
            assert (late.token, late.state) == (old, STOPPED)
        assert stage.reports() == before
        assert before[new].state is RUNNING

    def test_launch_after_stop_never_starts(self, stage: Stage) -> None:
        token = stage.lease(runs_s=60)
        stage.stop(token)
        for _ in range(2):
            (late,) = stage.launch(token)
            assert (late.token, late.state) == (token, STOPPED)
        assert RUNNING not in {report.state for report in stage.reports().values()}

    def test_launch_after_forgotten_end_never_starts(self, stage: Stage) -> None:
        token = stage.lease(runs_s=60)
        stage.launch(token)
        stage.over(token)
        stage.launch(token)
        assert stage.reports() == {}

    def test_calls_for_old_lease_leave_next_lease_unchanged(self, stage: Stage) -> None:
        old = stage.lease(runs_s=60)
        stage.launch(old)
        stage.over(old)
        new = stage.lease(runs_s=60, after=old)
        stage.launch(new)
        before = stage.reports()
        stage.stop(old)
        until_us = stage.now_us() - 60 * SECOND_US
        stage.executor.extend(stage.pool.pk, [Extension(old, token_job(old), until_us)])
        stage.executor.forget([old])
        assert stage.reports() == before

    def test_launch_of_ended_lease_starts_nothing(self, stage: Stage) -> None:
        """The lease was cancelled between the read of its launch intent and the call."""
        token = stage.lease(runs_s=60)
        stage.stop(token)
        stage.end(token)
        stage.executor.forget([token])
        stage.launch(token)
        assert stage.reports() == {}
