"""A circuit breaker around each pool's executor: rounds do not wait for a silent engine.

Five failed calls in a row open it. A successful `extend` or `forget` does not close it, since these
calls may send nothing to the engine. An open breaker refuses calls at once until a cool-down has
passed. The next call is a probe. The breaker's state is a database row, read before each call and
written when it changes, because rounds run in several processes. Rounds continue meanwhile: intents
stay open, and no lease is declared lost. Any other exception of an adapter counts as an
ExecutorError, so that an adapter's bug stops no round. Errors of the portal's own database are
raised unchanged. Source: docs/adr/0207-executors-that-fail.md.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TypeVar

import structlog
from django.db import Error, connection
from django.db.models import DateTimeField, Func, Q

from scheduling.engine.executors.base import (
    CALL_S,
    Executor,
    ExecutorError,
    Extension,
    Launch,
    Stop,
)
from scheduling.engine.well_formed import Listing, well_formed
from scheduling.models import ExecutorHealth, Pool
from scheduling.selectors import stored_texts as texts

# FAILURES failures in a row open the breaker, for COOL_DOWN_S at first. Each failed probe doubles
# the time, up to COOL_DOWN_MAX_S.
FAILURES = 5
COOL_DOWN_S = 30
COOL_DOWN_MAX_S = 300
# A probe blocks other probes for this time, even if its process dies.
PROBE_S = 30
T = TypeVar("T")

log = structlog.get_logger(__name__)


class BreakerOpenError(ExecutorError):
    """The engine was not called, because its breaker is open."""


def warn_of(event: str, pool: Pool, error: ExecutorError) -> None:
    """Log a failed call. Calls that the open breaker refused are not logged."""
    if not isinstance(error, BreakerOpenError):
        log.warning(event, pool=pool.name, error=str(error))


class GuardedExecutor:
    """A pool's executor behind its breaker. It returns only well-formed answers.

    If the engine cannot be reached, every call raises ExecutorError and no other error. `health`:
    the pool's row when the last call read it, or None if there is no row.
    """

    def __init__(self, pool: Pool, executor: Executor, installation: str) -> None:
        self._pool, self._executor, self.installation = pool, executor, installation
        self.silence_s = executor.traits.silence_s
        self.health: ExecutorHealth | None = None

    def launch(self, launches: Sequence[Launch]) -> Listing:
        """Start processes; return reports of the requested tokens only."""
        reports = self._call("launch", lambda: _listed(self._executor.launch(launches)))
        return self._well_formed(reports, {one.token for one in launches})

    def stop(self, stops: Sequence[Stop]) -> Listing:
        """Ask processes to stop; return reports of the requested tokens only."""
        reports = self._call("stop", lambda: _listed(self._executor.stop(stops)))
        return self._well_formed(reports, {one.token for one in stops})

    def list(self, at_us: int) -> Listing:
        """Return reports of all processes of the pool."""
        reports = self._call("list", lambda: _listed(self._executor.list(self._pool.pk, at_us)))
        return self._well_formed(reports, None)

    def extend(self, leases: Sequence[Extension]) -> None:
        """Move dead man's limits; a failure is only logged, as the next round calls again."""
        try:
            self._call(
                "extend", lambda: self._executor.extend(self._pool.pk, leases), is_answer=False
            )
        except ExecutorError as error:
            warn_of("executor.not_extended", self._pool, error)

    def forget(self, tokens: Sequence[str]) -> None:
        """Drop the executor's records.

        A failure is only logged: the executor lists the tokens until a call succeeds.
        """
        if not tokens:
            return
        try:
            self._call("forget", lambda: self._executor.forget(tokens), is_answer=False)
        except ExecutorError as error:
            warn_of("executor.not_forgotten", self._pool, error)

    def _well_formed(self, reports: Sequence[object], asked: set[str] | None) -> Listing:
        return well_formed(self._pool, reports, installation=self.installation, asked=asked)

    def _call(self, name: str, call: Callable[[], T], *, is_answer: bool = True) -> T:
        """Make a call. `is_answer`: if the call succeeds, the engine has answered."""
        self._admit(may_probe=is_answer)
        began = time.monotonic()
        try:
            answer = call()
        except Error:
            raise
        except ExecutorError as error:
            self._note_failure(str(error))
            raise
        except Exception as error:
            log.exception("executor.raised", pool=self._pool.name, call=name)
            failure = ExecutorError(f"{type(error).__name__}: {error}")
            self._note_failure(str(failure))
            raise failure from error
        if (took_s := time.monotonic() - began) > CALL_S:
            log.warning("executor.slow", pool=self._pool.name, call=name, took_s=round(took_s, 1))
        if is_answer and self.health is not None and self.health.failures:
            self._note_success()
        return answer

    def _admit(self, *, may_probe: bool) -> None:
        self.health = ExecutorHealth.objects.filter(pool=self._pool).first()
        if self.health is None or self.health.failures < FAILURES:
            return
        now = Func(function="clock_timestamp", output_field=DateTimeField())
        # No cool-down ends later than this. A later end means that the clock was set back.
        too_late = now + timedelta(seconds=max(COOL_DOWN_MAX_S, PROBE_S))
        # Compare-and-swap: only one of several processes makes the probe.
        over = ExecutorHealth.objects.filter(
            Q(open_until__lte=now) | Q(open_until__gt=too_late),
            pool=self._pool,
            failures__gte=FAILURES,
        )
        if not may_probe or not over.update(open_until=now + timedelta(seconds=PROBE_S)):
            raise BreakerOpenError(
                texts.NOT_ASKED.format(count=self.health.failures, error=self.health.error)
            )

    def _note_failure(self, error: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                """
                INSERT INTO scheduling_executorhealth AS h (pool_id, failures, failing_since, error)
                VALUES (%(pool)s, 1, clock_timestamp(), %(error)s)
                ON CONFLICT (pool_id) DO UPDATE SET
                    failures = h.failures + 1,
                    failing_since = coalesce(h.failing_since, clock_timestamp()),
                    error = excluded.error,
                    open_until = CASE WHEN h.failures + 1 >= %(limit)s THEN
                        clock_timestamp() + make_interval(secs => least(
                            %(most)s, %(first)s * 2 ^ least(h.failures + 1 - %(limit)s, 16)))
                    END
                RETURNING failures
                """,
                {
                    "pool": self._pool.pk,
                    # Adapters quote their engine's messages, but the column accepts no NUL and no
                    # surrogates.
                    "error": error.replace("\0", "")[:400].encode(errors="replace").decode(),
                    "limit": FAILURES,
                    "first": COOL_DOWN_S,
                    "most": COOL_DOWN_MAX_S,
                },
            )
            (failures,) = cursor.fetchone()
        if failures == FAILURES:
            log.error("executor.breaker_opened", pool=self._pool.name, error=error)

    def _note_success(self) -> None:
        ExecutorHealth.objects.filter(pool=self._pool).update(
            failures=0, failing_since=None, open_until=None, error=""
        )
        log.info("executor.answers_again", pool=self._pool.name)


def _listed(answer: Iterable[object]) -> list[object]:
    """Return all reports of an adapter's answer; raise an error if the answer is not iterable."""
    return list(answer)
