"""Test probes: liveness, readiness, and the causes of each warning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.db.models import F
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import path
from pytest_django import Settings

from portal.site import health
from portal.site.health_views import FORWARDED
from portal.site.urls import urlpatterns as _pages
from scheduling.engine.clock import wall_now
from scheduling.models import ExecutorHealth, Intent, Lease, PoolClock, PoolFence, RoundFailure
from tests.factories import BEGIN, Cluster, cluster


@pytest.fixture
def place(db: None) -> Cluster:  # noqa: ARG001 - pytest's fixture, asked for by its name
    """Return a pool that was checked just now."""
    town = cluster({"north": 4})
    looked_at(town, ago_s=1)
    return town


def looked_at(town: Cluster, *, ago_s: float) -> None:
    """Set the pool's clock to its start, and the last check to `ago_s` seconds before."""
    wall = wall_now()
    PoolClock.objects.filter(pool=town.pool).update(
        anchor_pool=BEGIN, anchor_wall=wall, seen_wall=wall
    )
    PoolFence.objects.filter(pool=town.pool).update(
        last_checked_at=BEGIN - timedelta(seconds=ago_s)
    )


def ready(client: Client, **headers: str) -> tuple[int, dict[str, str], dict[str, str]]:
    """Return the status of the answer, and states and details by check."""
    answer = client.get("/readyz", **headers)  # type: ignore[arg-type]  # headers as the client names them
    checks: list[dict[str, Any]] = json.loads(answer.content)["checks"]
    return (
        answer.status_code,
        {check["name"]: check["state"] for check in checks},
        {check["name"]: check.get("detail", "") for check in checks},
    )


class TestHealthz:
    def test_answers_without_database(self, client: Client) -> None:
        """The test has no database mark, so any query would raise an error."""
        answer = client.get("/healthz")
        assert (answer.status_code, json.loads(answer.content)) == (200, {"status": "ok"})
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Request-Id"]


