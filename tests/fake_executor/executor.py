"""An executor for `FakeEngine`, in the order in which docs/executors.md explains it."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from evenshare_core.domain.instants import from_us, to_us
from scheduling.engine.clock import pool_time
from scheduling.engine.executors.base import (
    ExecutorError,
    ExecutorTraits,
    Extension,
    Launch,
    Report,
    ReportState,
    Stop,
    token_number,
)
from scheduling.models import Job, PoolClock
from tenants.scopes import site_scope
from tests.fake_executor.engine import EngineError, EngineJob, FakeEngine

# Inside the class, `list` is the method of that name.
Reports = list[Report]


@dataclass
class Promises:
    """A job's promises, kept across restarts: no lease up to number `closed` starts (again).

    `begun` is the exception: the lease whose submission was not answered may be submitted again.
    """

    closed: int = 0
    begun: int = 0


class FakeExecutor:
    """An executor for an engine that loses answers and reuses ids."""

    # The engine may forget running jobs: a lease counts as lost only if it is missing for 10
    # minutes.
    traits = ExecutorTraits(silence_s=600)

    def __init__(self) -> None:
        # Nothing else is kept in memory, because another process may make the next call.
        self._folder = Path(str(getattr(settings, "FAKE_ENGINE")))  # noqa: B009 - a setting of tests only
        self._engine = FakeEngine(self._folder / "engine.json")

    def launch(self, launches: Sequence[Launch]) -> list[Report]:
        """Start the jobs that do not run yet and may start; report all."""
        commands = self._commands([one.job_id for one in launches])
        reports: Reports = []
        with refusing(), self._promises() as promises:
            known = self._by_token()
            for one in launches:
                job, number = one.job_id, token_number(one.token)
                promise = promises.setdefault(job, Promises())
                may_start = number == promise.begun or number > promise.closed
                if one.token not in known and may_start and job in commands:
                    # Saved before the submission: if its answer is lost, the next call first checks
                    # whether the engine knows the token.
                    promise.closed = promise.begun = number
                    self._save(promises)
                    pool, seconds, code = commands[job]
                    self._engine.submit(one.token, str(pool), seconds, code)
                    known = self._by_token()
                if one.token in known:
                    promise.begun = 0
                    reports += self._reports([known[one.token]], one.at_us)
                else:
                    reports.append(Report(one.token, ReportState.STOPPED, one.at_us, one.at_us))
            self._save(promises)
        return reports

    def stop(self, stops: Sequence[Stop]) -> list[Report]:
        """End the jobs with these tokens; none of them starts later."""
        reports: Reports = []
        with refusing(), self._promises() as promises:
            for one in stops:
                promise = promises.setdefault(one.job_id, Promises())
                number = token_number(one.token)
                promise.closed = max(promise.closed, number)
                promise.begun = 0 if promise.begun == number else promise.begun
            self._save(promises)
            for one in stops:
                # Find the id by the token each time: the engine may have given an old id to another
                # job.
                job = self._by_token().get(one.token)
                if job is None:
                    reports.append(Report(one.token, ReportState.STOPPED, one.at_us, one.at_us))
                    continue
                self._engine.cancel(job.id)
                reports += self._reports([self._by_token()[one.token]], one.at_us)
        return [one for one in reports if one.state is not ReportState.RUNNING]

    def extend(self, pool_id: int, leases: Sequence[Extension]) -> None:
        """Do nothing: this engine has no time limits."""

    def list(self, pool_id: int, at_us: int) -> list[Report]:
        """Report all jobs of the pool that the engine knows."""
        with refusing():
            jobs = [job for job in self._engine.jobs() if job.label == str(pool_id)]
        return self._reports(jobs, at_us)

    def forget(self, tokens: Sequence[str]) -> None:
        """Remove ended jobs; the promise that they never start again stays saved."""
        with refusing():
            for token in tokens:
                job = self._by_token().get(token)
                if job is not None:
                    self._engine.remove(job.id)

    def _by_token(self) -> dict[str, EngineJob]:
        return {job.name: job for job in self._engine.jobs()}

    def _reports(self, jobs: Sequence[EngineJob], at_us: int) -> Reports:
        """Return the state of jobs at an instant of their pools' time."""
        with site_scope():
            clocks = PoolClock.objects.in_bulk({int(job.label) for job in jobs})
        return [self._report(job, clocks[int(job.label)], at_us) for job in jobs]

    def _report(self, job: EngineJob, clock: PoolClock, at_us: int) -> Report:
        started_us = to_us(pool_time(clock, from_us(job.started_us)))
        ended_us = to_us(pool_time(clock, from_us(job.ends_us)))
        if not job.is_over(self._engine.now_us()) or ended_us > at_us:
            return Report(job.name, ReportState.RUNNING, started_us)
        if job.cancelled:
            return Report(job.name, ReportState.STOPPED, started_us, ended_us)
        return Report(job.name, ReportState.FINISHED, started_us, ended_us, job.exit_code)

    def _commands(self, job_ids: Sequence[int]) -> dict[int, tuple[int, float, int]]:
        """Return pool, seconds and exit code of the jobs that have a lease to launch."""
        with site_scope():
            rows = Job.objects.filter(pk__in=job_ids, leases__state="launching")
            return {job.pk: (job.pool_id, *_read(job.command)) for job in rows}

    @contextmanager
    def _promises(self) -> Iterator[dict[int, Promises]]:
        """Yield the promises of all jobs, locked for other calls."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            file = self._folder / "promises.json"
            rows = json.loads(file.read_text()) if file.exists() else {}
            yield {int(job): Promises(*row) for job, row in rows.items()}

    def _save(self, promises: dict[int, Promises]) -> None:
        file = self._folder / "promises.json"
        written = file.with_suffix(".new")
        rows = {job: [one.closed, one.begun] for job, one in promises.items()}
        written.write_text(json.dumps(rows))
        written.replace(file)


def _read(command: Sequence[str]) -> tuple[float, int]:
    seconds, code = command
    return float(seconds), int(code)


@contextmanager
def refusing() -> Iterator[None]:
    """Raise `ExecutorError` if the engine does not answer; the caller tries again later."""
    try:
        yield
    except EngineError as error:
        raise ExecutorError(f"the engine: {error}") from error
