"""Keys and the objects made under them, below the API."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from tenants import idempotency
from tenants.idempotency import (
    KEEP,
    InFlightError,
    KeyedRequest,
    MismatchError,
    begin_reply,
    drop_replies,
)
from tenants.models import IdempotentReply, User
from tests.factories import cluster
from tests.tools import PATIENCE_S

BODY = {"gpus": 2, "name": "träin", "at": timezone.now()}


def asked(body: object = BODY) -> KeyedRequest:
    """Return a request by a new person of a new tenant."""
    user = User.objects.create(username="ada")
    request = KeyedRequest.of(cluster({"north": 1}).tenants["north"], user, "jobs", "k1", body)
    assert request
    return request


@pytest.mark.django_db
class TestKey:
    def test_identifies_tenant_user_route_and_body_digest(self) -> None:
        request = asked()
        kept = IdempotentReply(
            tenant_id=request.tenant_id, user_id=request.user_id, route="jobs", key="k1"
        )
        assert (kept.tenant.slug, kept.user.username) == ("north", "ada")
        assert (request.route, request.key, len(request.digest)) == ("jobs", "k1", 64)

    def test_column_has_maximum_key_length(self) -> None:
        assert IdempotentReply._meta.get_field("key").max_length == idempotency.KEY_MAX

    def test_requires_user_and_nonempty_key(self) -> None:
        tenant, user = cluster({"north": 1}).tenants["north"], User.objects.create(username="ada")
        assert KeyedRequest.of(tenant, user, "jobs", "", {}) is None
        assert KeyedRequest.of(tenant, user, "jobs", None, {}) is None
        assert KeyedRequest.of(tenant, None, "jobs", "k1", {}) is None

    def test_digest_ignores_key_order_but_no_value(self) -> None:
        tenant, user = cluster({"north": 1}).tenants["north"], User.objects.create(username="ada")

        def digest(body: object) -> str:
            request = KeyedRequest.of(tenant, user, "jobs", "k1", body)
            assert request
            return request.digest

        assert digest(BODY) == digest(dict(reversed(BODY.items())))
        bodies: list[object] = [
            BODY,
            BODY | {"gpus": 3},
            BODY | {"gpus": "2"},
            {},
            [],
            None,
            {"gpus": 2},
        ]
        assert len({digest(body) for body in bodies}) == len(bodies)

    def test_first_claim_stores_result_for_repetitions(self) -> None:
        request = asked()
        assert begin_reply(request, ["j1", "j2"]) is None
        assert begin_reply(request, ["j3"]) == ["j1", "j2"]
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            assert cursor.fetchone() == (idempotency.WAIT,), "a twin is not waited for for ever"
        kept = IdempotentReply.objects.get()
        assert (kept.route, kept.key, kept.digest) == ("jobs", "k1", request.digest)
        assert abs(timezone.now() - kept.created_at) < timedelta(hours=1)

    def test_rejects_different_digest(self) -> None:
        request = asked()
        begin_reply(request, [])
        with pytest.raises(MismatchError):
            begin_reply(replace(request, digest="0" * 64), [])

    def test_is_deleted_after_retention_period(self) -> None:
        request = asked()
        for age, key in ((timedelta(0), "new"), (KEEP, "old"), (timedelta(days=8), "older")):
            begin_reply(replace(request, key=key), [])
            made = timezone.now() - age + timedelta(minutes=1 if age == KEEP else 0)
            IdempotentReply.objects.filter(key=key).update(created_at=made)
        assert drop_replies() == 1
        IdempotentReply.objects.filter(key="old").update(created_at=timezone.now() - KEEP)
        assert drop_replies() == 1
        assert [row.key for row in IdempotentReply.objects.all()] == ["new"]


class Twin(threading.Thread):
    """A second request with the key, whose transaction stays open until `done` is set."""

    def __init__(self, request: KeyedRequest, *, commits: bool) -> None:
        super().__init__()
        self.request, self.commits = request, commits
        self.has, self.done = threading.Event(), threading.Event()

    def run(self) -> None:
        with transaction.atomic():
            begin_reply(self.request, ["twin"])
            self.has.set()
            self.done.wait(PATIENCE_S)
            transaction.set_rollback(not self.commits)
        connection.close()


@pytest.mark.usefixtures("committed_db")
class TestConcurrentRequest:
    def test_raises_in_flight_error_after_timeout(self, monkeypatch: pytest.MonkeyPatch) -> None:
        twin = Twin(asked(), commits=True)
        twin.start()
        assert twin.has.wait(PATIENCE_S)
        monkeypatch.setattr(idempotency, "WAIT", "100ms")
        with pytest.raises(InFlightError), transaction.atomic():
            begin_reply(twin.request, ["me"])
        twin.done.set()
        twin.join()
        with transaction.atomic():
            assert begin_reply(twin.request, ["me"]) == ["twin"]
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            assert cursor.fetchone() != ("100ms",), "the wait is the transaction's own"

    def test_rollback_releases_the_key(self) -> None:
        twin = Twin(asked(), commits=False)
        twin.start()
        assert twin.has.wait(PATIENCE_S)
        twin.done.set()
        with transaction.atomic():
            assert begin_reply(twin.request, ["me"]) is None
        twin.join()
        assert [row.made for row in IdempotentReply.objects.all()] == [["me"]]
