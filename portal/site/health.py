"""Readiness of the portal: one check per part, each with its own timeout.

A check fails if the database does not answer or lacks migrations, a pool stops, or a round does not
follow from the one before. A missing broker is a warning: only wake-ups are lost. An engine that
does not answer is a warning too, because neither another portal nor a restart would help.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cache

import redis
import structlog
from django.apps import apps
from django.conf import settings
from django.db import Error, connection
from django.db.migrations.loader import MigrationLoader

from scheduling.engine.clock import pool_time, silent_s
from scheduling.selectors.pools.vitals import PoolVitals, pool_vitals
from scheduling.selectors.rounds.sealing import BREAK, DAMAGE
from scheduling.selectors.rounds.space import file_problems
from tenants.scopes import site_scope
from tenants.sql import fetch_rows
from tenants.transparency.keys import key_problem
from tenants.transparency.scrub import faulty_logs

log = structlog.get_logger(__name__)

# A pool is late after two missed rounds and some seconds.
INTERVALS, SLACK_S = 2, 5.0
# Intents are executed in the round that made them, or retried in the next one.
INTENT_INTERVALS, INTENT_SLACK_S = 3, 30.0
# Rounds are sealed within seconds; many at once, after an upgrade, take minutes.
SEAL_SLACK_S = 120.0
QUERY_MS = 2000
BROKER_S = 1.0


class State(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILING = "failing"


@dataclass(frozen=True, slots=True)
class Check:
    """A check; `detail` is for operators: it may name pools, but contains no secret."""

    name: str
    state: State
    detail: str = ""


def readiness() -> list[Check]:
    """Run all checks; faults become results, not exceptions."""
    try:
        with site_scope():
            be_quick()
            applied = _applied()
            missing = sorted(known_migrations() - applied)
            pools = [] if missing else pool_vitals()
            logs = Check("logs", State.FAILING, "not known") if missing else _logs()
            files = Check("files", State.FAILING, "not known") if missing else _files()
    except Error as error:
        log.warning("ready.no_database", error=type(error).__name__)
        unknown = [
            Check(name, State.FAILING, "not known")
            for name in ("migrations", *_RUNNING, "logs", "files")
        ]
        return [Check("database", State.FAILING, type(error).__name__), *unknown, broker()]
    return [
        Check("database", State.OK),
        _migrations(missing),
        *(_of_pools(name, pools, judge, known=not missing) for name, judge in _RUNNING.items()),
        logs,
        files,
        broker(),
    ]


def is_ready(checks: Iterable[Check]) -> bool:
    return all(check.state is not State.FAILING for check in checks)


def be_quick() -> None:
    """Limit each query of the transaction to the time that a probe waits."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(QUERY_MS)])


@cache
def known_migrations() -> frozenset[tuple[str, str]]:
    """Return the migrations of this code, as (app, name)."""
    loader = MigrationLoader(None, ignore_no_migrations=True)
    ours = {config.label for config in apps.get_app_configs()}
    return frozenset(key for key in loader.disk_migrations if key[0] in ours)


def _applied() -> set[tuple[str, str]]:
    return {(app, name) for app, name in fetch_rows("SELECT app, name FROM django_migrations")}


def _migrations(missing: list[tuple[str, str]]) -> Check:
    if not missing:
        return Check("migrations", State.OK)
    names = ", ".join(".".join(key) for key in missing[:5])
    return Check("migrations", State.FAILING, f"{len(missing)} missing: {names}")


def _logs() -> Check:
    """Return whether the logs of rounds and transfers are sound, as far as they were re-checked."""
    faulty = faulty_logs()
    if faulty:
        firsts = ((one.log.origin, one.faults[0]) for one in faulty[:5])
        texts = (f"{log}, entry {first['place']}: {first['text']}" for log, first in firsts)
        return Check("logs", State.FAILING, "; ".join(texts))
    problem = key_problem()
    return Check("logs", State.WARNING, problem) if problem else Check("logs", State.OK)


def _files() -> Check:
    """Return whether old days of rounds are in files and intact, as far as they were re-checked.

    This check never fails, because rounds, pages and books do not need the files.
    """
    problems = file_problems()
    return Check("files", State.WARNING if problems else State.OK, "; ".join(problems[:5]))


def _of_pools(
    name: str, pools: list[PoolVitals], judge: Callable[[PoolVitals], Check | None], *, known: bool
) -> Check:
    """Return the worst result of the pools that should run; paused ones are skipped.

    Checks of sealed data include paused pools.
    """
    if not known:
        return Check(name, State.FAILING, "not known")
    running = [pool for pool in pools if not pool.clock.paused or name in _OF_PAUSED]
    problems = [check for pool in running if (check := judge(pool)) is not None]
    if not problems:
        return Check(name, State.OK, f"{len(running)} of {len(pools)} pools run")
    state = max((check.state for check in problems), key=list(State).index)
    return Check(name, state, "; ".join(check.detail for check in problems[:5]))