class TestReadyz:
    def test_is_ok_while_everything_runs(self, place: Cluster, client: Client) -> None:
        status, states, _ = ready(client)
        names = (
            *("database", "migrations", "ticks", "rounds", "intents", "executors", "chain"),
            *("logs", "files", "broker"),
        )
        assert (status, states) == (200, dict.fromkeys(names, "ok"))

    def test_query_count_does_not_grow_with_pools(self, place: Cluster, client: Client) -> None:
        with CaptureQueriesContext(connection) as one:
            ready(client)
        for _ in range(5):
            looked_at(cluster({"north": 4}), ago_s=1)
        with CaptureQueriesContext(connection) as six:
            ready(client)
        assert len(one) == len(six)

    @pytest.mark.parametrize(("ago_s", "state"), [(20, "ok"), (24, "ok"), (27, "failing")])
    def test_fails_two_intervals_after_rounds_stop(
        self, place: Cluster, client: Client, ago_s: int, state: str
    ) -> None:
        """Rounds are due every 10 s; readiness fails after two of them and 5 s."""
        looked_at(place, ago_s=ago_s)
        status, states, _ = ready(client)
        assert (status, states["rounds"]) == (503 if state == "failing" else 200, state)
        assert states["ticks"] == "ok"

    def test_measures_round_delay_in_wall_time(self, place: Cluster, client: Client) -> None:
        looked_at(place, ago_s=600)
        PoolClock.objects.update(scale=60)
        assert ready(client)[1]["rounds"] == "ok"

    def test_fails_without_clock_ticks(self, place: Cluster, client: Client) -> None:
        PoolClock.objects.update(seen_wall=F("seen_wall") - timedelta(seconds=60))
        status, states, _ = ready(client)
        assert (status, states["ticks"]) == (503, "failing")

    def test_ignores_paused_pools(self, place: Cluster, client: Client) -> None:
        looked_at(place, ago_s=3600)
        PoolClock.objects.update(paused=True, seen_wall=BEGIN)
        assert ready(client)[0] == 200

    def test_fails_for_new_pool_without_first_round(self, place: Cluster, client: Client) -> None:
        PoolFence.objects.update(last_checked_at=None)
        assert ready(client)[1]["rounds"] == "ok"
        PoolClock.objects.update(anchor_wall=F("anchor_wall") - timedelta(minutes=1))
        assert ready(client)[1]["rounds"] == "failing"

    def test_warns_about_failing_rounds(self, place: Cluster, client: Client) -> None:
        RoundFailure.objects.create(pool=place.pool, error="boom", count=3)
        status, states, details = ready(client)
        assert (status, states["rounds"]) == (200, "warning")
        assert "3 failed in a row" in details["rounds"]

    def test_fails_if_refused_intent_stays_open(self, place: Cluster, client: Client) -> None:
        intent = open_intent(place)
        assert ready(client)[1]["intents"] == "ok"
        Intent.objects.filter(pk=intent.pk).update(last_error="no answer", attempts=2)
        assert ready(client)[1]["intents"] == "warning"
        Intent.objects.filter(pk=intent.pk).update(at=BEGIN - timedelta(seconds=61))
        status, states, details = ready(client)
        assert (status, states["intents"]) == (503, "failing")
        assert "1 of 1 refused" in details["intents"]

    def test_only_warns_about_unreachable_executor(self, place: Cluster, client: Client) -> None:
        """A restart or another portal would not repair the engine."""
        intent = open_intent(place)
        Intent.objects.filter(pk=intent.pk).update(at=BEGIN - timedelta(seconds=61))
        ExecutorHealth.objects.create(
            pool=place.pool, failures=7, open_until=wall_now(), error="no route", missing={"a": ""}
        )
        status, states, details = ready(client)
        assert (status, states["intents"], states["executors"]) == (200, "warning", "warning")
        assert "7 calls in a row failed: no route" in details["executors"]
        ExecutorHealth.objects.update(frozen_since=wall_now())
        assert "1 leases are not listed since" in ready(client)[2]["executors"]

    def test_fails_if_a_migration_is_missing(
        self, place: Cluster, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        known = health.known_migrations() | {("billing", "9999_later")}
        monkeypatch.setattr(health, "known_migrations", lambda: known)
        status, states, details = ready(client)
        assert (status, states["migrations"], states["rounds"]) == (503, "failing", "failing")
        assert details["migrations"] == "1 missing: billing.9999_later"

    def test_failure_is_logged_at_info_level(
        self, place: Cluster, client: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A supervisor shows errors on its terminal, and probes come every few seconds."""
        looked_at(place, ago_s=100)
        ready(client)
        assert [(one.name, one.levelname) for one in caplog.records] == [
            ("portal.site.access", "INFO")
        ]

    def test_warns_without_broker(self, place: Cluster, client: Client, settings: Settings) -> None:
        settings.REDIS_URL = "unix:///nowhere/valkey.sock?db=0"
        status, states, _ = ready(client)
        assert (status, states["broker"]) == (200, "warning")


def open_intent(town: Cluster) -> Intent:
    job = town.submit("north", 1, 60)
    lease = Lease.objects.create(
        pool=town.pool,
        tenant=job.tenant,
        job=job,
        gpu_type=town.gpu_type,
        number=1,
        state=Lease.State.LAUNCHING,
        gpus=1,
        placement=[],
        granted_round=1,
        granted_at=BEGIN,
        expires_at=BEGIN,
        own=1,
        borrowed=0,
        price=0,
    )
    return Intent.objects.create(pool=town.pool, lease=lease, kind="launch", term=1, at=BEGIN)


@pytest.fixture
def no_database(committed_db: str) -> Iterator[None]:
    """Make every new connection request a missing database."""
    connections.close_all()
    settings = connections.settings["default"]
    settings["NAME"] = "evenshare_nowhere"
    yield
    connections.close_all()
    settings["NAME"] = committed_db


class TestWithoutDatabase:
    def test_readyz_fails_every_check_that_needs_the_database(
        self, no_database: None, client: Client
    ) -> None:
        status, states, details = ready(client)
        assert status == 503
        assert {name for name, state in states.items() if state == "failing"} == {
            "database",
            "migrations",
            "ticks",
            "rounds",
            "intents",
            "executors",
            "logs",
            "files",
            "chain",
        }
        assert details["database"] == "OperationalError"

    # An existing and a missing page: both answers have the frame of all pages.
    @pytest.mark.parametrize("path", ["/", "/nowhere/"])
    def test_pages_return_503_with_request_id(
        self, no_database: None, client: Client, path: str
    ) -> None:
        answer = client.get(path, HTTP_X_REQUEST_ID="told-by-the-proxy")
        assert answer.status_code == 503
        assert b"The database does not answer" in answer.content
        assert b"<code>told-by-the-proxy</code>" in answer.content
        assert answer.headers["X-Request-Id"] == "told-by-the-proxy"
        assert answer.headers["Retry-After"] == "5"

    def test_missing_static_file_returns_404(self, no_database: None, client: Client) -> None:
        assert client.get("/static/none.css").status_code == 404


class TestReadyzDetails:
    @pytest.mark.parametrize("header", FORWARDED)
    def test_are_hidden_behind_a_proxy(self, place: Cluster, client: Client, header: str) -> None:
        name = "HTTP_" + header.upper().replace("-", "_")
        looked_at(place, ago_s=100)
        status, states, details = ready(client, **{name: "127.0.0.1"})
        assert (status, states["rounds"]) == (503, "failing")
        assert set(details.values()) == {""}

    def test_are_hidden_from_remote_addresses(self, place: Cluster, client: Client) -> None:
        looked_at(place, ago_s=100)
        assert set(ready(client, REMOTE_ADDR="203.0.113.9")[2].values()) == {""}

    def test_are_shown_on_the_local_machine(self, place: Cluster, client: Client) -> None:
        looked_at(place, ago_s=100)
        assert place.pool.name in ready(client)[2]["rounds"]


def _fails(_request: object) -> HttpResponse:
    raise RuntimeError("planted")


urlpatterns = [*_pages, path("planted/", _fails)]
handler400 = "portal.site.error_views.bad_request"
handler500 = "portal.site.error_views.server_error"


class TestErrorPage:
    @pytest.mark.urls("tests.functional.test_health")
    def test_server_error_shows_request_id(self, client: Client) -> None:
        client.raise_request_exception = False
        answer = client.get("/planted/")
        assert answer.status_code == 500
        told = answer.headers["X-Request-Id"].encode()
        assert b"<code>" + told + b"</code>" in answer.content

    @pytest.mark.django_db
    def test_not_found_has_request_id(self, client: Client) -> None:
        answer = client.get("/nowhere/")
        assert answer.status_code == 404
        assert answer.headers["X-Request-Id"].encode() in answer.content

    def test_disallowed_host_has_request_id(self, client: Client) -> None:
        answer = client.get("/login/", headers={"host": "elsewhere.test"})
        assert answer.status_code == 400
        assert answer.headers["X-Request-Id"].encode() in answer.content
