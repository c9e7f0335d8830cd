"""Delivers intents to the executor, after the commit and outside any transaction.

An intent stays open until its call has succeeded, and is retried with the same token. So the next
call repairs a crash after the commit, or after the call but before the intent was marked as done.
"""

from collections.abc import Sequence
from datetime import datetime

from evenshare_core.domain.instants import to_us
from evenshare_core.units import SECOND_US
from scheduling.engine.breaker import BreakerOpenError, GuardedExecutor, warn_of
from scheduling.engine.evaluate import keep_evaluations
from scheduling.engine.executors.base import (
    Executor,
    ExecutorError,
    Launch,
    Report,
    Stop,
    lease_token,
)
from scheduling.engine.measure import measure
from scheduling.engine.observe import observe
from scheduling.models import Intent, Lease, Pool
from tenants.faults import fault_point
from tenants.scopes import engine_scope

# Two passes normally suffice: a stop may free GPUs for a launch, but a launch opens no intents.
_PASSES = 4


def dispatch(pool: Pool, executor: Executor, token: int, *, installation: str, at: datetime) -> int:
    """Deliver the pool's open intents at `at`; return the number of delivered intents."""
    guarded = GuardedExecutor(pool, executor, installation)
    done = 0
    for _ in range(_PASSES):
        intents = _open(pool)
        if not intents:
            break
        fault_point("dispatch.before_call")
        reports, carried = _carry(pool, guarded, intents, installation, at)
        fault_point("dispatch.after_call")
        if not carried:
            break
        measure(pool.pk, token, reports, installation=installation, at=at)
        keep_evaluations(pool.pk, token, reports, installation=installation)
        ended = observe(pool.pk, token, reports, installation=installation, at=at)
        fault_point("dispatch.after_observe")
        guarded.forget(ended)
        done += _mark_done(pool, carried)
    return done


def _open(pool: Pool) -> list[Intent]:
    with engine_scope(pool.pk):
        return list(
            Intent.objects.filter(pool=pool, state=Intent.State.OPEN)
            .select_related("lease")
            .only("kind", "attempts", "lease__job_id", "lease__number", "lease__state")
            .order_by("id")
        )


def _carry(
    pool: Pool,
    executor: GuardedExecutor,
    intents: Sequence[Intent],
    installation: str,
    at: datetime,
) -> tuple[list[Report], list[Intent]]:
    """Call the executor, stops first; return its reports and the intents it accepted."""
    stops = [intent for intent in intents if intent.kind == Intent.Kind.STOP]
    launches = [intent for intent in intents if intent.kind == Intent.Kind.LAUNCH]
    # A lease that ended before its launch is not launched.
    void = [intent for intent in launches if intent.lease.state != Lease.State.LAUNCHING]
    wanted = [intent for intent in launches if intent.lease.state == Lease.State.LAUNCHING]
    reports: list[Report] = []
    carried = list(void)
    try:
        if stops:
            grace_us = pool.grace_s * SECOND_US
            reports += executor.stop(
                [
                    Stop(_token(intent, installation), intent.lease.job_id, to_us(at), grace_us)
                    for intent in stops
                ],
            ).reports
            carried += stops
        if wanted:
            reports += executor.launch(
                [
                    Launch(_token(intent, installation), intent.lease.job_id, to_us(at))
                    for intent in wanted
                ],
            ).reports
            carried += wanted
    except ExecutorError as error:
        warn_of("executor.refused", pool, error)
        # While the breaker is open no call is made, so the engine has refused nothing.
        if not isinstance(error, BreakerOpenError):
            _note_failure(pool, [intent for intent in intents if intent not in carried], error)
    return reports, carried


def _token(intent: Intent, installation: str) -> str:
    return lease_token(intent.lease.job_id, intent.lease.number, installation)


def _mark_done(pool: Pool, intents: Sequence[Intent]) -> int:
    with engine_scope(pool.pk):
        return Intent.objects.filter(id__in=[intent.pk for intent in intents]).update(
            state=Intent.State.DONE
        )


def _note_failure(pool: Pool, intents: Sequence[Intent], error: ExecutorError) -> None:
    for intent in intents:
        intent.attempts += 1
        intent.last_error = str(error).replace("\0", "")[:400]
    with engine_scope(pool.pk):
        Intent.objects.bulk_update(intents, ["attempts", "last_error"])
