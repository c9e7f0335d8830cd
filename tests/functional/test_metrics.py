"""Test metrics: their audience, their values, and no private values; also the logs of requests."""

from __future__ import annotations

import json
import logging
import logging.config
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import structlog
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from portal.embedded import pulse
from portal.embedded.restarts import note_restart
from portal.site.health import broker_client
from portal.site.metrics import DatabaseCollector, RoundTotals
from scheduling.engine.clock import wall_now
from scheduling.models import Arrival, Job, Pool, PoolClock, PoolFence
from scheduling.selectors.pools.vitals import pool_vitals
from tests.factories import BEGIN, Cluster, cluster

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-of-a-monitor"
Labels = frozenset[tuple[str, str]]


def scrape(client: Client) -> dict[tuple[str, Labels], float]:
    """Return every sample by its name and labels, parsed by Prometheus' own parser."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }


def sample(found: Mapping[tuple[str, Labels], float], name: str, **labels: str) -> float:
    return found[f"evenshare_{name}", frozenset(labels.items())]


@pytest.mark.django_db
class TestAccess:
    def test_allows_local_machine(self, client: Client) -> None:
        assert client.get("/metrics").status_code == 200
        assert client.get("/metrics", REMOTE_ADDR="::1").status_code == 200

    @pytest.mark.parametrize("address", ["203.0.113.9", "10.0.0.1", "", "unix:"])
    def test_rejects_remote_addresses(self, client: Client, address: str) -> None:
        assert client.get("/metrics", REMOTE_ADDR=address).status_code == 404

    def test_rejects_requests_through_local_proxy(self, client: Client, settings: Settings) -> None:
        assert client.get("/metrics", HTTP_X_FORWARDED_FOR="203.0.113.9").status_code == 404
        settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
        assert client.get("/metrics").status_code == 404

    def test_allows_remote_address_with_token(self, client: Client, settings: Settings) -> None:
        settings.METRICS_TOKEN = TOKEN
        for words, status in (
            (f"Bearer {TOKEN}", 200),
            (f"Bearer {TOKEN}x", 404),
            ("Bearer ", 404),
            (f"Basic {TOKEN}", 404),
        ):
            assert asked_from_afar(client, words) == status
        settings.METRICS_TOKEN = ""
        assert asked_from_afar(client, "Bearer ") == 404


def asked_from_afar(client: Client, authorization: str) -> int:
    headers = {"authorization": authorization}
    return client.get("/metrics", headers=headers, REMOTE_ADDR="203.0.113.9").status_code


@pytest.fixture
def place(committed_db: str) -> Cluster:
    assert committed_db
    with broker_client() as broker:
        broker.flushdb()  # other tests requested rounds, but no worker has run them
    return cluster({"north": 6, "south": 2})


class TestPool:
    def test_exports_rounds_jobs_and_gpus(self, place: Cluster, client: Client) -> None:
        pool = place.pool.name
        scrape(client)
        for _ in range(3):
            place.submit("north", 2, 60)
        place.submit("south", 4, 3600)
        place.round()
        place.round(after_s=100)
        place.submit("south", 8, 3600)
        place.round(after_s=10)
        PoolClock.objects.update(paused=False)
        found = scrape(client)
        assert sample(found, "rounds_total", pool=pool) == 3
        assert sample(found, "round_seconds_count", pool=pool, step="decide") == 3
        assert sample(found, "round_seconds_sum", pool=pool, step="decide") > 0
        granted = Job.objects.filter(leases_held__gt=0).count()
        assert sample(found, "lease_decisions_total", pool=pool, decision="granted") == granted
        assert sample(found, "jobs", pool=pool, state="pending") == 1
        assert sample(found, "jobs", pool=pool, state="running") == 2
        assert sample(found, "leases", pool=pool, state="running") == 2
        use = {
            name: sample(found, "gpus", pool=pool, gpu_type="v100", use=name)
            for name in ("used", "idle", "blocked")
        }
        assert use == {"used": 6, "idle": 2, "blocked": 0}
        assert sample(found, "policy_state_bytes", pool=pool, part="service") > 0
        assert sample(found, "intents_open", pool=pool) == 0
        assert sample(found, "database_up") == sample(found, "broker_up") == 1
        assert sample(found, "queue_messages", queue="rounds") == 0

    def test_exports_delay_of_round(self, place: Cluster, client: Client) -> None:
        pool = place.pool.name
        Pool.objects.update(round_s=1_000)
        PoolFence.objects.update(last_checked_at=BEGIN)
        late_s = []
        for elapsed_s in (0, 2_000):
            PoolClock.objects.update(
                paused=False,
                anchor_wall=wall_now(),
                anchor_pool=BEGIN + timedelta(seconds=elapsed_s),
            )
            late_s.append(sample(scrape(client), "round_late_seconds", pool=pool))
        assert late_s[0] == 0
        assert 1_000 <= late_s[1] < 2_000
        PoolClock.objects.update(paused=True)
        assert ("evenshare_round_late_seconds", frozenset({("pool", pool)})) not in scrape(client)

    def test_paused_pool_exports_no_round_age(self, place: Cluster, client: Client) -> None:
        PoolClock.objects.update(paused=True)
        found = scrape(client)
        assert sample(found, "pool_paused", pool=place.pool.name) == 1
        assert ("evenshare_round_age_seconds", frozenset({("pool", place.pool.name)})) not in found

    def test_round_count_continues_after_restore(self, place: Cluster) -> None:
        """If the pool has fewer rounds than this process counted, the sums start again there."""
        totals = RoundTotals()
        for after_s in (0, 10, 10):
            place.submit("north", 1, 3600)
            place.round(after_s=after_s)
        totals.advance(pool_vitals())
        restored = [replace(pool, rounds=1) for pool in pool_vitals()]
        assert totals.advance(restored)[place.pool.pk].rounds == 2

    def test_counts_quarantined_jobs_and_future_arrivals(
        self, place: Cluster, client: Client
    ) -> None:
        pool = place.pool.name
        place.submit("north", 2, 60, quarantine="it made the policy fail")
        tenant = place.tenants["north"]
        Arrival.objects.create(
            pool=place.pool, tenant=tenant, at=BEGIN, name="a", gpus=1, duration_us=1
        )
        found = scrape(client)
        assert sample(found, "jobs", pool=pool, state="set_aside") == 1
        assert sample(found, "jobs", pool=pool, state="pending") == 0
        assert sample(found, "arrivals", pool=pool) == 1

    def test_query_count_does_not_grow(self, place: Cluster) -> None:
        collector = DatabaseCollector()
        counts = []
        for more in range(3):
            with CaptureQueriesContext(connection) as asked:
                list(collector.collect())
            counts.append([row["sql"] for row in asked if not row["sql"].startswith(_FRAME)])
            for _ in range(10 * more):
                place.submit("north", 1, 3600)
            cluster({f"more-{more}": 2})
            place.round(after_s=10)
        assert [len(sql) for sql in counts] == [8, 8, 8]

    def test_labels_name_no_job_tenant_or_person(self, place: Cluster, client: Client) -> None:
        place.submit("north", 1, 3600)
        place.round()
        names = {name for _, labels in scrape(client) for name, _ in labels}
        assert names <= {
            *("pool", "policy", "state", "gpu_type", "use", "step", "decision", "part", "queue"),
            *("property", "verdict", "rule", "outcome"),
            *("route", "method", "status", "le"),
        }


_FRAME = ("SAVEPOINT", "RELEASE", "BEGIN", "COMMIT", "SELECT set_config")


class TestWithoutDatabase:
    def test_reports_database_down(self, committed_db: str, client: Client) -> None:
        connections.close_all()
        settings = connections.settings["default"]
        settings["NAME"] = "evenshare_nowhere"
        try:
            found = scrape(client)
        finally:
            connections.close_all()
            settings["NAME"] = committed_db
        assert sample(found, "database_up") == 0
        assert ("evenshare_rounds_total", frozenset()) not in found


@pytest.mark.django_db
class TestQueues:
    def test_export_age_of_pulse_under_supervisor(
        self, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("EVENSHARE_RUN_DIR", str(tmp_path))
        pulse.touch(tmp_path, "rounds")
        note_restart(tmp_path, "beat", "no sign of life", at=0.0)
        found = scrape(client)
        assert sample(found, "process_restarts_total", process="beat") == 1
        assert sample(found, "queue_pulse_age_seconds", queue="rounds") >= 0
        assert not [key for key in found if ("queue", "default") in key[1] and "pulse" in key[0]]

    def test_export_nothing_without_broker(self, client: Client, settings: Settings) -> None:
        settings.REDIS_URL = "unix:///nowhere/valkey.sock?db=0"
        found = scrape(client)
        assert sample(found, "broker_up") == 0
        assert not [key for key in found if "queue_messages" in key[0]]


@pytest.mark.django_db
class TestRequest:
    def test_is_counted_by_route_template(self, client: Client) -> None:
        def seen() -> float:
            labels = {"route": "/pools/<slug:name>/", "method": "GET", "status": "302"}
            key = ("evenshare_http_requests_total", frozenset(labels.items()))
            return scrape(client).get(key, 0.0)

        before = seen()
        client.get("/pools/secret-name/?token=secret")
        client.get("/no/such/page/")
        assert seen() == before + 1
        text = client.get("/metrics").content.decode()
        assert 'route="unmatched"' in text
        assert "secret" not in text

    def test_unknown_method_is_counted_as_other(self, client: Client) -> None:
        client.generic("BREW", "/login/")
        text = client.get("/metrics").content.decode()
        assert 'method="OTHER"' in text
        assert "BREW" not in text

    def test_is_logged_once_with_id_and_without_query(
        self, client: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, "portal.site.access"):
            client.get("/no/such%0apage/?token=secret", HTTP_X_REQUEST_ID="0123456789abcdef")
            client.get("/healthz")
        told = [record.msg for record in caplog.records if record.name == "portal.site.access"]
        assert len(told) == 1
        line = told[0]
        assert isinstance(line, dict)
        wanted = {
            "event": "http.request",
            "request_id": "0123456789abcdef",
            "method": "GET",
            "path": "/no/such%0Apage/",
            "route": "unmatched",
            "status": 404,
        }
        assert {key: line[key] for key in wanted} == wanted


class TestRound:
    def test_is_bound_to_log_context_while_it_runs(
        self, place: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A log line of an executor has the pool and the round to which it belongs."""
        seen: list[dict[str, object]] = []

        def note(*_args: object, **_kwargs: object) -> int:
            seen.append(structlog.contextvars.get_contextvars())
            return 0

        monkeypatch.setattr("scheduling.engine.rounds.feed", note)
        place.round()
        place.submit("north", 1, 60)
        place.round(after_s=10)
        assert [(line["pool"], line["round"]) for line in seen] == [
            (place.pool.name, 1),
            (place.pool.name, 2),
        ]
        assert "round" not in structlog.contextvars.get_contextvars()


