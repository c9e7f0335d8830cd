"""Celery tasks, which only trigger work: lost or repeated messages change only latency."""

import subprocess
import sys
import time
from typing import Any

import structlog
from celery import shared_task
from django.conf import settings

from scheduling.engine.archive import archive_rounds
from scheduling.engine.clock import read_clocks, tick_clock, wall_now
from scheduling.engine.due import due_rounds
from scheduling.engine.failures import clear_failure, record_failure
from scheduling.engine.file_scrub import scrub_files
from scheduling.engine.housekeeping import drop_old_rows
from scheduling.engine.idle_gpus import read_idle
from scheduling.engine.refits import is_refit_due
from scheduling.engine.rounds import RoundOutcome, execute_round
from scheduling.engine.scrub import scrub_rounds
from scheduling.engine.seal import retry_sealing, seal_rounds
from scheduling.models import Pool
from scheduling.outbox.budgets import announce_budgets
from scheduling.outbox.gather import gather_pool, roll_digests
from scheduling.outbox.send import drop_old_messages, is_message_due
from scheduling.selectors.rounds.sealing import unsealed_pools
from scheduling.selectors.stored_texts import NOT_STARTED
from scheduling.services import forecasts as forecasting
from scheduling.services.simulations import (
    LOST_FAILURE,
    claim_simulations,
    fail_lost_simulations,
    give_up_simulation,
    is_simulation_wanted,
)
from scheduling.services.wake import wake_sealing
from tenants.idempotency import drop_replies
from tenants.lockout import drop_attempts
from tenants.rate import drop_full_buckets
from tenants.transparency.scrub import scrub_logs

log = structlog.get_logger(__name__)

# The time limit of a task, because the same worker runs the ticks.
SEAL_S = 0.5
IDLE_S = 0.5
# A task starts no round after this time, because a worker that is asked to stop waits until its
# task ends.
ROUNDS_S = 2.0
# Processes that this worker started, by the (id, claim) of their simulation or forecast.
_simulations: dict[tuple[int, str], subprocess.Popen[bytes]] = {}
_forecasts: dict[tuple[int, str], subprocess.Popen[bytes]] = {}
_refits: list[subprocess.Popen[bytes]] = []
_senders: list[subprocess.Popen[bytes]] = []


@shared_task(name="scheduling.tick", ignore_result=True)
def tick(**_: Any) -> None:
    """Run the clocks of all pools, and request the sealing of unsealed rounds.

    Celery Beat calls this task every second. A pool that fails delays no other pool.
    """
    for pool in Pool.objects.order_by("id"):
        try:
            tick_clock(pool.pk)
        except Exception:
            log.exception("tick.failed", pool=pool.name)
    _wake_sealing()


def _wake_sealing() -> None:
    """Request the sealing of rounds that a lost message or a long backlog has left unsealed."""
    try:
        for pool_id in unsealed_pools():
            wake_sealing(pool_id)
    except Exception:
        log.exception("tick.unsealed")


@shared_task(name="scheduling.rounds", ignore_result=True, acks_late=True)
def rounds(asked: int | None = None, **_: Any) -> int:
    """Run the due rounds, the most late first in round intervals; return how many ran.

    It is called every second, and by services that request a round of the pool `asked`. It
    determines the due rounds again after each round. Processes may run at the same time, because
    only one of them can hold a pool's fence.
    """
    until = time.monotonic() + ROUNDS_S
    tried: set[int] = set()
    ran = 0
    while due := next((one for one in due_rounds(asked) if one.pool_id not in tried), None):
        outcome = None
        try:
            outcome = run_round(due.pool_id, on_demand=due.on_demand)
        except Exception:
            log.exception("round.raised", pool=due.pool)
        has_run = outcome in (RoundOutcome.COMMITTED, RoundOutcome.QUIET)
        ran += has_run
        if due.on_demand or not has_run:
            tried.add(due.pool_id)
        if time.monotonic() > until:
            break
    return ran


def run_round(pool_id: int, *, on_demand: bool = False) -> RoundOutcome:
    """Run the pool's round if it is due, or requested (`on_demand`); return the outcome."""
    try:
        outcome = execute_round(pool_id, now=tick_clock(pool_id), on_demand=on_demand).outcome
    except Exception as error:
        record_failure(pool_id, error)
        raise
    if outcome in (RoundOutcome.COMMITTED, RoundOutcome.QUIET):
        clear_failure(pool_id)
    if outcome is RoundOutcome.COMMITTED:
        wake_sealing(pool_id)
    return outcome


@shared_task(name="scheduling.idle", ignore_result=True)
def idle(**_: Any) -> int:
    """Count how much GPU-time leases hold idle, for a limited time; return how many were read."""
    until, read = time.monotonic() + IDLE_S, 0
    for pool in Pool.objects.order_by("?"):
        try:
            read += read_idle(pool, seconds=max(0.0, until - time.monotonic()))
        except Exception:
            log.exception("idle.failed", pool=pool.name)
    return read


