"""Prometheus metrics: requests of this process, and the state of pools and books.

Figures of pools come from the database at each scrape, so every web process returns the same.
Figures that would need a scan of all history are counted from the first scrape on. These and
requests are counted for all web processes together (`portal.site.shared_counts`). So Prometheus
sees a restart of the portal, but not of a single process. No label names a job, a tenant or a
person: their number is unbounded, and a monitor need not know them.
"""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from datetime import datetime
from operator import add
from pathlib import Path
from threading import Lock
from typing import Any

import structlog
from django.db import Error
from django.http import HttpRequest
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from redis import RedisError

from billing.selectors.vitals import BookVitals, book_vitals
from evenshare_core.domain.reasons import PreemptionRule
from evenshare_core.policies.promised_start import PromiseCounts
from evenshare_core.units import SECOND_US
from portal.embedded.heartbeat import touched_at
from portal.embedded.restarts import read_restarts
from portal.site.celery import QUEUES
from portal.site.health import (
    broker_client,
    intent_age_s,
    round_age_s,
    seal_age_s,
    tick_age_s,
)
from portal.site.shared_counts import WebProcesses, kept, shared_folder
from portal.site.unreadable import UnreadableCollector
from scheduling.engine.clock import pool_time, round_late_s
from scheduling.selectors.messages.vitals import OutboxVitals, outbox_vitals
from scheduling.selectors.pools.vitals import (
    CertificateVitals,
    GpuCount,
    PoolVitals,
    RoundsSince,
    active_jobs,
    certificate_vitals,
    gpu_counts,
    live_leases,
    pool_vitals,
    rounds_since,
)
from scheduling.selectors.rounds.sealing import BREAK, DAMAGE
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
# Maximum number of a pool's rounds per scrape; the next scrape reads the rest.
ROUNDS_AT_ONCE = 5000
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNMATCHED = "unmatched"
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# Each counter would get a second series for its creation time, which is not used.
disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped in the library
REGISTRY = CollectorRegistry()
_shared = shared_folder()
if _shared is None:
    ProcessCollector(registry=REGISTRY)
else:
    # This registry sums the counts of all processes; it omits counters of only this process.
    MultiProcessCollector(REGISTRY, path=str(_shared))  # type: ignore[no-untyped-call]  # untyped
    REGISTRY.register(WebProcesses())
REQUESTS = Counter(
    "http_requests",
    "Requests by URL template, method and status.",
    ["route", "method", "status"],
    namespace="evenshare",
    registry=None if _shared else REGISTRY,
)
SECONDS = Histogram(
    "http_request_seconds",
    "Seconds from the arrival of a request to the start of its response.",
    ["route", "method"],
    namespace="evenshare",
    buckets=_BUCKETS,
    registry=None if _shared else REGISTRY,
)


def exposition() -> bytes:
    """Return all metrics as Prometheus' text."""
    return generate_latest(REGISTRY)


def route_of(request: HttpRequest) -> str:
    """Return the template of the request's URL, not the URL: its values are unbounded."""
    match = request.resolver_match
    return f"/{match.route}" if match is not None else UNMATCHED


def request_count(request: HttpRequest, status: int, seconds: float) -> None:
    method = request.method if request.method in METHODS else "OTHER"
    _count(route_of(request), str(method), status, seconds)


def poll_count(route: str, status: int, seconds: float) -> None:
    """Count a poll that was answered before Django."""
    _count(route, "GET", status, seconds)


def _count(route: str, method: str, status: int, seconds: float) -> None:
    REQUESTS.labels(route, method, str(status)).inc()
    SECONDS.labels(route, method).observe(seconds)


def _gauge(name: str, help_text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"evenshare_{name}", help_text, labels=labels)


def _counter(name: str, help_text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"evenshare_{name}", help_text, labels=labels)


def _summary(name: str, help_text: str, *labels: str) -> SummaryMetricFamily:
    return SummaryMetricFamily(f"evenshare_{name}", help_text, labels=labels)