class TestLogs:
    """Runs in a separate process, because logging is configured once per process."""

    PROGRAM = """
import django, logging, structlog
django.setup()
with structlog.contextvars.bound_contextvars(request_id="r-1"):
    structlog.get_logger("a").info("hello", when=django, n=1)
    logging.getLogger("b").warning("plain %s", "words")
    try:
        1 / 0
    except ZeroDivisionError:
        structlog.get_logger("c").exception("failed")
"""

    def written(self, **environment: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", self.PROGRAM],
            cwd=ROOT,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "portal.site.settings", **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or "SettingError" in done.stderr, done.stderr
        return (done.stdout + done.stderr).splitlines()

    def test_are_json_lines_in_production(self) -> None:
        lines = [json.loads(line) for line in self.written(LOG_FORMAT="json")]
        assert [(line["event"], line["level"], line["request_id"]) for line in lines] == [
            ("hello", "info", "r-1"),
            ("plain words", "warning", "r-1"),
            ("failed", "error", "r-1"),
        ]
        assert "ZeroDivisionError" in lines[2]["exception"]
        assert all(line["timestamp"].endswith("Z") for line in lines)

    def test_are_human_readable_in_demo(self) -> None:
        lines = self.written(LOG_FORMAT="console")
        assert "[info     ] hello" in lines[0]
        assert "request_id=r-1" in lines[1]

    def test_reject_invalid_settings(self) -> None:
        assert "LOG_FORMAT must be json or console" in self.written(LOG_FORMAT="xml")[-1]
        assert "METRICS_TOKEN must have" in self.written(METRICS_TOKEN="short")[-1]