@shared_task(name="scheduling.seal", ignore_result=True)
def seal(pool_id: int, **_: Any) -> int:
    """Seal the unsealed rounds of a pool, for a limited time; return how many.

    The time is limited because the same worker runs the ticks. The next tick requests the rest.
    """
    until, sealed = time.monotonic() + SEAL_S, 0
    while count := seal_rounds(pool_id):
        sealed += count
        if time.monotonic() > until:
            break
    return sealed


@shared_task(name="scheduling.archive", ignore_result=True)
def archive(**_: Any) -> int:
    """Archive old days of rounds, for a limited time; return the number of files."""
    return archive_rounds().files


@shared_task(name="scheduling.housekeeping", ignore_result=True)
def housekeeping(**_: Any) -> None:
    """Delete data whose retention time is over, and check stored rounds and files.

    Raises:
        ExceptionGroup: the errors of failed steps; the other steps were done nevertheless.
    """
    failures = []
    for step in (
        *(drop_old_rows, scrub_rounds, scrub_files, retry_sealing, scrub_logs),
        drop_old_messages,
        *(fail_lost_simulations, forecasting.drop_old_estimates),
        *(drop_replies, drop_attempts, drop_full_buckets),
    ):
        try:
            step()
        except Exception as error:
            log.exception("housekeeping.failed", step=step.__name__)
            failures.append(error)
    if failures:
        raise ExceptionGroup("housekeeping", failures)


@shared_task(name="scheduling.refits", ignore_result=True)
def refits(**_: Any) -> int:
    """Start fitting learning curves if there are new reports; return how many processes started.

    A separate process fits them and continues while there are curves to fit: it loads scipy, and
    the worker has to run the ticks.
    """
    _refits[:] = [process for process in _refits if process.poll() is None]
    if _refits or not is_refit_due():
        return 0
    try:
        _refits.append(_started("refit_curves"))
    except OSError as error:
        log.exception("refits.not_started", error=str(error))
        return 0
    return 1


@shared_task(name="scheduling.messages", ignore_result=True)
def messages(**_: Any) -> int:
    """Make messages of new events, and start sending if any are due; return how many were made.

    A separate process sends: a slow receiver must not delay the ticks.
    """
    made, now = 0, wall_now()
    for pool in Pool.objects.order_by("id"):
        try:
            made += gather_pool(pool.pk, now=now)
        except Exception:
            log.exception("messages.failed", pool=pool.name)
    _senders[:] = [process for process in _senders if process.poll() is None]
    if not _senders and is_message_due(now):
        try:
            _senders.append(_started("send_messages"))
        except OSError as error:
            log.exception("messages.not_started", error=str(error))
    # After the start of a sender: it sends what was collected for the digests that are due.
    roll_digests(now)
    return made


@shared_task(name="scheduling.budget_messages", ignore_result=True)
def budget_messages(**_: Any) -> int:
    """Make messages of budgets that are nearly or completely used; return how many."""
    pools = list(Pool.objects.order_by("-id"))
    clocks = read_clocks([pool.pk for pool in pools])
    # The time of a book is that of its oldest pool.
    pool_now = {pool.book: clocks[pool.pk].pool_at for pool in pools if pool.pk in clocks}
    return announce_budgets(pool_now, now=wall_now())


@shared_task(name="scheduling.simulations", ignore_result=True)
def simulations(**_: Any) -> int:
    """Give up lost simulations, and start the next ones; return how many.

    Each simulation gets its own process. The worker does not wait for it, because the worker must
    run the ticks.
    """
    fail_lost_simulations()
    for key, process in list(_simulations.items()):
        if process.poll() is not None:
            del _simulations[key]
            # no effect if the process recorded its end itself
            give_up_simulation(*key, LOST_FAILURE)
        elif not is_simulation_wanted(*key):
            process.kill()  # The simulation was cancelled or given up during one long decision.
    claimed = claim_simulations()
    for key in claimed:
        try:
            _simulations[key] = _started("run_simulation", *map(str, key))
        except OSError as error:
            log.exception("simulation.not_started", simulation=key[0])
            give_up_simulation(*key, NOT_STARTED.format(error=error))
    return len(claimed)


def _started(command: str, *arguments: str) -> subprocess.Popen[bytes]:
    manage = str(settings.BASE_DIR / "manage.py")
    return subprocess.Popen([sys.executable, manage, command, *arguments], stdin=subprocess.DEVNULL)


@shared_task(name="scheduling.forecasts", ignore_result=True)
def forecasts(**_: Any) -> int:
    """Give up a lost start forecast, and start one if it is time; return how many started.

    Like a simulation, it gets its own process, for which the worker does not wait.
    """
    forecasting.fail_lost_forecasts()
    for key, process in list(_forecasts.items()):
        if process.poll() is not None:
            del _forecasts[key]
            # no effect if the process recorded its end itself
            forecasting.give_up_forecast(*key, forecasting.LOST_FAILURE)
        elif not forecasting.is_forecast_wanted(*key):
            process.kill()  # The forecast was given up during one long decision.
    begun = forecasting.claim_forecast()
    if begun is None:
        return 0
    try:
        _forecasts[begun] = _started("forecast_starts", *map(str, begun))
    except OSError as error:
        log.exception("forecast.not_started", forecast=begun[0])
        forecasting.give_up_forecast(*begun, f"It could not be started: {error}.")
    return 1