class RoundTotals:
    """Sums over the rounds since the first scrape, by pool; shared by all web processes."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._own: dict[str, Any] = {}

    def advance(self, pools: Iterable[PoolVitals]) -> dict[int, RoundsSince]:
        """Add the new rounds, with one query. A new pool starts at its present round."""
        with self._lock, kept("rounds", self._own) as stored:
            sums = {int(key): RoundsSince(*row) for key, row in stored.items()}
            for pool in pools:
                fresh = RoundsSince(pool.id, pool.rounds, *[0] * 13)
                if sums.setdefault(pool.id, fresh).number > pool.rounds:
                    sums[pool.id] = fresh  # the database was restored from an older backup
            after = {pool.id: sums[pool.id].number for pool in pools}
            for new in rounds_since(after, limit=ROUNDS_AT_ONCE):
                sums[new.pool] = _added(sums[new.pool], new)
            stored.clear()
            stored.update({str(key): list(astuple(row)) for key, row in sums.items()})
            return {pool_id: sums[pool_id] for pool_id in after}


def _added(before: RoundsSince, new: RoundsSince) -> RoundsSince:
    sums = map(add, astuple(before)[2:], astuple(new)[2:])
    return RoundsSince(before.pool, new.number, *sums)


class DatabaseCollector(Collector):
    """Pools and books in the database at the scrape, always with eight queries."""

    def __init__(self) -> None:
        self._totals = RoundTotals()

    def describe(self) -> Iterable[Metric]:
        """Return nothing: a registration must not query the database."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, or only that the database does not answer."""
        up = _gauge("database_up", "1: the database answered this scrape.")
        try:
            with site_scope():
                pools = pool_vitals()
                families = [
                    *_clocks(pools),
                    *_rounds(pools, totals := self._totals.advance(pools)),
                    *_certificates(pools, totals, certificate_vitals()),
                    *_work(pools),
                    *_gpus(pools, gpu_counts()),
                    *_engine(pools),
                    *_chain(pools),
                    *_books(pools, book_vitals()),
                    *_outbox(outbox_vitals()),
                ]
        except Error as error:
            log.warning("metrics.no_database", error=type(error).__name__)
            families = []
            up.add_metric([], 0)
        else:
            up.add_metric([], 1)
        yield up
        yield from families


def _outbox(vitals: OutboxVitals) -> Iterator[Metric]:
    due = _gauge("messages_due", "Messages to people that are not delivered yet.")
    due.add_metric([], vitals.due)
    age = _gauge("message_age_seconds", "Wall time since the oldest message that is due was made.")
    age.add_metric([], vitals.oldest_age_s)
    attempts = _gauge("deliveries", "Attempts to deliver messages in the last hour.", "outcome")
    attempts.add_metric(["sent"], vitals.sent)
    attempts.add_metric(["failed"], vitals.failed)
    receivers = _gauge("receivers", "Subscriptions that fail or were switched off.", "state")
    receivers.add_metric(["failing"], vitals.failing)
    receivers.add_metric(["switched_off"], vitals.switched_off)
    yield from (due, age, attempts, receivers)


def _clocks(pools: list[PoolVitals]) -> Iterator[Metric]:
    paused = _gauge("pool_paused", "1: the pool's clock is stopped.", "pool")
    tick = _gauge("tick_age_seconds", "Wall time since the last tick of the pool's clock.", "pool")
    for pool in pools:
        paused.add_metric([pool.name], float(pool.clock.paused))
        if not pool.clock.paused:
            tick.add_metric([pool.name], tick_age_s(pool))
    yield from (paused, tick)


def _rounds(pools: list[PoolVitals], totals: dict[int, RoundsSince]) -> Iterator[Metric]:
    rounds = _counter("rounds", "Rounds committed since the pool was created.", "pool")
    age = _gauge("round_age_seconds", "Wall time since the last check for a due round.", "pool")
    late = _gauge(
        "round_late_seconds", "Wall time for which a round has been due; 0: none.", "pool"
    )
    failing = _gauge("round_failures", "Failed rounds since the last successful one.", "pool")
    seconds = _summary("round_seconds", "Time of a round's steps.", "pool", "step")
    damaged = _gauge(
        "rounds_damaged",
        "Stored rounds that were changed or do not follow from the one before.",
        "pool",
    )
    fallbacks = _counter(
        "round_fallbacks", "Rounds in which a solver failed or reached its limit.", "pool"
    )
    leases = _counter("lease_decisions", "Leases granted, renewed or ended.", "pool", "decision")
    early = _counter(
        "preemptions", "Leases that rounds ended before their expiry, by rule.", "pool", "rule"
    )
    promised = _counter(
        "promised_starts",
        "Promised starts: made, kept, late or excused.",
        "pool",
        "outcome",
    )
    for pool in pools:
        total = totals[pool.id]
        rounds.add_metric([pool.name], pool.rounds)
        failing.add_metric([pool.name], pool.failures)
        damaged.add_metric([pool.name], pool.damaged)
        fallbacks.add_metric([pool.name], total.fallbacks)
        if not pool.clock.paused:
            age.add_metric([pool.name], round_age_s(pool))
            late_s = round_late_s(pool.clock, pool.wall, pool.checked_at, pool.round_s)
            late.add_metric([pool.name], late_s or 0.0)
        for step, spent_us in (("snapshot", total.snapshot_us), ("decide", total.decide_us)):
            seconds.add_metric([pool.name, step], total.rounds, spent_us / SECOND_US)
        for decision in ("granted", "renewed", "ended"):
            leases.add_metric([pool.name, decision], getattr(total, decision))
        for rule in PreemptionRule:
            early.add_metric([pool.name, rule.value], getattr(total, rule.value))
        for outcome in PromiseCounts._fields:
            promised.add_metric([pool.name, outcome], getattr(total, outcome))
    yield from (rounds, age, late, failing, damaged, seconds, fallbacks, leases, early, promised)