def tick_age_s(pool: PoolVitals) -> float:
    """Return the wall seconds since a worker last ticked the pool's clock."""
    return (pool.wall - pool.clock.seen_wall).total_seconds()


def round_age_s(pool: PoolVitals) -> float:
    """Return the wall seconds since the last checked instant; for a new pool, its age."""
    return silent_s(pool.clock, pool.wall, pool.checked_at)


def intent_age_s(pool: PoolVitals) -> float:
    """Return the wall seconds since the oldest open intent was due; 0 without one."""
    if pool.oldest_intent_at is None:
        return 0.0
    age = pool_time(pool.clock, pool.wall) - pool.oldest_intent_at
    return max(age, timedelta(0)).total_seconds() / pool.clock.scale


def _ticks(pool: PoolVitals) -> Check | None:
    age_s = tick_age_s(pool)
    if age_s <= INTERVALS * pool.round_s + SLACK_S:
        return None
    return Check("ticks", State.FAILING, f"{pool.name}: last tick {age_s:.0f} s ago")


def _rounds(pool: PoolVitals) -> Check | None:
    age_s = round_age_s(pool)
    failed = f", {pool.failures} failed in a row" if pool.failures else ""
    if age_s > INTERVALS * pool.round_s + SLACK_S:
        return Check("rounds", State.FAILING, f"{pool.name}: last {age_s:.0f} s ago{failed}")
    if pool.broken:
        return Check("rounds", State.FAILING, f"{pool.name}: {pool.broken}")
    if pool.failures:
        return Check("rounds", State.WARNING, f"{pool.name}{failed}")
    if pool.damaged:
        noun = "stored round is" if pool.damaged == 1 else "stored rounds are"
        return Check("rounds", State.WARNING, f"{pool.name}: {pool.damaged} {noun} damaged")
    return None


def _intents(pool: PoolVitals) -> Check | None:
    age_s = intent_age_s(pool)
    refused = f"{pool.refused} of {pool.open_intents} refused by the executor"
    if age_s > INTENT_INTERVALS * pool.round_s + INTENT_SLACK_S and not pool.is_executor_down:
        return Check("intents", State.FAILING, f"{pool.name}: open for {age_s:.0f} s, {refused}")
    if pool.refused or (pool.is_executor_down and pool.open_intents):
        return Check("intents", State.WARNING, f"{pool.name}: {refused}")
    return None


def _executors(pool: PoolVitals) -> Check | None:
    """Return whether the engine answers and lists its leases.

    This check never fails, because the engine is external.
    """
    said = []
    if pool.is_executor_down:
        said.append(f"{pool.executor_failures} calls in a row failed: {pool.executor_error}")
    if pool.frozen_since is not None:
        since = f"{pool.frozen_since:%Y-%m-%d %H:%M} UTC"
        said.append(f"{pool.missing} leases are not listed since {since}: nothing is concluded")
    return Check("executors", State.WARNING, f"{pool.name}: {', '.join(said)}") if said else None


def seal_age_s(pool: PoolVitals) -> float:
    """Return the wall seconds since the oldest unsealed round was committed; 0 without one."""
    if pool.unsealed_at is None:
        return 0.0
    return max(0.0, (pool.wall - pool.unsealed_at).total_seconds())


def _chain(pool: PoolVitals) -> Check | None:
    """Check that each round follows from the one before; after a break, rounds are unprovable."""
    for kind, state in ((BREAK, State.FAILING), (DAMAGE, State.WARNING)):
        rows = [row for row in pool.findings if row["kind"] == kind]
        if rows:
            more = f" ({len(rows)} findings)" if len(rows) > 1 else ""
            said = f"{pool.name}, round {rows[0]['number']}: {rows[0]['text']}{more}"
            return Check("chain", state, said)
    if pool.seal_failure or seal_age_s(pool) > SEAL_SLACK_S:
        said = f"{pool.name}, round {pool.rounds - pool.unsealed + 1}: not sealed for"
        why = f": {pool.seal_failure}" if pool.seal_failure else ""
        return Check("chain", State.WARNING, f"{said} {seal_age_s(pool):.0f} s{why}")
    return None


_RUNNING: dict[str, Callable[[PoolVitals], Check | None]] = {
    "ticks": _ticks,
    "rounds": _rounds,
    "intents": _intents,
    "executors": _executors,
    "chain": _chain,
}
_OF_PAUSED = ("chain",)


def broker_client() -> redis.Redis:
    """Return a connection to the broker with a short timeout."""
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=BROKER_S, socket_connect_timeout=BROKER_S
    )


def broker() -> Check:
    try:
        with broker_client() as client:
            client.ping()
    except (redis.RedisError, OSError) as error:
        return Check("broker", State.WARNING, type(error).__name__)
    return Check("broker", State.OK)
