"""Executes a simulation: reads the pool's state or history, simulates, stores the results.

No transaction is open and no row is locked while it computes; it writes a short row now and then.
Callers run it in a separate process.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import structlog

from evenshare_core.domain.instants import from_us
from evenshare_core.domain.values import canonical_bytes, sha256_hex
from evenshare_core.policies.registry import options
from evenshare_core.simulation.outlook import Outlook, look_ahead
from evenshare_core.simulation.present import Start
from evenshare_core.simulation.state import Rules
from evenshare_core.units import HOUR_US, ONE_MILLI
from scheduling.engine.clock import read_clock, wall_now
from scheduling.engine.snapshots import next_instant, next_number, read_snapshot
from scheduling.models import Simulation
from scheduling.selectors import stored_texts as texts
from scheduling.selectors.jobs.work_left import work_left
from scheduling.services.lease_tuning import tune_lease
from scheduling.services.past_runs import PastRunError
from scheduling.services.policy_history import replay_history
from scheduling.services.simulations import State, beat_simulation, give_up_simulation, mine
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

BEAT_S = 1.0
WALL_S = 600


class NotWantedError(Exception):
    """The simulation was cancelled or given up in the meantime."""


class GivenUpError(Exception):
    """The simulation cannot continue; the message says why and what to do."""


def execute_simulation(
    simulation_id: int,
    claim: str,
    *,
    timer: Callable[[], float],
    is_orphan: Callable[[], bool] = lambda: False,
) -> str:
    """Run a claimed simulation to its end; return its final state ("" if it is no longer wanted).

    `timer` returns seconds; `is_orphan` returns whether the worker that would end this process is
    gone.
    """
    with site_scope():
        row = mine(simulation_id, claim).select_related("pool").first()
    if row is None:
        return ""
    try:
        result = _RUNS[row.kind](row, _Beat(row, timer, is_orphan))
    except NotWantedError:
        return ""
    except Exception as error:
        failure = str(error)
        if not isinstance(error, GivenUpError):
            log.exception("simulation.failed", simulation=simulation_id, pool=row.pool.name)
            failure = texts.SIMULATION_FAILED.format(error=f"{type(error).__name__}: {error}")
        give_up_simulation(simulation_id, claim, failure)
        return State.FAILED
    with site_scope():
        fields = {"state": State.DONE, "result": result, "progress_milli": ONE_MILLI}
        done = mine(simulation_id, claim).update(**fields, ended_at=wall_now())
    log.info("simulation.done", simulation=simulation_id, pool=row.pool.name, kept=bool(done))
    return State.DONE if done else ""


def _simulate_next_hours(row: Simulation, beat: "_Beat") -> dict[str, Any]:
    pool_id = row.pool_id
    with site_scope():
        now = read_clock(pool_id)
        number, at = next_number(pool_id), next_instant(pool_id, now)
    snapshot = read_snapshot(pool_id, number=number, at=at)
    with site_scope():
        work, assumed = work_left(snapshot)
        digest = sha256_hex(canonical_bytes(snapshot))
        mine(row.pk, row.claim).update(at=from_us(snapshot.at_us), snapshot_sha256=digest)
    start = Start(snapshot, work)
    until_us = snapshot.at_us + row.hours * HOUR_US
    present = start.rules
    wanted = [present]
    if _differs(row, present):
        wanted.append(_instead(present, row))
    runs: list[Outlook] = []
    for index, rules in enumerate(wanted):
        report = _time_span(beat, index, len(wanted), snapshot.at_us, until_us)
        runs.append(look_ahead(start, rules, until_us=until_us, progress=report))
    return {
        "gpus": start.cluster.capacity,
        "waiting": len(snapshot.jobs) - len(snapshot.leases),
        "assumed": asdict(assumed),
        "runs": [asdict(run) for run in runs],
    }


def _time_span(
    beat: "_Beat", run: int, runs: int, from_us: int, until_us: int
) -> Callable[[int], None]:
    return lambda at_us: beat(run, runs, (at_us - from_us) / (until_us - from_us))


def _compare_lease_lengths(row: Simulation, beat: "_Beat") -> dict[str, Any]:
    remarks: list[str] = []
    with _explained():
        tuning = tune_lease(
            row.pool.name,
            days=row.hours // 24,
            cold_s=row.options["restart_s"],
            remark=remarks.append,
            progress=lambda run: beat(run.position, run.runs, run.share),
        )
    return {**asdict(tuning), "remarks": remarks}


def _replay_history(row: Simulation, beat: "_Beat") -> dict[str, Any]:
    assert row.at is not None  # noqa: S101 - the request sets it
    with _explained():
        history = replay_history(
            row.pool.name,
            days=row.hours // 24,
            until=row.at,
            own=row.policy,
            others=row.options["policies"],
            seed=row.options["seed"],
            progress=beat,
        )
    result = asdict(history)
    with site_scope():
        mine(row.pk, row.claim).update(snapshot_sha256=result.pop("inputs_sha256"))
    return result


@contextmanager
def _explained() -> Iterator[None]:
    """End a simulation of the last days with a sentence about why they cannot be run."""
    try:
        yield
    except PastRunError as error:
        # The message begins with the option of the command.
        failure = str(error).removeprefix("--pool: ")
        raise GivenUpError(failure[:1].upper() + failure[1:] + ".") from error


_RUNS: dict[str, Callable[[Simulation, "_Beat"], dict[str, Any]]] = {
    Simulation.Kind.NEXT_HOURS: _simulate_next_hours,
    Simulation.Kind.LEASE_LENGTHS: _compare_lease_lengths,
    Simulation.Kind.HISTORY: _replay_history,
}


def _differs(row: Simulation, present: Rules) -> bool:
    """Return whether the requested policy or its options differ from those of the pool.

    Options that were not given have their defaults.
    """
    if row.policy != present.policy:
        return True
    return options(row.policy, row.options) != options(row.policy, dict(present.options))


def _instead(present: Rules, row: Simulation) -> Rules:
    return replace(present, policy=row.policy, options=row.options)


class _Beat:
    """Called after every simulated round: reports the progress and raises to stop."""

    def __init__(
        self, row: Simulation, timer: Callable[[], float], is_orphan: Callable[[], bool]
    ) -> None:
        self._row, self._timer, self._is_orphan = row, timer, is_orphan
        self._began_s = self._last_s = timer()

    def __call__(self, run: int, runs: int, share: float) -> None:
        """Report the simulated `share` of a run, whose index is `run`."""
        now_s = self._timer()
        if now_s - self._last_s < BEAT_S:
            return
        self._last_s = now_s
        milli = min(ONE_MILLI - 1, int((run + share) / runs * ONE_MILLI))
        if now_s - self._began_s > WALL_S:
            text = texts.TOOK_LONG.format(minutes=WALL_S // 60, percent=milli // 10)
            raise GivenUpError(text)
        if self._is_orphan():
            raise GivenUpError(texts.START_AGAIN.format(cause=texts.ORPHANED))
        if not beat_simulation(self._row.pk, self._row.claim, milli):
            raise NotWantedError