def _certificates(
    pools: list[PoolVitals], totals: dict[int, RoundsSince], last: list[CertificateVitals]
) -> Iterator[Metric]:
    violations = _gauge(
        "certificate_violations",
        "Violations of a promise in the pool's last certificate; 0: it holds.",
        *("pool", "property"),
    )
    failed = _gauge("certificate_failed", "1: the last round could not be certified.", "pool")
    age = _gauge("certificate_age_seconds", "Wall time since the last certificate.", "pool")
    rounds = _counter(
        "certified_rounds", "Rounds that broke a promise or were not certified.", "pool", "verdict"
    )
    names = {pool.id: pool.name for pool in pools}
    for one in last:
        failed.add_metric([names[one.pool]], float(one.failed))
        age.add_metric([names[one.pool]], one.age_s)
        for name, count in sorted(one.broken.items()):
            violations.add_metric([names[one.pool], name], count)
    for pool in pools:
        rounds.add_metric([pool.name, "violated"], totals[pool.id].violated)
        rounds.add_metric([pool.name, "not_certified"], totals[pool.id].uncertified)
    yield from (violations, failed, age, rounds)


def _work(pools: list[PoolVitals]) -> Iterator[Metric]:
    jobs = _gauge("jobs", "Jobs that have not ended, by state.", "pool", "state")
    leases = _gauge("leases", "Leases that have not ended, by state.", "pool", "state")
    arrivals = _gauge("arrivals", "Jobs of a replay that were not submitted yet.", "pool")
    names = {pool.id: pool.name for pool in pools}
    for (pool_id, state), count in active_jobs().items():
        jobs.add_metric([names[pool_id], state], count)
    for (pool_id, state), count in live_leases().items():
        leases.add_metric([names[pool_id], state], count)
    for pool in pools:
        arrivals.add_metric([pool.name], pool.arrivals)
    yield from (jobs, leases, arrivals)


def _gpus(pools: list[PoolVitals], counts: list[GpuCount]) -> Iterator[Metric]:
    gpus = _gauge(
        "gpus",
        "GPUs of nodes: used by leases, idle and schedulable, or blocked.",
        *("pool", "gpu_type", "use"),
    )
    names = {pool.id: pool.name for pool in pools}
    for row in counts:
        blocked = row.gpus - row.used - row.idle
        for use, count in (("used", row.used), ("idle", row.idle), ("blocked", blocked)):
            gpus.add_metric([names[row.pool], row.gpu_type, use], count)
    yield gpus


def _engine(pools: list[PoolVitals]) -> Iterator[Metric]:
    intents = _gauge("intents_open", "Intents that the executor has not executed.", "pool")
    refused = _gauge("intents_refused", "Open intents that the executor refused.", "pool")
    attempts = _gauge("intent_attempts", "Attempts to execute the open intents.", "pool")
    oldest = _gauge("intent_age_seconds", "Wall time since the oldest open intent was due.", "pool")
    memory = _gauge(
        "policy_state_bytes",
        "Size of the state that a pool carries to its next round, compressed.",
        "pool",
        "part",
    )
    failures = _gauge("executor_failures", "Failed calls of the executor in a row.", "pool")
    down = _gauge("executor_down", "1: the executor's circuit breaker is open.", "pool")
    missing = _gauge("leases_missing", "Launched leases that the executor does not list.", "pool")
    frozen = _gauge(
        "losses_frozen", "1: many leases are missing at once, so none counts as lost.", "pool"
    )
    for pool in pools:
        failures.add_metric([pool.name], pool.executor_failures)
        down.add_metric([pool.name], float(pool.is_executor_down))
        missing.add_metric([pool.name], pool.missing)
        frozen.add_metric([pool.name], float(pool.frozen_since is not None))
        intents.add_metric([pool.name], pool.open_intents)
        refused.add_metric([pool.name], pool.refused)
        attempts.add_metric([pool.name], float(pool.attempts))
        oldest.add_metric([pool.name], intent_age_s(pool))
        memory.add_metric([pool.name, "memory"], pool.memory_bytes)
        memory.add_metric([pool.name, "service"], pool.service_bytes)
    yield from (intents, refused, attempts, oldest, failures, down, missing, frozen, memory)


def _chain(pools: list[PoolVitals]) -> Iterator[Metric]:
    unsealed = _gauge("rounds_unsealed", "Rounds that are not sealed yet.", "pool")
    age = _gauge("unsealed_age_seconds", "Wall time since the oldest unsealed round.", "pool")
    broken = _gauge("chain_breaks", "Sealed rounds that do not follow from the one before.", "pool")
    damaged = _gauge("chain_damaged", "Rounds that were sealed as damaged.", "pool")
    for pool in pools:
        unsealed.add_metric([pool.name], pool.unsealed)
        age.add_metric([pool.name], seal_age_s(pool))
        for family, kind in ((broken, BREAK), (damaged, DAMAGE)):
            rounds = {row["number"] for row in pool.findings if row["kind"] == kind}
            family.add_metric([pool.name], len(rounds))
    yield from (unsealed, age, broken, damaged)


def _books(pools: list[PoolVitals], books: list[BookVitals]) -> Iterator[Metric]:
    lag = _gauge("meter_lag_events", "Lease events that are not metered yet.", "pool")
    charged = _gauge(
        "charged_credits",
        "Charges in the open hours and the 24 h before them (pool time).",
        "pool",
    )
    unsettled = _gauge("unsettled_credits", "Charges without a transfer yet.", "pool")
    settled = _gauge("settlement_age_seconds", "Pool time since the last settled hour.", "pool")
    by_id = {pool.id: pool for pool in pools}
    # A meter that never ran has no row: all of its events wait.
    metered = {book.pool: book.event_number for book in books}
    for pool in pools:
        lag.add_metric([pool.name], pool.events - metered.get(pool.id, 0))
    for book in books:
        pool = by_id[book.pool]
        charged.add_metric([pool.name], float(book.charged))
        unsettled.add_metric([pool.name], float(book.unsettled))
        if book.settled_until is not None:
            settled.add_metric([pool.name], _since(pool, book.settled_until))
    yield from (lag, charged, unsettled, settled)


def _since(pool: PoolVitals, at: datetime) -> float:
    return max(0.0, (pool_time(pool.clock, pool.wall) - at).total_seconds())


class QueueCollector(Collector):
    """The broker's queues, and the pulses of their workers if there is a supervisor."""

    def describe(self) -> Iterable[Metric]:
        """Return nothing: a registration must not query the broker."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield lengths of queues, or only that the broker does not answer, and ages of pulses."""
        up = _gauge("broker_up", "1: the broker answered this scrape.")
        waiting = _gauge("queue_messages", "Messages waiting in a queue.", "queue")
        try:
            with broker_client() as client:
                lengths: list[Any] = [client.llen(queue) for queue in QUEUES]
        except (RedisError, OSError):
            up.add_metric([], 0)
        else:
            up.add_metric([], 1)
            for queue, length in zip(QUEUES, lengths, strict=True):
                waiting.add_metric([queue], length)
        yield from (up, waiting, *_pulses())


def _pulses() -> Iterator[Metric]:
    age = _gauge("queue_pulse_age_seconds", "Time since a worker last answered.", "queue")
    starts = _counter("process_restarts", "Restarts of processes.", "process")
    run = os.environ.get("EVENSHARE_RUN_DIR")
    if run:
        for queue in QUEUES:
            at = touched_at(Path(run), f"pulse-{queue}")
            if at is not None:
                age.add_metric([queue], max(0.0, time.monotonic() - at))
        for row in read_restarts(Path(run)):
            starts.add_metric([row.name], row.count)
    yield from (age, starts)


REGISTRY.register(DatabaseCollector())
REGISTRY.register(QueueCollector())
REGISTRY.register(UnreadableCollector())
